"""Pipelines in training processes: a client in every rank, which measures and sets clocks.

A server that is down, slow or wrong never stops the training.
"""

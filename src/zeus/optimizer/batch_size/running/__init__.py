"""Recurring jobs in training scripts: ask for a batch size, train, report, and start programs.

A server or store that is down, slow or wrong never stops the training.
"""

"""Replay: policies of recurring jobs, proven on recorded outcomes of real training runs.

Traces stand in for the hardware (`traces.py`, `table.py`), the engine runs many jobs at once
(`engine.py`), and the policies are those of production.
"""

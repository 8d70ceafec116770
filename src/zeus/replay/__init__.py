"""Replay: policies of recurring jobs, tested on recorded outcomes of real training runs.

Traces replace the hardware (`_traces.py`, `_table.py`), one event loop runs many jobs at once
(`_event_loop.py`), and the policies are those of production.
"""

from __future__ import annotations

import importlib.util

from zeus.errors import MissingExtraError

if importlib.util.find_spec("numpy") is None:  # needed by every module here
    raise MissingExtraError("zeus.replay", "batch-size")

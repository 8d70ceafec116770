"""Measurement windows, and timelines of power and temperature."""

from __future__ import annotations

from zeus.monitor.measurement import Measurement, Reading
from zeus.monitor.track import Method
from zeus.monitor.windows import WindowScope, ZeusMonitor

__all__ = [
    "Measurement",
    "Method",
    "Reading",
    "WindowScope",
    "ZeusMonitor",
]

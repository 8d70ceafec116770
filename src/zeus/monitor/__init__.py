"""Measurement windows, and timelines of power and temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.monitor.measurement import Measurement, Reading
    from zeus.monitor.power import CpuDomain, PowerDomain, PowerMonitor
    from zeus.monitor.samples import Method
    from zeus.monitor.temperature import TemperatureMonitor
    from zeus.monitor.windows import WindowScope, ZeusMonitor

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CpuDomain": "zeus.monitor.power",
        "Measurement": "zeus.monitor.measurement",
        "Method": "zeus.monitor.samples",
        "PowerDomain": "zeus.monitor.power",
        "PowerMonitor": "zeus.monitor.power",
        "Reading": "zeus.monitor.measurement",
        "TemperatureMonitor": "zeus.monitor.temperature",
        "WindowScope": "zeus.monitor.windows",
        "ZeusMonitor": "zeus.monitor.windows",
    },
)

__all__ = [
    "CpuDomain",
    "Measurement",
    "Method",
    "PowerDomain",
    "PowerMonitor",
    "Reading",
    "TemperatureMonitor",
    "WindowScope",
    "ZeusMonitor",
]

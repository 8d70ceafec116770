"""Measurement windows, requests to servers, and timelines of power and temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazy_names

if TYPE_CHECKING:
    from zeus.monitor._measurement import Measurement, Reading
    from zeus.monitor._power import CpuDomain, PowerDomain, PowerMonitor
    from zeus.monitor._request_statistics import RequestStatistics
    from zeus.monitor._requests import Request, RequestEnergy, RequestMonitor
    from zeus.monitor._samples import Method
    from zeus.monitor._scopes import WindowScope
    from zeus.monitor._temperature import TemperatureMonitor
    from zeus.monitor._windows import ZeusMonitor

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CpuDomain": "zeus.monitor._power",
        "Measurement": "zeus.monitor._measurement",
        "Method": "zeus.monitor._samples",
        "PowerDomain": "zeus.monitor._power",
        "PowerMonitor": "zeus.monitor._power",
        "Reading": "zeus.monitor._measurement",
        "Request": "zeus.monitor._requests",
        "RequestEnergy": "zeus.monitor._requests",
        "RequestMonitor": "zeus.monitor._requests",
        "RequestStatistics": "zeus.monitor._request_statistics",
        "TemperatureMonitor": "zeus.monitor._temperature",
        "WindowScope": "zeus.monitor._scopes",
        "ZeusMonitor": "zeus.monitor._windows",
    },
)

__all__ = [
    "CpuDomain",
    "Measurement",
    "Method",
    "PowerDomain",
    "PowerMonitor",
    "Reading",
    "Request",
    "RequestEnergy",
    "RequestMonitor",
    "RequestStatistics",
    "TemperatureMonitor",
    "WindowScope",
    "ZeusMonitor",
]

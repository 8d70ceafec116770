"""Sensors and knobs of this machine.

`get_gpus()`, `get_cpus()` and `get_soc()` work on every machine; without devices they return empty
sets, or `None`. Knobs are changed only under a hold:
``with get_gpus()[0].hold(power_limit=200): ...``.
"""

from __future__ import annotations

from zeus.device._base import (
    Capability,
    ClockRange,
    Cpu,
    CurrentClocks,
    DeviceSet,
    GpuDriver,
    GpuIdentity,
    GpuProcess,
    MemoryUse,
    PowerLimits,
    Problem,
    ProcessUsage,
    Soc,
    Support,
    SupportedClocks,
)
from zeus.device._gpu import Gpu
from zeus.device._hold import Hold
from zeus.device._node import Node, current_node
from zeus.device._vendors import GpuVendor
from zeus.device._visible import Candidate, Visible
from zeus.errors import CapabilityError, KnobError, Reason

__all__ = [
    "Candidate",
    "Capability",
    "CapabilityError",
    "ClockRange",
    "Cpu",
    "CurrentClocks",
    "DeviceSet",
    "Gpu",
    "GpuDriver",
    "GpuIdentity",
    "GpuProcess",
    "GpuVendor",
    "Hold",
    "KnobError",
    "MemoryUse",
    "Node",
    "PowerLimits",
    "Problem",
    "ProcessUsage",
    "Reason",
    "Soc",
    "Support",
    "SupportedClocks",
    "Visible",
    "current_node",
    "get_cpus",
    "get_gpus",
    "get_soc",
]


def get_gpus() -> DeviceSet[Gpu]:
    """Return the GPUs that frameworks in this process see, with the same indices."""
    return current_node().gpus


def get_cpus() -> DeviceSet[Cpu]:
    """Return the CPU packages whose energy this process may read."""
    return current_node().cpus


def get_soc() -> Soc | None:
    """Return the system on a chip whose power is metered, if the machine is one."""
    return current_node().soc

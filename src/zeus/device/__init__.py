"""What this machine can report and be told.

`get_gpus()`, `get_cpus()` and `get_soc()` work everywhere: a machine with nothing gives empty
sets. Knobs are changed only under a hold: ``with get_gpus()[0].hold(power_limit=200): ...``.
"""

from __future__ import annotations

from zeus.device.base import (
    Capability,
    Cpu,
    DeviceSet,
    Gpu,
    PowerLimits,
    Problem,
    Soc,
    Support,
)
from zeus.device.hold import Hold
from zeus.device.node import Node, current_node
from zeus.errors import CapabilityError, KnobError, Reason

__all__ = [
    "Capability",
    "CapabilityError",
    "Cpu",
    "DeviceSet",
    "Gpu",
    "Hold",
    "KnobError",
    "Node",
    "PowerLimits",
    "Problem",
    "Reason",
    "Soc",
    "Support",
    "current_node",
    "get_cpus",
    "get_gpus",
    "get_soc",
]


def get_gpus() -> DeviceSet[Gpu]:
    """The GPUs a framework in this process sees, with the same indices."""
    return current_node().gpus


def get_cpus() -> DeviceSet[Cpu]:
    """The CPU packages whose energy this process may read."""
    return current_node().cpus


def get_soc() -> Soc | None:
    """The system on a chip whose power is metered, if the machine is one."""
    return current_node().soc

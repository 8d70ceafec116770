"""Functions of `zeus.utils`, and where this process runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import zeus.frontier._cost as cost
from zeus.device import get_gpus
from zeus.monitor._sync import synchronizer

T = TypeVar("T")


def get_env(name: str, valtype: Callable[[str], T], default: T | None = None) -> T:
    """Return an environment variable as another type.

    Args:
        name: Its name.
        valtype: The type; a `bool` is written "true" or "false", in any case.
        default: Value if the variable is not set; without one it must be.

    Raises:
        ValueError: If it is not set or of another form.
    """
    text = os.environ.get(name)
    if text is None:
        if default is None:
            raise ValueError(f"the environment variable {name} must be set")
        return default
    if valtype is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, but got {text!r}")
        text = "true" if text.lower() == "true" else ""
    return valtype(text)


def zeus_cost(energy: float, time: float, eta_knob: float, max_power: float) -> float:
    """Return the paper's cost in joules.

    Args:
        energy: Joules.
        time: Seconds.
        eta_knob: The paper's eta.
        max_power: Watts.
    """
    return cost.zeus_cost(energy, time, max_power, eta_knob)


@dataclass
class LinearScaler:
    """Learning rates in proportion to the batch size.

    Attributes:
        bs: A batch size.
        lr: Its learning rate.
    """

    bs: int
    lr: float

    def compute_lr(self, new_bs: int) -> float:
        """Return the learning rate of another batch size."""
        return self.lr * new_bs / self.bs


@dataclass
class SquareRootScaler:
    """Learning rates in proportion to the root of the batch size.

    Attributes:
        bs: A batch size.
        lr: Its learning rate.
    """

    bs: int
    lr: float

    def compute_lr(self, new_bs: int) -> float:
        """Return the learning rate of another batch size."""
        return self.lr * math.sqrt(new_bs / self.bs)


def sync_execution(gpu_devices: Sequence[int], sync_with: str = "torch") -> None:
    """Wait for the work on GPUs; a framework that was not imported has none.

    Args:
        gpu_devices: Indices of the GPUs.
        sync_with: "torch", "jax" or "cupy".

    Raises:
        ValueError: If there is no such GPU or framework.
    """
    synchronizer(sync_with, get_gpus().select(gpu_devices))()


def get_current_cpu_index(pid: int | str = "current") -> int:
    """Return the CPU package on which a process runs at the moment, on Linux.

    Args:
        pid: Its number; "current" for this process.

    Raises:
        OSError: If there is no such process.
    """
    stat = Path(f"/proc/{'self' if pid == 'current' else pid}/stat").read_text(encoding="utf-8")
    core = stat.rpartition(")")[2].split()[36]  # the name before it may have anything
    package = Path(f"/sys/devices/system/cpu/cpu{core}/topology/physical_package_id")
    return int(package.read_text(encoding="utf-8"))

"""Energy of the parts of an Apple silicon chip, through the package `zeus-apple-silicon`.

macOS keeps the counters, and reading them needs no special permission. They are
understood to come from Apple's own model of the chip rather than from a meter, in steps of a
millijoule.
"""

from __future__ import annotations

import platform
from importlib import import_module
from typing import Protocol

from zeus.device._base import Problem, Soc
from zeus.errors import CapabilityError, Reason

_BINDING = "zeus_apple_silicon"

#: Zeus's name of each part, and the binding's. Cores, clusters and their managers are omitted: the
#: CPU total contains them.
_PARTS = {
    "cpu": "cpu_total_mj",
    "gpu": "gpu_mj",
    "gpu_sram": "gpu_sram_mj",
    "dram": "dram_mj",
    "ane": "ane_mj",
}


class EnergyMonitor(Protocol):
    """Interface of the binding's monitor, as far as it is used."""

    def get_cumulative_energy(self) -> object:
        """Millijoules since a fixed moment, one attribute per part; `None` where unknown."""


class AppleSoc(Soc):
    """An Apple silicon chip.

    Attributes:
        name: Product name.
        estimated: The energies are the chip's own estimate, not metered.
    """

    name = "Apple silicon"
    estimated = True

    def __init__(self, monitor: EnergyMonitor) -> None:
        self._monitor = monitor

    def energies(self) -> dict[str, float]:
        """Joules of each part since some fixed moment; parts without a counter are absent.

        Raises:
            CapabilityError: If the system reports none.
        """
        try:
            metrics = self._monitor.get_cumulative_energy()
        except (RuntimeError, ValueError) as error:
            raise CapabilityError(Reason.LOST, f"energy counters of macOS: {error}") from error
        millijoules = {part: getattr(metrics, field, None) for part, field in _PARTS.items()}
        energies = {part: value / 1e3 for part, value in millijoules.items() if value is not None}
        if not energies:
            raise CapabilityError(Reason.UNSUPPORTED, "macOS reports no energy for this chip")
        return energies


def discover(
    system: str | None = None, machine: str | None = None
) -> tuple[Soc | None, list[Problem]]:
    """Find the chip this machine runs on.

    Args:
        system: Name of the operating system, by default this one's.
        machine: Name of the processor architecture, by default this one's.

    Returns:
        The chip, or `None` if its energy cannot be read, and why not. Both are empty on machines
        that are not macOS on Apple silicon.
    """
    if (system or platform.system()) != "Darwin" or (machine or platform.machine()) != "arm64":
        return None, []
    try:
        soc = AppleSoc(_monitor())
        soc.energies()
    except CapabilityError as error:
        return None, [Problem("Apple silicon energy", error.fresh())]
    return soc, []


def _monitor() -> EnergyMonitor:
    try:
        monitor: EnergyMonitor = import_module(_BINDING).AppleEnergyMonitor()
    except (ImportError, AttributeError) as error:
        from zeus._installation import add_extras, pip  # noqa: PLC0415  (for an error only)

        missing = isinstance(error, ModuleNotFoundError) and error.name == _BINDING
        # An installed but broken one was built for another Python or system.
        again = f"{pip('install')} --force-reinstall --no-deps {_BINDING.replace('_', '-')}"
        raise CapabilityError(
            Reason.DRIVER_ABSENT,
            f"{_BINDING} cannot be used: {error}",
            add_extras("apple") if missing else again,
        ) from error
    except RuntimeError as error:
        raise CapabilityError(Reason.UNSUPPORTED, f"energy counters of macOS: {error}") from error
    return monitor

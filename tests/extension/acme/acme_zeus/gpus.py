"""GPUs of Acme: files in a directory, which `ACME_GPUS` names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from zeus.device import (
    Candidate,
    CapabilityError,
    GpuDriver,
    GpuIdentity,
    GpuVendor,
    KnobError,
    PowerLimits,
    Problem,
    Reason,
    Visible,
)


class AcmeGpu(GpuDriver):
    """One GPU: a counter in joules, a power meter in watts, and a power limit in watts."""

    may_hang = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self.identity = GpuIdentity(f"ACME-{path.name}", f"Acme {path.name}", "Acme")

    def energy(self) -> float:
        return self._read("energy")

    def instant_power(self) -> float:
        return self._read("power")

    def power_limit(self) -> float:
        return self._read("limit")

    def power_limits(self) -> PowerLimits:
        return PowerLimits(minimum=50, maximum=300, default=300)

    def set_power_limit(self, watts: float) -> None:
        limits = self.power_limits()
        if not limits.minimum <= watts <= limits.maximum:
            raise KnobError(f"50 W <= power_limit <= 300 W must hold, but got {watts:g} W")
        (self._path / "limit").write_text(f"{watts}")

    def _read(self, name: str) -> float:
        try:
            return float((self._path / name).read_text())
        except FileNotFoundError:
            raise CapabilityError(Reason.UNSUPPORTED, f"{self._path} has no {name}") from None


def discover() -> tuple[list[GpuDriver], list[Problem]]:
    root = os.environ.get("ACME_GPUS")
    return [AcmeGpu(path) for path in sorted(Path(root).iterdir())] if root else [], []


def visible(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> list[Visible]:
    only = environment.get("ACME_VISIBLE")
    return [
        Visible(position)
        for position, candidate in enumerate(candidates)
        if only is None or candidate.uuid == only
    ]


VENDOR = GpuVendor("Acme", discover=discover, visible=visible, variables=("ACME_VISIBLE",))

"""The mean energy of windows of one name, which is more accurate than that of a single window.

The error of a short window is partly its own, which averages out, and partly common to all windows
of its name, which does not. Windows are weighted by how well the common part was known when they
were computed, so that the first ones, from which it was learned, count little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeus.monitor._measurement import Measurement, Reading
from zeus.monitor._samples import Energy, Method

_MAX_NAMES = 1000
_FLOOR = 0.01  # of the energy: below that, windows count equally


@dataclass
class _Sums:
    """Weighted sums over the windows of one name, for one device."""

    reading: Reading
    weight: float = 0.0
    joules: float = 0.0
    seconds: float = 0.0
    shared: float = 0.0
    own: float = 0.0

    def add(self, seconds: float, energy: Energy) -> None:
        assert energy.joules is not None
        uncertainty = energy.uncertainty or 0.0
        weight = 1 / ((energy.shared / max(energy.joules, 1e-9)) ** 2 + _FLOOR**2) ** 2
        self.weight += weight
        self.joules += weight * energy.joules
        self.seconds += weight * seconds
        self.shared += weight * min(energy.shared, uncertainty)
        self.own += weight**2 * max(uncertainty**2 - energy.shared**2, 0.0)

    def mean(self, seconds: float) -> Reading:
        """Return the mean reading of windows that took `seconds` on average."""
        per_window = seconds / self.seconds if self.seconds > 0 else 1 / self.weight
        uncertainty = math.hypot(self.shared, math.sqrt(self.own)) * per_window
        return replace(self.reading, energy=self.joules * per_window, uncertainty=uncertainty)


@dataclass
class _Name:
    count: int
    seconds: float
    devices: dict[tuple[str, int | str], _Sums]


class EnergyMeans:
    """Adds up windows by name."""

    def __init__(self) -> None:
        self._names: dict[str, _Name] = {}

    def add(self, name: str, seconds: float, readings: Sequence[tuple[Reading, Energy]]) -> None:
        """Add a window whose energies are final."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= _MAX_NAMES:
                self._names.pop(next(iter(self._names)))
            known = self._names[name] = _Name(0, 0.0, {})
        known.count += 1
        known.seconds += seconds
        for reading, energy in readings:
            sums = known.devices.get((reading.domain, reading.index))
            if sums is None or (sums.weight == 0 and energy.joules is not None):
                sums = known.devices[reading.domain, reading.index] = _Sums(reading)
            if energy.joules is not None:
                sums.add(seconds, energy)

    def mean(self, name: str) -> Measurement | None:
        """Return the mean time and energies of windows of a name; `None` if there were none."""
        known = self._names.get(name)
        if known is None:
            return None
        seconds = known.seconds / known.count
        return Measurement.of(
            seconds,
            [
                sums.mean(seconds)
                if sums.weight
                else replace(sums.reading, method=Method.UNAVAILABLE)
                for sums in known.devices.values()
            ],
        )

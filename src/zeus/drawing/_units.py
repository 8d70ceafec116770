"""Display units: the largest in which a quantity is readable."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Unit:
    """A unit to show a quantity in.

    Attributes:
        name: Symbol of the unit.
        size: Size in SI units.
    """

    name: str
    size: float

    def show(self, value: float, uncertainty: float | None = None, decimals: int = -1) -> str:
        """Return the value without the symbol; with four digits if no decimals are given.

        An uncertainty below the last digit is omitted: 57.60, not 57.60 ± 3e-13.
        """
        value /= self.size
        text = f"{value:.4g}" if decimals < 0 else f"{value:.{decimals}f}"
        last = _decimals(abs(value), 4) if decimals < 0 else decimals
        if uncertainty is None or uncertainty / self.size < 0.5 * 10.0**-last:
            return text
        return f"{text} ± {uncertainty / self.size:.2g}"

    def rounded_up(self, value: float, decimals: int) -> float:
        """Return the least value that is shown with so many decimals and is not less."""
        step = self.size * 10.0**-decimals
        if not math.isfinite(value / step):
            return value
        return math.ceil(value / step * (1 - _ROUNDING)) * step

    def text(self, value: float, uncertainty: float | None = None) -> str:
        """Return the value with the symbol."""
        return f"{self.show(value, uncertainty)} {self.name}"

    def decimals(self, values: Iterable[float]) -> int:
        """Return the decimals with which the smallest nonzero value has four digits."""
        smallest = min((value / self.size for value in values if value), default=1.0)
        return min(max(_decimals(smallest, 4), 0), 9)


def _decimals(value: float, digits: int) -> int:
    """Return the decimals for this many significant digits; may be negative."""
    return digits - 1 - math.floor(math.log10(value)) if value else digits - 1


_SECONDS = (
    Unit("h", 3600.0),
    Unit("min", 60.0),
    Unit("s", 1.0),
    Unit("ms", 1e-3),
    Unit("µs", 1e-6),
)
_JOULES = (Unit("GJ", 1e9), Unit("MJ", 1e6), Unit("kJ", 1e3), Unit("J", 1.0), Unit("mJ", 1e-3))


def time_unit(seconds: float) -> Unit:
    """Return the largest unit in which this and slightly smaller values are readable."""
    return next((unit for unit in _SECONDS if seconds >= 2 * unit.size), _SECONDS[-1])


def energy_unit(joules: float) -> Unit:
    """Return the largest unit in which this and slightly smaller values are readable."""
    if joules == 0:
        return Unit("J", 1.0)
    return next((unit for unit in _JOULES if joules >= 2 * unit.size), _JOULES[-1])

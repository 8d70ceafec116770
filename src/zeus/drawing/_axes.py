"""Axes of a plot: from values to positions, with labels at round values or at steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from zeus.drawing._shapes import Frame, Path, Shape, Text
from zeus.drawing._units import Unit

_TICK, _TITLE = 11.5, 12.5  # font sizes


class Side(Protocol):
    """One axis of a plot."""

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return positions with their labels, in about `most` intervals at most."""
        ...


@dataclass(frozen=True)
class Axis:
    """A linear axis, from values in SI units to pixels.

    Attributes:
        unit: Unit of the labels.
        low: Value at its beginning, in that unit; `high` that at its end.
        start: Position of `low` in pixels; `end` that of `high`.
        whole: Whether only whole numbers are labeled.
    """

    unit: Unit
    low: float
    high: float
    start: float
    end: float
    whole: bool = False

    @classmethod
    def over(cls, values: Sequence[float], unit: Unit, start: float, end: float) -> Axis:
        """Return an axis that covers all values, with a margin."""
        low, high = min(values) / unit.size, max(values) / unit.size
        # Equal values are centered in a range of their own size.
        margin = 0.09 * (high - low) if high > low * (1 + 1e-9) else 0.5 * high or 1.0
        return cls(unit, max(low - margin, 0.0), high + margin, start, end)

    def place(self, value: float) -> float:
        """Return the position of a value, clamped to the ends of the axis."""
        share = (value / self.unit.size - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return positions of round values, with their labels."""
        values = round_values(self.low, self.high, most, whole=self.whole)
        return [(self.place(value * self.unit.size), label) for value, label in values]


def round_values(
    low: float, high: float, most: int, *, whole: bool = False
) -> list[tuple[float, str]]:
    """Return round values within a range, with their labels.

    Args:
        low: Start of the range.
        high: End of the range.
        most: Maximum number of intervals, approximately.
        whole: Whether to use whole numbers only.
    """
    if not high > low:
        return [(low, f"{low:g}")]
    rough = max((high - low) / most, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(rough))
    sizes = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(power * size for size in sizes if power * size >= rough)
    places = (d for d in range(18) if math.isclose(step, round(step, d), rel_tol=1e-6))
    decimals = next(places, 18)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [(number * step, f"{number * step:.{decimals}f}") for number in numbers]


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis, from values in SI units to pixels.

    Attributes:
        unit: Unit of the labels.
        low: Value at its beginning, in that unit, above 0; `high` that at its end.
        start: Position of `low` in pixels; `end` that of `high`.
    """

    unit: Unit
    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], unit: Unit, start: float, end: float) -> LogAxis:
        """Return an axis that covers all values, which are above 0, with a margin."""
        low, high = min(values) / unit.size, max(values) / unit.size
        margin = max((high / low) ** 0.08, 1.3)
        return cls(unit, low / margin, high * margin, start, end)

    def place(self, value: float) -> float:
        """Return the position of a value, clamped to the ends of the axis."""
        value = min(max(value / self.unit.size, self.low), self.high)
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return positions of round values, with their labels."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1, 2, 5), (1, 3), (1,)):
            exact = (step * 10.0**power for power in range(first, last + 1) for step in steps)
            values = [value for value in exact if self.low <= value <= self.high]
            if len(values) <= most:
                break
        if len(values) < 3:  # less than a decade
            values = [value for value, _ in round_values(self.low, self.high, most)]
        values = values[:: -(-len(values) // most) or 1]
        return [(self.place(value * self.unit.size), f"{value:.6g}") for value in values]


@dataclass(frozen=True)
class Steps:
    """A categorical axis with equal distances.

    Attributes:
        labels: Labels of the categories.
        start: Position of its beginning in pixels; `end` that of its end. No category is on them.
    """

    labels: Sequence[str]
    start: float
    end: float

    def place(self, index: float) -> float:
        """Return the position of a category."""
        return self.start + (index + 0.5) / len(self.labels) * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return all categories, or every second, third ... if there are too many."""
        every = max(1, math.ceil(len(self.labels) / max(most, 1)))
        return [(self.place(i), self.labels[i]) for i in range(0, len(self.labels), every)]


def axes(frame: Frame, x: Side, y: Side, x_title: str, y_title: str) -> Iterator[Shape]:
    """Yield lines, labels and titles of both axes."""
    plot = frame.plot
    for place, _ in x.ticks(frame.ticks[0]):
        yield Path(((place, plot.top), (place, plot.bottom)), "grid")
    for place, label in y.ticks(frame.ticks[1]):
        yield Path(((plot.left, place), (plot.right, place)), "grid")
        yield Text(plot.left - 9, place + 4, label, _TICK, "muted", "end")
    yield from lower_side(frame, x, x_title)
    yield Path(((plot.left, plot.top), (plot.left, plot.bottom)), "axis")
    across = max(plot.left - 54, 13)
    yield Text(across, plot.center, y_title, _TITLE, "ink", "middle", rotated=True)


def lower_side(frame: Frame, x: Side, title: str) -> Iterator[Shape]:
    """Yield the line below the plot, its labels and its title."""
    plot = frame.plot
    yield Path(((plot.left, plot.bottom), (plot.right, plot.bottom)), "axis")
    for place, label in x.ticks(frame.ticks[0]):
        yield Path(((place, plot.bottom), (place, plot.bottom + 5)), "axis")
        yield Text(place, plot.bottom + 19, label, _TICK, "muted", "middle")
    yield Text(plot.middle, plot.bottom + 44, title, _TITLE, "ink", "middle")

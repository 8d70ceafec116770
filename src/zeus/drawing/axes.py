"""The sides of a plot: from values to places, with labels at round values or at steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from zeus.drawing.shapes import Frame, Path, Shape, Text
from zeus.drawing.units import Unit

_TICK, _TITLE = 11.5, 12.5  # font sizes


class Side(Protocol):
    """One side of a plot."""

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Places with their labels, in about as many intervals at most."""
        ...


@dataclass(frozen=True)
class Axis:
    """From values in SI units to a place along one side of the plot.

    Attributes:
        unit: What the labels are in.
        low: Where it begins, in that unit; `high` where it ends.
        start: Place of `low`; `end` that of `high`.
        whole: Whether only whole numbers are labelled.
    """

    unit: Unit
    low: float
    high: float
    start: float
    end: float
    whole: bool = False

    @classmethod
    def over(cls, values: Sequence[float], unit: Unit, start: float, end: float) -> Axis:
        """An axis with room for all the values."""
        low, high = min(values) / unit.size, max(values) / unit.size
        # Equal values are put into the middle of a range of their own size.
        margin = 0.09 * (high - low) if high > low * (1 + 1e-9) else 0.5 * high or 1.0
        return cls(unit, max(low - margin, 0.0), high + margin, start, end)

    def place(self, value: float) -> float:
        """Where a value is; on the axis even if the value is beyond its end."""
        share = (value / self.unit.size - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Places of round values, with their labels."""
        values = round_values(self.low, self.high, most, whole=self.whole)
        return [(self.place(value * self.unit.size), label) for value, label in values]


def round_values(
    low: float, high: float, most: int, *, whole: bool = False
) -> list[tuple[float, str]]:
    """Round values within a range, with their labels.

    Args:
        low: Where the range begins.
        high: Where it ends.
        most: About how many.
        whole: Whether only whole numbers count.
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
class Steps:
    """Things in a row along one side of the plot, each at the same distance from the next.

    Attributes:
        labels: What they are called.
        start: Where the row begins; `end` where it ends. None stands right there.
    """

    labels: Sequence[str]
    start: float
    end: float

    def place(self, index: float) -> float:
        """Where one stands."""
        return self.start + (index + 0.5) / len(self.labels) * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """All of them, or every second, third ... where there are too many."""
        every = max(1, math.ceil(len(self.labels) / max(most, 1)))
        return [(self.place(i), self.labels[i]) for i in range(0, len(self.labels), every)]


def axes(frame: Frame, x: Side, y: Side, x_title: str, y_title: str) -> Iterator[Shape]:
    """Lines, labels and titles of both sides."""
    plot = frame.plot
    for place, _ in x.ticks(frame.ticks[0]):
        yield Path(((place, plot.top), (place, plot.bottom)), "grid")
    for place, label in y.ticks(frame.ticks[1]):
        yield Path(((plot.left, place), (plot.right, place)), "grid")
        yield Text(plot.left - 9, place + 4, label, _TICK, "muted", "end")
    yield from lower_side(frame, x, x_title)
    yield Path(((plot.left, plot.top), (plot.left, plot.bottom)), "axis")
    across = max(plot.left - 54, 13)
    yield Text(across, plot.centre, y_title, _TITLE, "ink", "middle", rotated=True)


def lower_side(frame: Frame, x: Side, title: str) -> Iterator[Shape]:
    """The line below the plot, its labels and its title."""
    plot = frame.plot
    yield Path(((plot.left, plot.bottom), (plot.right, plot.bottom)), "axis")
    for place, label in x.ticks(frame.ticks[0]):
        yield Path(((place, plot.bottom), (place, plot.bottom + 5)), "axis")
        yield Text(place, plot.bottom + 19, label, _TICK, "muted", "middle")
    yield Text(plot.middle, plot.bottom + 44, title, _TITLE, "ink", "middle")

"""Frontiers for people: units of a readable size, labels, tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zeus.frontier.point import Point

if TYPE_CHECKING:
    from zeus.frontier.frontier import Frontier


@dataclass(frozen=True)
class Unit:
    """A unit to show a quantity in.

    Attributes:
        name: Its symbol.
        size: How many SI units it is.
    """

    name: str
    size: float

    def show(self, value: float, uncertainty: float | None = None, decimals: int = -1) -> str:
        """The value in this unit, without its symbol; in four digits if no decimals are given."""
        value /= self.size
        text = f"{value:.4g}" if decimals < 0 else f"{value:.{decimals}f}"
        return text if uncertainty is None else f"{text} ± {uncertainty / self.size:.2g}"

    def decimals(self, values: Iterable[float]) -> int:
        """How many make the smallest of the values, but 0, show four digits."""
        smallest = min((value / self.size for value in values if value), default=1.0)
        return min(max(3 - math.floor(math.log10(smallest)), 0), 9)


_SECONDS = (
    Unit("h", 3600.0),
    Unit("min", 60.0),
    Unit("s", 1.0),
    Unit("ms", 1e-3),
    Unit("µs", 1e-6),
)
_JOULES = (Unit("GJ", 1e9), Unit("MJ", 1e6), Unit("kJ", 1e3), Unit("J", 1.0), Unit("mJ", 1e-3))


def time_unit(seconds: float) -> Unit:
    """The largest unit in which this and what is not much smaller are readable."""
    return next((unit for unit in _SECONDS if seconds >= 2 * unit.size), _SECONDS[-1])


def energy_unit(joules: float) -> Unit:
    """The largest unit in which this and what is not much smaller are readable."""
    if joules == 0:
        return Unit("J", 1.0)
    return next((unit for unit in _JOULES if joules >= 2 * unit.size), _JOULES[-1])


def knob_label(knob: Any, unit: str = "", longest: int = 28) -> str:
    """A knob in a few characters."""
    if isinstance(knob, Mapping):
        text = ", ".join(f"{name} {value}" for name, value in knob.items())
    elif isinstance(knob, tuple):
        text = ", ".join(str(value) for value in knob)
    elif isinstance(knob, float):
        text = f"{knob:.6g}"
    else:
        text = str(knob)
    text = " ".join(text.split())
    if len(text) > longest:
        text = text[: longest - 1].rstrip(" ,") + "…"
    return f"{text} {unit}" if unit else text


def compared(point: Point, reference: Point) -> tuple[str, str]:
    """Time and energy beside those of a reference, in percent; "-" where there is no such."""
    time = 100 * (point.slowdown(reference) - 1)
    energy = None if reference.energy == 0 else -100 * point.savings(reference)
    # Adding 0 makes a rounded -0.0 a plain 0.
    return (
        f"{round(time, 1) + 0:+.1f} %",
        "-" if energy is None else f"{round(energy, 1) + 0:+.1f} %",
    )


def compared_in_words(point: Point, reference: Point) -> str:
    """The same as "9.6 % slower, 17.2 % less energy"."""
    time, energy = compared(point, reference)
    words = f"{time[1:]} {'faster' if time.startswith('-') else 'slower'}"
    if energy == "-":
        return words
    return f"{words}, {energy[1:]} {'less' if energy.startswith('-') else 'more'} energy"


def headline(frontier: Frontier) -> str:
    """One line: the work, how many points, how many of them on the frontier."""
    return f"{frontier.work}: {count(frontier)}" if frontier.work else count(frontier)


def count(frontier: Frontier) -> str:
    """How many points there are, and how many of them on the frontier."""
    points = len(frontier)
    return f"{points} point{'s' if points != 1 else ''}, {len(frontier.pareto())} on the frontier"


def rows(frontier: Frontier, reference: Point | None = None) -> list[tuple[str, ...]]:
    """A heading, and each point by rising time; * is the frontier.

    Args:
        frontier: What to show.
        reference: What the points are compared with; the fastest if not given.
    """
    reference = reference or frontier.fastest
    best = set(frontier.pareto().points)
    time = time_unit(max(point.time for point in frontier))
    energy = energy_unit(max(point.energy for point in frontier))
    time_decimals = time.decimals(point.time for point in frontier)
    energy_decimals = energy.decimals(point.energy for point in frontier)
    name = frontier.knob_name + (f" ({frontier.knob_unit})" if frontier.knob_unit else "")
    table: list[tuple[str, ...]] = [
        (
            name,
            f"time ({time.name})",
            f"energy ({energy.name})",
            "power (W)",
            "Δ time",
            "Δ energy",
            "",
        )
    ]
    for point in sorted(frontier, key=lambda point: (point.time, point.energy)):
        table.append(
            (
                knob_label(point.knob),
                time.show(point.time, point.time_uncertainty, time_decimals),
                energy.show(point.energy, point.energy_uncertainty, energy_decimals),
                f"{point.average_power:.1f}",
                *compared(point, reference),
                "*" if point in best else "",
            )
        )
    return table


def text_table(frontier: Frontier) -> str:
    """The headline and the rows as aligned text."""
    table = rows(frontier)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([headline(frontier), *lines])

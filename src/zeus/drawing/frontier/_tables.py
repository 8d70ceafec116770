"""Frontiers as text: labels, comparisons, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zeus.drawing._table import Column
from zeus.drawing._units import Unit, energy_unit, time_unit
from zeus.frontier import Frontier, Point


def knob_label(knob: Any, unit: str = "", longest: int = 28) -> str:
    """Return a knob as a short text."""
    if isinstance(knob, Mapping):
        text = ", ".join(f"{name} {value}" for name, value in knob.items())
    elif isinstance(knob, tuple):
        text = ", ".join(str(value) for value in knob)
    elif isinstance(knob, float):
        text = f"{knob:.6g}"
    else:
        text = str(knob)
    text = " ".join(text.split())
    if isinstance(knob, Mapping) and len(text) > longest:  # the values are what differs
        text = ", ".join(str(value) for value in knob.values())
    if len(text) > longest:
        text = text[: longest - 1].rstrip(" ,") + "…"
    return f"{text} {unit}" if unit else text


def compared(point: Point, reference: Point) -> tuple[str, str]:
    """Return the change of time and energy from a reference, in percent; "-" if undefined."""
    time = 100 * (point.slowdown(reference) - 1)
    energy = None if reference.energy == 0 else -100 * point.savings(reference)
    # Adding 0 makes a rounded -0.0 a plain 0.
    return (
        f"{round(time, 1) + 0:+.1f} %",
        "-" if energy is None else f"{round(energy, 1) + 0:+.1f} %",
    )


def compared_in_words(point: Point, reference: Point) -> str:
    """Return the change in words: "9.6 % slower, 17.2 % less energy"."""
    time, energy = compared(point, reference)
    words = f"{time[1:]} {'faster' if time.startswith('-') else 'slower'}"
    if energy == "-":
        return words
    return f"{words}, {energy[1:]} {'less' if energy.startswith('-') else 'more'} energy"


def headline(frontier: Frontier) -> str:
    """Return one line: the work, and the numbers of points and of those on the frontier."""
    return f"{frontier.work}: {count(frontier)}" if frontier.work else count(frontier)


def count(frontier: Frontier) -> str:
    """Return the numbers of points and of those on the frontier, as text."""
    points = len(frontier)
    return f"{points} point{'s' if points != 1 else ''}, {len(frontier.pareto())} on the frontier"


def columns_of(frontier: Frontier, reference: Point | None = None) -> list[Column[Point]]:
    """Return the columns of a frontier's table, with the same unit and decimals in all rows.

    They are named knob, time, energy, power, time-change, energy-change, latency (one for each
    percentile) and best, which has a * for points on the frontier. Their cells are plain text.

    Args:
        frontier: Frontier to show.
        reference: Point to compare with; by default the fastest.
    """
    base = reference or frontier.fastest
    best = set(frontier.pareto())
    time, times = _scale(time_unit, [point.time for point in frontier])
    energy, energies = _scale(energy_unit, [point.energy for point in frontier])
    latency, latencies = _scale(
        time_unit, [seconds for point in frontier for seconds in point.latencies.values()]
    )

    def number(name: str, title: str, cell: Callable[[Point], str]) -> Column[Point]:
        return Column(title, cell, name, number=True, optional=name == "power")

    def percentile(name: str) -> Column[Point]:
        def cell(point: Point) -> str:
            seconds = point.latencies.get(name)
            return "-" if seconds is None else latency.show(seconds, None, latencies)

        return number("latency", f"{name} ({latency.name})", cell)

    knob = frontier.knob_name + (f" ({frontier.knob_unit})" if frontier.knob_unit else "")
    return [
        Column(knob, lambda p: knob_label(p.knob), "knob"),
        # A time that is shown is a deadline that its point keeps.
        number("time", f"time ({time.name})",
               lambda p: time.show(time.rounded_up(p.time, times), p.time_uncertainty, times)),
        number("energy", f"energy ({energy.name})",
               lambda p: energy.show(p.energy, p.energy_uncertainty, energies)),
        number("power", "power (W)", lambda p: f"{p.average_power:.1f}"),
        number("time-change", "Δ time", lambda p: compared(p, base)[0]),
        number("energy-change", "Δ energy", lambda p: compared(p, base)[1]),
        *map(percentile, dict.fromkeys(name for point in frontier for name in point.latencies)),
        Column("", lambda p: "*" if p in best else "", "best"),
    ]  # fmt: skip


def _scale(unit_of: Callable[[float], Unit], values: Sequence[float]) -> tuple[Unit, int]:
    """Return unit and decimals for all of the values."""
    unit = unit_of(max(values, default=0.0))
    return unit, unit.decimals(values)


def by_time(points: Iterable[Point]) -> list[Point]:
    """Return points in the order of a table: by rising time, then energy."""
    return sorted(points, key=lambda point: (point.time, point.energy))


def rows(frontier: Frontier, reference: Point | None = None) -> list[tuple[str, ...]]:
    """Return the headings, then the cells of each point by rising time; see `columns_of`."""
    columns = columns_of(frontier, reference)
    return [
        tuple(column.title for column in columns),
        *(tuple(str(column.cell(point)) for column in columns) for point in by_time(frontier)),
    ]


def text_table(frontier: Frontier) -> str:
    """Return the headline and the rows as aligned text."""
    table = rows(frontier)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([headline(frontier), *lines])


def rich_table(frontier: Frontier) -> Any:
    """Return a table for `rich`, which must be installed."""
    from rich.table import Table  # noqa: PLC0415  (an optional library, and slow to import)

    head, *body = rows(frontier)
    table = Table(title=headline(frontier), title_justify="left")
    for heading in head:
        table.add_column(heading, justify="right")
    for row in body:
        table.add_row(*row)
    return table

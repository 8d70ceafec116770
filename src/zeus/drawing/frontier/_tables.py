"""Frontiers as text: labels, comparisons, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.drawing._units import energy_unit, time_unit
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


def rows(frontier: Frontier, reference: Point | None = None) -> list[tuple[str, ...]]:
    """Return a heading, and each point by rising time; * marks the frontier.

    Args:
        frontier: Frontier to show.
        reference: Point to compare with; by default the fastest.
    """
    reference = reference or frontier.fastest
    best = set(frontier.pareto().points)
    time = time_unit(max(point.time for point in frontier))
    energy = energy_unit(max(point.energy for point in frontier))
    time_decimals = time.decimals(point.time for point in frontier)
    energy_decimals = energy.decimals(point.energy for point in frontier)
    percentiles = list(dict.fromkeys(name for point in frontier for name in point.latencies))
    latencies = [seconds for point in frontier for seconds in point.latencies.values()]
    latency = time_unit(max(latencies, default=0.0))
    latency_decimals = latency.decimals(latencies)
    name = frontier.knob_name + (f" ({frontier.knob_unit})" if frontier.knob_unit else "")
    table: list[tuple[str, ...]] = [
        (
            name,
            f"time ({time.name})",
            f"energy ({energy.name})",
            "power (W)",
            "Δ time",
            "Δ energy",
            *(f"{percentile} ({latency.name})" for percentile in percentiles),
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
                *(
                    latency.show(point.latencies[percentile], None, latency_decimals)
                    if percentile in point.latencies
                    else "-"
                    for percentile in percentiles
                ),
                "*" if point in best else "",
            )
        )
    return table


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

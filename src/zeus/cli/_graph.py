"""Graphs of values over time, in blocks or in ASCII."""

from __future__ import annotations

from collections.abc import Sequence

from zeus.cli._terminal import Console

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_LINE = " _.-=+*#"  # for a graph of one line
_ASCII = " .:#"


def sparkline(console: Console, values: Sequence[float | None], highest: float) -> str:
    """Return a graph of one line; an unknown value is a gap, and zero is not.

    Args:
        console: Where it will be shown.
        values: One value per column.
        highest: Value of a full block.
    """
    levels = _BLOCKS if console.unicode else _ASCII_LINE
    return "".join(_cell(levels, value, highest, 1, 0) for value in values)


def graph(
    console: Console, values: Sequence[float | None], highest: float, lines: int
) -> list[str]:
    """Return a graph of several lines, from top to bottom.

    Args:
        console: Where it will be shown.
        values: One value per column.
        highest: Value at the upper edge.
        lines: Number of lines.
    """
    levels = _BLOCKS if console.unicode else _ASCII
    return [
        "".join(_cell(levels, value, highest, lines, line) for value in values)
        for line in reversed(range(lines))
    ]


def _cell(levels: str, value: float | None, highest: float, lines: int, line: int) -> str:
    if value is None:
        return levels[0]
    top = len(levels) - 1
    filled = value / highest * lines - line if highest > 0 else 0.0
    level = min(max(round(filled * top), 0), top)
    return levels[max(level, 1) if line == 0 else level]

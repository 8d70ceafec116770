"""Captions above a plot: title, summary lines, and legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from zeus.drawing._shapes import Kind, Mark, Path, Shape, Text
from zeus.drawing._text import BOLD, Measure, estimated_width, fitted

_TITLE, _SMALLEST_TITLE = 17.0, 12.5  # font sizes
_LINE, _LEGEND = 12.5, 12.0
_STROKE = 20.0  # length of a sample of a line

Sample = Kind | Path
"""Item of a legend: a kind of mark, or a line in this style, whatever its position."""


def heading(
    left: float, room: float, title: str, *lines: str, measure: Measure = estimated_width
) -> Iterator[Shape]:
    """Yield a title and lines below it; a title too long is set smaller, then cut."""
    size = _TITLE * room / (measure(title, _TITLE) * BOLD or 1)
    size = min(_TITLE, max(_SMALLEST_TITLE, size))
    yield Text(left, 32, fitted(title, size, room / BOLD, measure), size, "ink", bold=True)
    for number, line in enumerate(lines):
        y = 53 + 19 * number
        yield Text(left, y, fitted(line, _LINE, room, measure), _LINE, "muted")


def legend(
    left: float,
    y: float,
    entries: Iterable[tuple[Sample, str]],
    measure: Measure = estimated_width,
) -> Iterator[Shape]:
    """Yield a legend in one row.

    Args:
        left: Left edge, in pixels.
        y: Baseline of its texts, in pixels.
        entries: Samples, and the meaning of each.
        measure: Returns the width of a text.
    """
    for sample, meaning in entries:
        reach, indent = 5.0, 15.0
        if isinstance(sample, Path):
            reach, indent = _STROKE / 2, _STROKE + 6
        elif sample == "chosen":
            reach, indent = 9.0, 24.0  # it has a ring
        yield swatch(sample, left + reach, y - 4.5)
        yield Text(left + indent, y, meaning, _LEGEND, "muted")
        left += indent + measure(meaning, _LEGEND) + 14


def swatch(sample: Sample, x: float, y: float, radius: float = 4.0) -> Shape:
    """Return a single sample, centered at a position."""
    if isinstance(sample, Path):
        return replace(sample, corners=((x - _STROKE / 2, y), (x + _STROKE / 2, y)))
    return Mark(x, y, radius, sample)

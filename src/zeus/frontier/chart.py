"""A frontier as a picture: one self-contained SVG document, drawn without any library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from zeus.frontier.point import Point
from zeus.frontier.show import Unit, compared_in_words, energy_unit, knob_label, time_unit

if TYPE_CHECKING:
    from zeus.frontier.frontier import Frontier

_WIDTH, _HEIGHT = 760, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 28, 88, 62
_INK, _MUTED, _GRID, _AXIS = "#1c2733", "#66717f", "#edf0f4", "#c3cad4"
_LINE, _OTHER, _CHOSEN = "#2464c9", "#a3adba", "#d9480f"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
_LETTER = 0.55  # mean width of a character, in font sizes
_LABEL = 12.0  # font size of labels
_MOST_LABELS = 150  # of more points on the frontier only the ends are labelled
_FEW = 12  # beaten points are labelled only if they are no more than this
_RING = 4.5  # from the chosen mark to the ring around it


@dataclass(frozen=True)
class _Box:
    """A rectangle that something takes up."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    def overlaps(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: _Box) -> bool:
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


_PLOT = _Box(_LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM)


@dataclass(frozen=True)
class _Axis:
    """From seconds or joules to a place along one side of the plot."""

    unit: Unit
    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], unit: Unit, start: float, end: float) -> _Axis:
        low, high = min(values) / unit.size, max(values) / unit.size
        # Equal values are put into the middle of a range of their own size.
        margin = 0.09 * (high - low) if high > low * (1 + 1e-9) else 0.5 * high or 1.0
        return cls(unit, max(low - margin, 0.0), high + margin, start, end)

    def place(self, value: float) -> float:
        share = (value / self.unit.size - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Places of round values, with their labels."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * size for size in (1, 2, 2.5, 5, 10) if power * size >= rough)
        places = (d for d in range(18) if math.isclose(step, round(step, d), rel_tol=1e-6))
        decimals = next(places, 18)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        values = [number * step for number in range(first, last + 1)]
        return [(self.place(v * self.unit.size), f"{v:.{decimals}f}") for v in values]


def draw(frontier: Frontier, chosen: Point | None, title: str) -> str:
    """The plot of a frontier.

    Args:
        frontier: What to draw.
        chosen: A point to highlight; it need not be one of the frontier's.
        title: Instead of the name of the work.
    """
    return _Chart(frontier, chosen, title).document()


class _Chart:
    def __init__(self, frontier: Frontier, chosen: Point | None, title: str) -> None:
        self.frontier = frontier
        self.chosen = chosen
        self.title = title or frontier.work or "Time and energy"
        self.best = frontier.pareto().points
        kept = set(self.best)
        self.others = tuple(point for point in frontier if point not in kept)
        drawn = [*frontier, *([] if chosen is None else [chosen])]
        times, energies = [p.time for p in drawn], [p.energy for p in drawn]
        self.x = _Axis.over(times, time_unit(max(times)), _PLOT.left, _PLOT.right)
        self.y = _Axis.over(energies, energy_unit(max(energies)), _PLOT.bottom, _PLOT.top)
        self.radius = 4.5 if len(frontier) <= 40 else 2.5

    def at(self, point: Point) -> tuple[float, float]:
        return self.x.place(point.time), self.y.place(point.energy)

    def document(self) -> str:
        name = f"{self.title}: energy over time by {self.frontier.knob_name}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{_safe(name)}" '
            f'font-family="{_FONT}">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            f'<clipPath id="plot"><rect x="{_PLOT.left}" y="{_PLOT.top}" '
            f'width="{_PLOT.right - _PLOT.left}" height="{_PLOT.bottom - _PLOT.top}"/></clipPath>',
            *self.heading(),
            *self.axes(),
            *self.uncertainties(),
            *self.line(),
            *self.marks(),
            *self.labels(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    # --- around the plot --------------------------------------------------------------------

    def heading(self) -> Iterator[str]:
        yield _text(_LEFT, 32, _shortened(self.title, 80), 17, _INK, weight=600)
        yield _text(_LEFT, 53, self.subtitle(), 12.5, _MUTED)
        x = float(_LEFT)
        entries = [(f"on the frontier ({len(self.best)})", "best")]
        if self.others:
            entries.append((f"beaten ({len(self.others)})", "other"))
        if self.chosen is not None:
            entries.append(("chosen", "chosen"))
        for label, kind in entries:
            reach, indent = (9.0, 24.0) if kind == "chosen" else (5.0, 15.0)
            yield _mark(x + reach, 70.5, 4.0, kind)
            yield _text(x + indent, 75, label, 12, _MUTED)
            x += indent + _width(label, 12) + 14

    def subtitle(self) -> str:
        frontier, fastest = self.frontier, self.frontier.fastest
        if self.chosen is None:
            return f"Energy over time, by {frontier.knob_name}"
        label = knob_label(self.chosen.knob, frontier.knob_unit)
        if self.chosen == fastest:
            return f"Chosen: {label}, the fastest"
        reference = knob_label(fastest.knob, frontier.knob_unit)
        return f"Chosen: {label}, {compared_in_words(self.chosen, fastest)} than {reference}"

    def axes(self) -> Iterator[str]:
        bottom, left = _PLOT.bottom, _PLOT.left
        for x, label in self.x.ticks(8):
            yield _line(x, _PLOT.top, x, bottom, _GRID)
            yield _text(x, bottom + 19, label, 11.5, _MUTED, anchor="middle")
        for y, label in self.y.ticks(6):
            yield _line(left, y, _PLOT.right, y, _GRID)
            yield _text(left - 9, y + 4, label, 11.5, _MUTED, anchor="end")
        yield _line(left, bottom, _PLOT.right, bottom, _AXIS)
        yield _line(left, _PLOT.top, left, bottom, _AXIS)
        middle = (_PLOT.top + bottom) / 2
        yield _text(
            (left + _PLOT.right) / 2,
            bottom + 44,
            f"time ({self.x.unit.name})",
            12.5,
            _INK,
            anchor="middle",
        )
        yield (
            f'<text transform="translate(22 {middle:.1f}) rotate(-90)" text-anchor="middle" '
            f'font-size="12.5" fill="{_INK}">energy ({self.y.unit.name})</text>'
        )

    # --- in the plot ------------------------------------------------------------------------

    def uncertainties(self) -> Iterator[str]:
        yield f'<g stroke="{_AXIS}" stroke-width="1.2" clip-path="url(#plot)">'
        for point in self.frontier:
            x, y = self.at(point)
            if point.time_uncertainty:
                off = point.time_uncertainty
                ends = self.x.place(point.time - off), self.x.place(point.time + off)
                yield f'<path d="M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}"/>'
            if point.energy_uncertainty:
                off = point.energy_uncertainty
                ends = self.y.place(point.energy - off), self.y.place(point.energy + off)
                yield f'<path d="M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}"/>'
        yield "</g>"

    def line(self) -> Iterator[str]:
        if len(self.best) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.at, self.best))
            yield (
                f'<polyline points="{path}" fill="none" stroke="{_LINE}" stroke-width="2" '
                'stroke-linejoin="round" stroke-linecap="round"/>'
            )

    def marks(self) -> Iterator[str]:
        for kind, points in (("other", self.others), ("best", self.best)):
            for point in points:
                if point != self.chosen:
                    yield _mark(*self.at(point), self.radius, kind, self.tooltip(point))
        if self.chosen is not None:
            x, y = self.at(self.chosen)
            yield _mark(x, y, self.radius + 1, "chosen", self.tooltip(self.chosen))

    def tooltip(self, point: Point) -> str:
        time = f"{self.x.unit.show(point.time, point.time_uncertainty)} {self.x.unit.name}"
        energy = f"{self.y.unit.show(point.energy, point.energy_uncertainty)} {self.y.unit.name}"
        knob = knob_label(point.knob, self.frontier.knob_unit, longest=200)
        return f"{knob}: {time}, {energy}, {point.average_power:.4g} W"

    def labels(self) -> Iterator[str]:
        """Each knob beside its point, where there is room; the chosen one first."""
        places = {point: self.at(point) for point in (*self.frontier, *self.best)}
        queue = [*self.best] if len(self.best) <= _MOST_LABELS else [self.best[0], self.best[-1]]
        queue += self.others if len(self.others) <= _FEW else ()
        if self.chosen is not None:
            places[self.chosen] = self.at(self.chosen)
            queue = [self.chosen, *(point for point in queue if point != self.chosen)]
        taken = [self.mark_box(point, *place) for point, place in places.items()]
        taken += self.line_boxes()
        for point in dict.fromkeys(queue):
            label = knob_label(point.knob, self.frontier.knob_unit)
            chosen = point == self.chosen
            weight = 600 if chosen else 400
            colour = _CHOSEN if chosen else _MUTED if point in self.others else _INK
            width = _width(label, _LABEL) * (1.1 if chosen else 1.0)
            for box, anchor in _spots(self.mark_box(point, *places[point]), width):
                if box.within(_PLOT) and not any(box.overlaps(other) for other in taken):
                    taken.append(box)
                    x = {"start": box.left, "end": box.right}.get(anchor, box.middle)
                    yield _text(
                        x, box.bottom - 3, label, _LABEL, colour, anchor=anchor, weight=weight
                    )
                    break

    def mark_box(self, point: Point, x: float, y: float) -> _Box:
        reach = self.radius + 2 + (_RING if point == self.chosen else 0)
        return _Box(x - reach, y - reach, x + reach, y + reach)

    def line_boxes(self) -> list[_Box]:
        """The frontier's line as small boxes, so that no label is written across it."""
        boxes = []
        corners = [self.at(point) for point in self.best]
        for (x0, y0), (x1, y1) in pairwise(corners):
            steps = max(1, math.ceil(math.hypot(x1 - x0, y1 - y0) / 4))
            for step in range(steps + 1):
                x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
                boxes.append(_Box(x - 2, y - 2, x + 2, y + 2))
        return boxes


def _spots(mark: _Box, width: float) -> Iterator[tuple[_Box, str]]:
    """Where a label may be put, best first: off the line, which falls to the right."""
    height = _LABEL + 3
    middle = (mark.top + mark.bottom) / 2
    right, left = mark.right + 1, mark.left - 1
    above, beside, below = mark.top - height + 3, middle - height / 2, mark.bottom - 3
    for top in (above, beside):
        yield _Box(right, top, right + width, top + height), "start"
    start = mark.middle - width / 2
    yield _Box(start, above - 4, start + width, above - 4 + height), "middle"
    for top in (below, beside):
        yield _Box(left - width, top, left, top + height), "end"
    yield _Box(start, below + 4, start + width, below + 4 + height), "middle"
    yield _Box(left - width, above, left, above + height), "end"
    yield _Box(right, below, right + width, below + height), "start"


def _width(text: str, size: float) -> float:
    return len(text) * size * _LETTER


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _safe(text: str) -> str:
    """Text as XML allows it: markup escaped, characters that XML has no place for left out."""
    from html import escape  # noqa: PLC0415

    kept = (
        c for c in text if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff"
    )
    return escape("".join(kept))


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str,
    *,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    bold = "" if weight == 400 else f' font-weight="{weight}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{placed}{bold}>'
        f"{_safe(text)}</text>"
    )


def _line(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}"/>'


def _mark(x: float, y: float, radius: float, kind: str, tooltip: str = "") -> str:
    look = {
        "best": f'fill="{_LINE}" stroke="#ffffff" stroke-width="1.5"',
        "other": f'fill="#ffffff" stroke="{_OTHER}" stroke-width="1.6"',
        "chosen": f'fill="{_CHOSEN}" stroke="#ffffff" stroke-width="1.5"',
    }[kind]
    title = f"<title>{_safe(tooltip)}</title>" if tooltip else ""
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {look}>{title}</circle>'
    if kind != "chosen":
        return circle
    ring = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius + _RING:g}" fill="none" stroke="{_CHOSEN}"'
    )
    return f'{ring} stroke-width="1.6" opacity="0.55"/>{circle}'

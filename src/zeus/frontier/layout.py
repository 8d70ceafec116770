"""What a plot of a frontier shows, and where: axes, marks, and labels where there is room."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from zeus.frontier.axes import Axis, axes
from zeus.frontier.point import Point
from zeus.frontier.shapes import (
    RING,
    SHEET,
    Anchor,
    Box,
    Frame,
    Kind,
    Mark,
    Path,
    Picture,
    Shape,
    Text,
)
from zeus.frontier.show import compared_in_words, energy_unit, knob_label, time_unit

if TYPE_CHECKING:
    from zeus.frontier.frontier import Frontier

_LABEL, _REASON = 12.0, 11.0  # font sizes: of a knob, of what chose it
# Widths of characters in font sizes, as in a wide font.
_NARROW, _WIDE = frozenset("fijlrtI .,:;'|!()[]/-"), frozenset("mwMW@%…")
_WIDTHS = (0.38, 0.64, 0.95)
_LONGEST_REASON = 30  # characters in a line
_MOST_LABELS = 150  # of more points on the frontier only the ends are labelled
_CROWD = 40  # more points than this are drawn as plain dots
_FEW = 12  # beaten points are labelled only if they are no more than this
_REACH = 6.0  # beaten points further off than this many times the frontier's extent are left out
_BOLD = 1.13  # how much wider bold letters are

Measure = Callable[[str, float], float]
"""Width of a text in a font size."""

_Line = tuple[str, float, bool]  # text, size, whether bold


def estimated_width(text: str, size: float) -> float:
    """The width of a text in a font that is not known here."""
    narrow, normal, wide = _WIDTHS
    widths = (narrow if c in _NARROW else wide if c in _WIDE else normal for c in text)
    return size * sum(widths)


# --- putting them in place ----------------------------------------------------------------------


def lay_out(
    frontier: Frontier,
    choices: Mapping[str, Point],
    title: str,
    *,
    reference: Point | None = None,
    frame: Frame = SHEET,
    measure: Measure = estimated_width,
) -> Picture:
    """Place everything.

    Args:
        frontier: What to draw.
        choices: Points to highlight, by what chose them; they need not be the frontier's.
        title: Instead of the name of the work.
        reference: What a choice is compared with; the fastest point if not given.
        frame: How large.
        measure: Width of a text, as exactly as it is known.
    """
    layout = _Layout(frontier, choices, title, reference, frame=frame, measure=measure)
    return layout.picture()


class _Layout:
    def __init__(
        self,
        frontier: Frontier,
        choices: Mapping[str, Point],
        title: str,
        reference: Point | None,
        *,
        frame: Frame,
        measure: Measure,
    ) -> None:
        self.frontier = frontier
        self.frame = frame
        self.measure = measure
        self.title = title or frontier.work or "Time and energy"
        self.reference = reference or frontier.fastest
        self.chosen: dict[Point, list[str]] = {}
        for reason, point in choices.items():
            self.chosen.setdefault(point, []).append(reason)
        self.best = frontier.pareto().points
        kept = set(self.best)
        beaten = [point for point in frontier if point not in kept]
        keep = {self.reference, *self.chosen}
        self.others = tuple(p for p in beaten if p in keep or _near(p, self.best))
        self.outside = len(beaten) - len(self.others)
        drawn = [*self.best, *self.others, *self.chosen]
        times, energies = [p.time for p in drawn], [p.energy for p in drawn]
        plot = frame.plot
        self.x = Axis.over(times, time_unit(max(times)), plot.left, plot.right)
        self.y = Axis.over(energies, energy_unit(max(energies)), plot.bottom, plot.top)
        self.drawn = tuple(dict.fromkeys(drawn))
        # Edges of many marks would wipe out the line and each other.
        self.crowded = len(frontier) > _CROWD
        self.radius = 2.0 if self.crowded else 4.5

    def at(self, point: Point) -> tuple[float, float]:
        return self.x.place(point.time), self.y.place(point.energy)

    def picture(self) -> Picture:
        return Picture(
            f"{self.title}: energy over time by {self.frontier.knob_name}",
            self.frame,
            (
                *(self.heading() if self.frame.heading else ()),
                *self.axes(),
                *self.uncertainties(),
                *self.line(),
                *self.marks(),
                *self.labels(),
            ),
            self.outside,
        )

    # --- around the plot --------------------------------------------------------------------

    def heading(self) -> Iterator[Shape]:
        left = self.frame.left
        room = self.frame.width - left - self.frame.right
        # A long title is set smaller before it is cut.
        size = min(17.0, max(12.5, 17 * room / (self.measure(self.title, 17) * _BOLD or 1)))
        yield Text(left, 32, self.fitting(self.title, size, room / _BOLD), size, "ink", bold=True)
        yield Text(left, 53, self.fitting(self.subtitle(), 12.5, room), 12.5, "muted")
        x = left
        entries: list[tuple[str, Kind]] = [(f"on the frontier ({len(self.best)})", "best")]
        if self.others or self.outside:
            entries.append((beaten_text(len(self.others), self.outside), "other"))
        if self.chosen:
            entries.append(("chosen", "chosen"))
        for label, kind in entries:
            reach, indent = (9.0, 24.0) if kind == "chosen" else (5.0, 15.0)
            yield Mark(x + reach, 70.5, 4.0, kind)
            yield Text(x + indent, 75, label, _LABEL, "muted")
            x += indent + self.measure(label, _LABEL) + 14

    def subtitle(self) -> str:
        frontier, reference = self.frontier, self.reference
        if len(self.chosen) != 1:
            return f"Energy over time, by {frontier.knob_name}"
        (chosen,) = self.chosen
        label = knob_label(chosen.knob, frontier.knob_unit)
        if chosen == reference:
            fastest = reference == frontier.fastest
            return f"Chosen: {label}" + (", the fastest" if fastest else "")
        than = knob_label(reference.knob, frontier.knob_unit)
        return f"Chosen: {label}, {compared_in_words(chosen, reference)} than {than}"

    def fitting(self, text: str, size: float, room: float) -> str:
        if self.measure(text, size) <= room:
            return text
        kept = len(text) - 1
        while kept > 0 and self.measure(text[:kept] + "…", size) > room:
            kept -= 1
        return text[:kept] + "…"

    def axes(self) -> Iterator[Shape]:
        time, energy = f"time ({self.x.unit.name})", f"energy ({self.y.unit.name})"
        return axes(self.frame, self.x, self.y, time, energy)

    # --- in the plot ------------------------------------------------------------------------

    def uncertainties(self) -> Iterator[Shape]:
        for point in self.drawn:
            x, y = self.at(point)
            if off := point.time_uncertainty:
                ends = self.x.place(point.time - off), self.x.place(point.time + off)
                yield Path(((ends[0], y), (ends[1], y)), "other", 1.2)
            if off := point.energy_uncertainty:
                ends = self.y.place(point.energy - off), self.y.place(point.energy + off)
                yield Path(((x, ends[0]), (x, ends[1])), "other", 1.2)

    def line(self) -> Iterator[Shape]:
        if len(self.best) > 1:
            yield Path(tuple(map(self.at, self.best)), "line", 2.0)

    def marks(self) -> Iterator[Shape]:
        kinds: tuple[tuple[Kind, Sequence[Point]], ...] = (
            ("other", self.others),
            ("best", self.best),
        )
        for kind, points in kinds:
            for point in points:
                if self.frame.interactive or point not in self.chosen:
                    x, y = self.at(point)
                    said = self.tooltip(point)
                    yield Mark(x, y, self.radius, kind, said, point, self.crowded)
        for point in self.chosen:
            if self.frame.interactive and (point in self.best or point in self.others):
                continue
            x, y = self.at(point)
            radius = max(self.radius, 3.5) + 1
            yield Mark(x, y, radius, "chosen", self.tooltip(point), point)

    def tooltip(self, point: Point) -> str:
        time = f"{self.x.unit.show(point.time, point.time_uncertainty)} {self.x.unit.name}"
        energy = f"{self.y.unit.show(point.energy, point.energy_uncertainty)} {self.y.unit.name}"
        knob = knob_label(point.knob, self.frontier.knob_unit, longest=200)
        return f"{knob}: {time}, {energy}, {point.average_power:.4g} W"

    def labels(self) -> Iterator[Shape]:
        """Each knob beside its point, where there is room; the chosen ones first."""
        places = {point: self.at(point) for point in self.drawn}
        queue = [*self.best] if len(self.best) <= _MOST_LABELS else [self.best[0], self.best[-1]]
        queue += self.others if len(self.others) <= _FEW else ()
        taken = [self.mark_box(point, *place) for point, place in places.items()]
        taken += self.line_boxes()
        for point in dict.fromkeys((*self.chosen, *queue)):
            mark = self.mark_box(point, *places[point])
            lines = self.lines_of(point)
            width, height = self.extent(lines)
            spots = list(_spots(mark, width, height))
            if point in self.chosen:
                spots += _far_spots(mark, width, height)
                # Where there is no room for what chose it, there may be some for the knob.
                spots += _spots(mark, *self.extent(lines[:1]))
            for spot in spots:
                if spot.box.within(self.frame.plot) and not any(map(spot.box.overlaps, taken)):
                    taken.append(spot.box)
                    yield from self.label(point, lines, spot)
                    break

    def label(self, point: Point, lines: Sequence[_Line], spot: _Spot) -> Iterator[Shape]:
        box = spot.box
        colour = "muted" if point in self.others else "ink"
        if point in self.chosen and not self.frame.interactive:
            colour = "chosen"
        if spot.leader is not None:
            yield Path(spot.leader, colour, 0.8)
        x = {"start": box.left, "end": box.right}.get(spot.anchor, box.middle)
        y = box.top
        for text, size, bold in lines:
            y += size + 3
            if y > box.bottom + 0.5:
                break
            yield Text(x, y - 3, text, size, colour, spot.anchor, bold, point=point)

    def extent(self, lines: Sequence[_Line]) -> tuple[float, float]:
        """Width and height of a label; on a page, any may become bold."""
        widths = (
            self.measure(text, size) * (_BOLD if bold or self.frame.interactive else 1)
            for text, size, bold in lines
        )
        return max(widths), sum(size + 3 for _, size, _ in lines)

    def lines_of(self, point: Point) -> list[_Line]:
        """A label's lines: the knob, then what chose it."""
        reasons = [reason for reason in self.chosen.get(point, ()) if reason]
        label = knob_label(point.knob, self.frontier.knob_unit)
        lines = [(label, _LABEL, point in self.chosen and not self.frame.interactive)]
        row = ""
        for reason in reasons:
            if row and len(row) + 2 + len(reason) > _LONGEST_REASON:
                lines.append((row + ",", _REASON, False))
                row = ""
            row += f", {reason}" if row else reason
        return [*lines, (row, _REASON, False)] if row else lines

    def mark_box(self, point: Point, x: float, y: float) -> Box:
        ring = point in self.chosen or (self.frame.interactive and not self.crowded)
        reach = max(self.radius, 3.5 if ring else 0) + 2 + (RING if ring else 0)
        return Box(x - reach, y - reach, x + reach, y + reach)

    def line_boxes(self) -> list[Box]:
        """The frontier's line as small boxes, so that no label is written across it."""
        boxes = []
        corners = [self.at(point) for point in self.best]
        for (x0, y0), (x1, y1) in pairwise(corners):
            steps = max(1, math.ceil(math.hypot(x1 - x0, y1 - y0) / 4))
            for step in range(steps + 1):
                x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
                boxes.append(Box(x - 2, y - 2, x + 2, y + 2))
        return boxes


@dataclass(frozen=True)
class _Spot:
    """Where a label may be put, and the line that leads there from a mark further off."""

    box: Box
    anchor: Anchor
    leader: tuple[tuple[float, float], tuple[float, float]] | None = None


def _spots(mark: Box, width: float, height: float) -> Iterator[_Spot]:
    """Around a mark, best first: off the line, which falls to the right."""
    middle = (mark.top + mark.bottom) / 2
    right, left = mark.right + 1, mark.left - 1
    above, beside, below = mark.top - height + 3, middle - height / 2, mark.bottom - 3
    for top in (above, beside):
        yield _Spot(Box(right, top, right + width, top + height), "start")
    start = mark.middle - width / 2
    yield _Spot(Box(start, above - 4, start + width, above - 4 + height), "middle")
    for top in (below, beside):
        yield _Spot(Box(left - width, top, left, top + height), "end")
    yield _Spot(Box(start, below + 4, start + width, below + 4 + height), "middle")
    yield _Spot(Box(left - width, above, left, above + height), "end")
    yield _Spot(Box(right, below, right + width, below + height), "start")


def _far_spots(mark: Box, width: float, height: float) -> Iterator[_Spot]:
    """Further off, to the right first, where the line leaves most room."""
    x, y = mark.middle, (mark.top + mark.bottom) / 2
    reach = mark.right - x - 2
    for distance in (34.0, 52.0, 72.0, 96.0, 124.0):
        for degrees in (-35, -60, -10, 15, -85, 40, 75, 180, 150, -150, 115, -115):
            across, down = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            end = x + distance * across, y + distance * down
            leader = (x + reach * across, y + reach * down), end
            anchor: Anchor = "start" if across > -0.3 else "end"
            left = end[0] + 3 if anchor == "start" else end[0] - 3 - width
            top = end[1] - height / 2
            yield _Spot(Box(left, top, left + width, top + height), anchor, leader)


def _near(point: Point, best: Sequence[Point]) -> bool:
    """Whether a beaten point may be drawn without squeezing the frontier into a corner."""
    first, last = best[0], best[-1]
    return len(best) == 1 or (
        point.time - first.time <= _REACH * (last.time - first.time)
        and point.energy - last.energy <= _REACH * (first.energy - last.energy)
    )


def beaten_text(drawn: int, outside: int) -> str:
    """How many points are beaten, and how many of them lie too far off to be drawn."""
    return f"beaten ({drawn + outside}{f', {outside} of them off the plot' if outside else ''})"

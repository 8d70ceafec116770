"""Layout of a frontier's plot: axes, marks, and labels where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from zeus.drawing._axes import Axis, axes
from zeus.drawing._captions import Sample, heading, legend
from zeus.drawing._labels import Spot, along, far_spots, first_free, near_spots
from zeus.drawing._looks import RING
from zeus.drawing._shapes import Box, Frame, Kind, Mark, Path, Picture, Shape, Text
from zeus.drawing._text import BOLD, Measure, estimated_width
from zeus.drawing._units import energy_unit, time_unit
from zeus.drawing.frontier._tables import compared_in_words, knob_label
from zeus.frontier import Frontier, Point, Selection

SHEET = Frame(760, 480, 76, 28, 88, 62, (8, 6))

_LABEL, _REASON = 12.0, 11.0  # font sizes: of a knob, of the objective
_LONGEST_REASON = 30  # characters in a line
_MAX_LABELS = 150  # of more points on the frontier only the ends are labeled
_CROWD = 40  # more points than this are drawn as plain dots
_FEW = 12  # dominated points are labeled only up to this many
_REACH = 6.0  # dominated points beyond this many times the frontier's extent are omitted

_Line = tuple[str, float, bool]  # text, size, whether bold


@dataclass(frozen=True)
class Plot(Picture):
    """A frontier's picture.

    Attributes:
        outside: Number of dominated points too far off to be in it.
    """

    outside: int = 0


def lay_out(
    frontier: Frontier,
    choices: Mapping[str, Point],
    title: str,
    *,
    reference: Point | None = None,
    frame: Frame = SHEET,
    measure: Measure = estimated_width,
    headed: bool = False,
    interactive: bool = False,
) -> Plot:
    """Return the plot of a frontier.

    Args:
        frontier: Frontier to draw.
        choices: Points to highlight, by objective; they need not be the frontier's.
        title: Replaces the name of the work.
        reference: Point to compare a choice with; by default the fastest.
        frame: Size and margins.
        measure: Returns the width of a text.
        headed: Whether to draw a title and a legend on top.
        interactive: Whether any mark may become the chosen one later. Then choices are named, but
            drawn as any other point, and every mark has room for the ring of a chosen one.
    """
    title = title or frontier.work or "Time and energy"
    reference = reference or frontier.fastest
    return _Layout(frontier, choices, title, reference, frame, measure, interactive).plot(headed)


@dataclass
class _Layout:
    """The arguments of `lay_out`, and what follows from them."""

    frontier: Frontier
    choices: Mapping[str, Point]
    title: str
    reference: Point
    frame: Frame
    measure: Measure
    interactive: bool

    def __post_init__(self) -> None:
        frontier, plot = self.frontier, self.frame.plot
        self.chosen: dict[Point, list[str]] = {}
        for reason, point in self.choices.items():
            self.chosen.setdefault(point, []).append(reason)
        self.best = frontier.pareto().points
        kept = set(self.best)
        beaten = [point for point in frontier if point not in kept]
        keep = {self.reference, *self.chosen}
        self.others = tuple(p for p in beaten if p in keep or _near(p, self.best))
        self.outside = len(beaten) - len(self.others)
        drawn = [*self.best, *self.others, *self.chosen]
        times, energies = [p.time for p in drawn], [p.energy for p in drawn]
        self.x = Axis.over(times, time_unit(max(times)), plot.left, plot.right)
        self.y = Axis.over(energies, energy_unit(max(energies)), plot.bottom, plot.top)
        self.drawn = tuple(dict.fromkeys(drawn))
        # Edges of many marks would cover the line and each other.
        self.crowded = len(frontier) > _CROWD
        self.radius = 2.0 if self.crowded else 4.5

    def at(self, point: Point) -> tuple[float, float]:
        return self.x.place(point.time), self.y.place(point.energy)

    def plot(self, headed: bool) -> Plot:
        return Plot(
            f"{self.title}: energy over time by {self.frontier.knob_name}",
            self.frame.width,
            self.frame.height,
            (
                *(self.heading() if headed else ()),
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
        left, measure = self.frame.left, self.measure
        room = self.frame.width - left - self.frame.right
        yield from heading(left, room, self.title, self.subtitle(), measure=measure)
        entries: list[tuple[Sample, str]] = [("best", f"on the frontier ({len(self.best)})")]
        if self.others or self.outside:
            entries.append(("other", beaten_text(len(self.others), self.outside)))
        if self.chosen:
            entries.append(("chosen", "chosen"))
        yield from legend(left, 75, entries, measure)

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
                if self.interactive or point not in self.chosen:
                    x, y = self.at(point)
                    said = self.tooltip(point)
                    yield Mark(x, y, self.radius, kind, said, point, self.crowded)
        for point in self.chosen:
            if self.interactive and (point in self.best or point in self.others):
                continue
            x, y = self.at(point)
            radius = max(self.radius, 3.5) + 1
            yield Mark(x, y, radius, "chosen", self.tooltip(point), point)

    def tooltip(self, point: Point) -> str:
        time = self.x.unit.text(point.time, point.time_uncertainty)
        energy = self.y.unit.text(point.energy, point.energy_uncertainty)
        knob = knob_label(point.knob, self.frontier.knob_unit, longest=200)
        return f"{knob}: {time}, {energy}, {point.average_power:.4g} W"

    def labels(self) -> Iterator[Shape]:
        """Yield each knob beside its point, where there is room; the chosen ones first."""
        places = {point: self.at(point) for point in self.drawn}
        queue = [*self.best] if len(self.best) <= _MAX_LABELS else [self.best[0], self.best[-1]]
        queue += self.others if len(self.others) <= _FEW else ()
        taken = [self.mark_box(point, *place) for point, place in places.items()]
        taken += along(map(self.at, self.best))
        for point in dict.fromkeys((*self.chosen, *queue)):
            mark = self.mark_box(point, *places[point])
            lines = self.lines_of(point)
            size = self.extent(lines)
            spots = list(near_spots(mark, *size))
            if point in self.chosen:
                spots += far_spots(mark, *size)
                # Where there is no room for the objective, there may be some for the knob.
                spots += near_spots(mark, *self.extent(lines[:1]))
            spot = first_free(spots, self.frame.plot, taken)
            if spot is not None:
                taken.append(spot.box)
                yield from self.label(point, lines, spot)

    def label(self, point: Point, lines: Sequence[_Line], spot: Spot) -> Iterator[Shape]:
        color = "muted" if point in self.others else "ink"
        if point in self.chosen and not self.interactive:
            color = "chosen"
        if spot.leader is not None:
            yield Path(spot.leader, color, 0.8)
        y = spot.box.top
        for text, size, bold in lines:
            y += size + 3
            if y > spot.box.bottom + 0.5:
                break
            yield Text(spot.x, y - 3, text, size, color, spot.anchor, bold, about=point)

    def extent(self, lines: Sequence[_Line]) -> tuple[float, float]:
        """Return width and height of a label; on a page, any may become bold."""
        widths = (
            self.measure(text, size) * (BOLD if bold or self.interactive else 1)
            for text, size, bold in lines
        )
        return max(widths), sum(size + 3 for _, size, _ in lines)

    def lines_of(self, point: Point) -> list[_Line]:
        """Return a label's lines: the knob, then the objectives that chose it."""
        reasons = [reason for reason in self.chosen.get(point, ()) if reason]
        label = knob_label(point.knob, self.frontier.knob_unit)
        lines = [(label, _LABEL, point in self.chosen and not self.interactive)]
        row = ""
        for reason in reasons:
            if row and len(row) + 2 + len(reason) > _LONGEST_REASON:
                lines.append((row + ",", _REASON, False))
                row = ""
            row += f", {reason}" if row else reason
        return [*lines, (row, _REASON, False)] if row else lines

    def mark_box(self, point: Point, x: float, y: float) -> Box:
        ring = point in self.chosen or (self.interactive and not self.crowded)
        reach = max(self.radius, 3.5 if ring else 0) + 2 + (RING if ring else 0)
        return Box.around(x, y, reach)


def _near(point: Point, best: Sequence[Point]) -> bool:
    """Whether a dominated point can be drawn without squeezing the frontier into a corner."""
    first, last = best[0], best[-1]
    return len(best) == 1 or (
        point.time - first.time <= _REACH * (last.time - first.time)
        and point.energy - last.energy <= _REACH * (first.energy - last.energy)
    )


def reasons(selections: Mapping[str, Selection]) -> dict[str, Point]:
    """Return the chosen points by the label that is drawn beside each."""
    return {
        name if selection.feasible else f"{name} (not kept)".lstrip(): selection.point
        for name, selection in selections.items()
    }


def beaten_text(drawn: int, outside: int) -> str:
    """Return a text with the number of dominated points, and of those not drawn."""
    return f"dominated ({drawn + outside}{f', {outside} of them off the plot' if outside else ''})"

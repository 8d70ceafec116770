"""Pictures of the board: energy against latency, and against the win rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zeus.arena._rows import BENCH, IMPORT, ROUNDS, BoardRow
from zeus.arena.pages._units import energy_text
from zeus.drawing._axes import Axis, LogAxis, axes
from zeus.drawing._labels import along, far_spots, first_free, near_spots
from zeus.drawing._shapes import Box, Frame, Kind, Mark, Path, Picture, Shape, Text
from zeus.drawing._text import estimated_width
from zeus.drawing._units import Unit
from zeus.server.pages._units import percent, seconds

KINDS: dict[str, Kind] = {ROUNDS: "best", BENCH: "reference", IMPORT: "other"}
_MAX_LABELS = 14
_FONT = 11.0
_MILLISECONDS = Unit("ms", 1e-3)
_JOULES = Unit("J", 1.0)
_PERCENT = Unit("%", 0.01)


@dataclass(frozen=True)
class Point:
    """A mark of a picture.

    Attributes:
        row: Row of the board.
        x: Horizontal value, SI units.
        y: Vertical value, SI units.
        spread: Ends of the interval of `x`, if known.
    """

    row: BoardRow
    x: float
    y: float
    spread: tuple[float, float] | None = None


def latency_points(rows: Sequence[BoardRow]) -> list[Point]:
    """Return rows whose time and energy per token are known."""
    return [
        Point(row, row.tpot, row.energy_per_token.value)
        for row in rows
        if row.tpot and row.energy_per_token is not None and row.energy_per_token.value > 0
    ]


def win_points(rows: Sequence[BoardRow]) -> list[Point]:
    """Return rows whose win rate and energy per response are known."""
    return [
        Point(
            row,
            row.win_rate.value,
            row.energy_per_response.value,
            (row.win_rate.low, row.win_rate.high),
        )
        for row in rows
        if row.win_rate is not None
        and row.energy_per_response is not None
        and row.energy_per_response.value > 0
    ]


def latency_chart(points: Sequence[Point]) -> Callable[[Frame], Picture]:
    """Return the chart of energy per token against time per token; both logarithmic."""

    def draw(frame: Frame) -> Picture:
        plot = frame.plot
        x = LogAxis.over([each.x for each in points], _MILLISECONDS, plot.left, plot.right)
        y = LogAxis.over([each.y for each in points], _JOULES, plot.bottom, plot.top)
        titles = "Time per token (ms)", "Energy per token (J)"
        shapes = [*axes(frame, x, y, *titles), *_marks(frame, points, x, y)]
        name = "Energy per token against time per token, by model"
        return Picture(name, frame.width, frame.height, tuple(shapes))

    return draw


def win_chart(points: Sequence[Point]) -> Callable[[Frame], Picture]:
    """Return the chart of energy per response against the win rate."""

    def draw(frame: Frame) -> Picture:
        plot = frame.plot
        x = Axis(_PERCENT, 0.0, 100.0, plot.left, plot.right)
        y = LogAxis.over([each.y for each in points], _JOULES, plot.bottom, plot.top)
        titles = "Win rate (%)", "Energy per response (J)"
        shapes: list[Shape] = [*axes(frame, x, y, *titles)]
        for each in points:
            if each.spread is not None:
                ends = tuple((x.place(end), y.place(each.y)) for end in each.spread)
                shapes.append(Path(ends, "axis", 1.6))
        shapes += _marks(frame, points, x, y)
        name = "Energy per response against the win rate, by model"
        return Picture(name, frame.width, frame.height, tuple(shapes))

    return draw


def _marks(frame: Frame, points: Sequence[Point], x: Axis | LogAxis, y: LogAxis) -> list[Shape]:
    """Return a mark for each point; labels for those that matter, where there is room."""
    order = sorted(points, key=lambda each: list(KINDS).index(each.row.source), reverse=True)
    places = [(each, x.place(each.x), y.place(each.y)) for each in order]
    shapes: list[Shape] = [
        Mark(
            across,
            up,
            4.0 if each.row.source == IMPORT else 5.5,
            KINDS[each.row.source],
            _tip(each),
        )
        for each, across, up in places
    ]
    taken = [Box.around(across, up, 5.0) for _, across, up in places]
    for each, _, up in places:
        if each.spread is not None:
            taken += along((x.place(end), up) for end in each.spread)
    labeled: set[str] = set()
    for each, across, up in reversed(places):
        name = each.row.model if len(each.row.model) <= 26 else f"{each.row.model[:25]}…"
        if name in labeled or len(labeled) >= _MAX_LABELS:
            continue
        mark = Box.around(across, up, 7.0)
        width = estimated_width(name, _FONT)
        spots = (*near_spots(mark, width, 14.0), *far_spots(mark, width, 14.0))
        spot = first_free(spots, frame.plot, taken)
        if spot is None:
            continue
        labeled.add(name)
        taken.append(spot.box)
        if spot.leader is not None:
            shapes.append(Path(spot.leader, "axis"))
        shapes.append(Text(spot.x, spot.box.bottom - 3.5, name, _FONT, "ink", spot.anchor))
    return shapes


def _tip(point: Point) -> str:
    row = point.row
    facts = [row.model]
    facts += [each for each in (row.gpu, row.setting) if each]
    if row.energy_per_token is not None:
        facts.append(f"{energy_text(row.energy_per_token.value)} per token")
    if row.tpot is not None:
        facts.append(f"{seconds(row.tpot)} per token")
    if row.win_rate is not None:
        facts.append(f"wins {percent(row.win_rate.value)}")
    return ", ".join(facts) + (" (simulated)" if row.simulated else "")

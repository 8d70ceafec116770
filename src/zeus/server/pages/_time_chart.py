"""A chart of values over minutes, hours or days, with values on hover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeus.drawing._axes import Axis, axes
from zeus.drawing._shapes import Frame, Path, Picture, Shape, Spot
from zeus.drawing._units import Unit
from zeus.server.pages._units import moment

CHANGE = Path((), "chosen", 1.2, dashed=True)
LIMIT = Path((), "other", 1.4, dashed=True)
_LEAST_RANGE = 0.02  # of the values: less is not worth to be seen
_SPANS = ((2 * 86400.0, Unit("days", 86400.0)), (2 * 3600.0, Unit("hours", 3600.0)))
_SHORT_SPAN = Unit("minutes", 60.0)
_SHORTEST = 3.0  # pixels of a line


@dataclass(frozen=True)
class Series:
    """A line of values over time.

    Attributes:
        points: Instants (s since 1970), values and tooltips; no tooltip if empty.
        style: Color and width of the line.
    """

    points: Sequence[tuple[float, float, str]]
    style: Path


@dataclass(frozen=True)
class TimeChart:
    """Values over time.

    Attributes:
        name: Description in one line, for screen readers.
        title: Title of the vertical axis, without its unit.
        series: The lines, from back to front.
        unit: Unit of the values.
        first: Instant of the left end, in seconds since 1970.
        span: Seconds to the right end.
        changes: Instants with a vertical line.
        limits: Values with a horizontal line.
        zero: Whether the vertical axis begins at zero.
    """

    name: str
    title: str
    series: Sequence[Series]
    unit: Unit
    first: float
    span: float
    changes: Sequence[float] = ()
    limits: Sequence[float] = ()
    zero: bool = False

    def __call__(self, frame: Frame) -> Picture:
        """Draw it in a frame."""
        plot = frame.plot
        passed = next((unit for least, unit in _SPANS if self.span >= least), _SHORT_SPAN)
        x = Axis(passed, 0.0, self.span / passed.size, plot.left, plot.right)
        y = self._values(plot.bottom, plot.top)
        unit = f" ({self.unit.name})" if self.unit.name else ""
        since = f"{passed.name} since {moment(self.first)}"
        shapes: list[Shape] = [*axes(frame, x, y, since, f"{self.title}{unit}")]
        for at in self.changes:
            place = x.place(at - self.first)
            shapes.append(replace(CHANGE, corners=((place, plot.top), (place, plot.bottom))))
        for value in self.limits:
            at = y.place(value)
            shapes.append(replace(LIMIT, corners=((plot.left, at), (plot.right, at))))
        spots: list[Shape] = []
        for each in self.series:
            corners = [(x.place(at - self.first), y.place(value)) for at, value, _ in each.points]
            if corners and corners[-1][0] - corners[0][0] < _SHORTEST:
                middle, level = (corners[0][0] + corners[-1][0]) / 2, corners[-1][1]
                half = _SHORTEST / 2
                corners = [(middle - half, level), *corners[1:-1], (middle + half, level)]
            shapes.append(replace(each.style, corners=tuple(corners)))
            spots += [
                Spot(x.place(at - self.first), y.place(value), said)
                for at, value, said in each.points
                if said
            ]
        return Picture(self.name, frame.width, frame.height, (*shapes, *spots))

    def _values(self, bottom: float, top: float) -> Axis:
        values = [value for each in self.series for _, value, _ in each.points]
        values += self.limits
        low = min(values, default=0.0) / self.unit.size
        high = max(values, default=1.0) / self.unit.size
        margin = max(0.1 * (high - low), _LEAST_RANGE * high) or 1.0
        if self.zero:
            return Axis(self.unit, 0.0, 1.1 * high or 1.0, bottom, top)
        return Axis(self.unit, max(low - margin, 0.0), high + margin, bottom, top)

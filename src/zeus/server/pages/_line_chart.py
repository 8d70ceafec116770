"""A chart of several lines over whole numbers, such as epochs, with values on hover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeus.drawing._axes import Axis, axes
from zeus.drawing._shapes import Frame, Path, Picture, Shape, Spot, Text
from zeus.drawing._units import Unit

PLAIN = Unit("", 1.0)


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        points: Position, value and tooltip of each point, in their order; no tooltip if empty.
        style: Its color and width.
    """

    points: Sequence[tuple[float, float, str]]
    style: Path


@dataclass(frozen=True)
class LineChart:
    """A chart of lines.

    Attributes:
        name: Description in one line, for screen readers.
        lines: The lines, from back to front.
        x_title: Title of the horizontal axis.
        y_title: Title of the vertical axis, with its unit.
        unit: Unit of the values.
        zero: Whether the vertical axis begins at zero.
        mark: A value with a dashed line across the chart, and its name; `None` for none.
    """

    name: str
    lines: Sequence[Line]
    x_title: str
    y_title: str
    unit: Unit = PLAIN
    zero: bool = False
    mark: tuple[float, str] | None = None

    def __call__(self, frame: Frame) -> Picture:
        """Draw it in a frame."""
        plot = frame.plot
        values = [value for line in self.lines for _, value, _ in line.points]
        values += [] if self.mark is None else [self.mark[0]]
        last = max((x for line in self.lines for x, _, _ in line.points), default=1.0)
        size = self.unit.size
        low, high = min(values, default=0.0) / size, max(values, default=1.0) / size
        low = min(low, 0.0) if self.zero else low
        margin = 0.08 * (high - low) or 0.5 * abs(high) or 1.0
        low = low if self.zero else low - margin
        x = Axis(PLAIN, 0.0, max(last, 2.0) * 1.02, plot.left, plot.right, whole=True)
        y = Axis(self.unit, low, high + margin, plot.bottom, plot.top)
        shapes: list[Shape] = [*axes(frame, x, y, self.x_title, self.y_title)]
        if self.mark is not None:
            at = y.place(self.mark[0])
            shapes.append(Path(((plot.left, at), (plot.right, at)), "axis", 1.4, dashed=True))
            shapes.append(Text(plot.right - 2, at - 6, self.mark[1], 11.0, "muted", "end"))
        spots: list[Shape] = []
        for line in self.lines:
            corners = tuple((x.place(at), y.place(value)) for at, value, _ in line.points)
            if len(corners) == 1:
                (here,) = corners
                corners = ((here[0] - 3, here[1]), (here[0] + 3, here[1]))
                shapes.append(replace(line.style, corners=corners, width=line.style.width + 2))
            elif corners:
                shapes.append(replace(line.style, corners=corners))
            spots += [
                Spot(x.place(at), y.place(value), said) for at, value, said in line.points if said
            ]
        return Picture(self.name, frame.width, frame.height, (*shapes, *spots))

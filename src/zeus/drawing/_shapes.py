"""Elements of pictures: texts, lines, bars and marks, with positions and colors by role.

All renderers (SVG, PNG, a page) draw the shapes of one `Picture`, so that their results match.
Lengths are pixels; x goes to the right and y downwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["best", "other", "chosen", "reference", "stopped", "failed", "running"]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Text:
    """A line of text; `y` is its baseline. Rotated text runs upwards."""

    x: float
    y: float
    text: str
    size: float
    color: str
    anchor: Anchor = "start"
    bold: bool = False
    rotated: bool = False
    about: object = None  # the object it belongs to, for pages


@dataclass(frozen=True)
class Path:
    """Straight lines through points; `corners` in pixels."""

    corners: tuple[tuple[float, float], ...]
    color: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    """A filled rectangle; without an edge if `edge` is empty."""

    left: float
    top: float
    right: float
    bottom: float
    fill: str
    edge: str = ""
    tooltip: str = ""


@dataclass(frozen=True)
class Mark:
    """A data point, or an entry of a legend. A plain one has no edge."""

    x: float
    y: float
    radius: float
    kind: Kind
    tooltip: str = ""
    about: object = None  # the object it shows, for pages
    plain: bool = False


@dataclass(frozen=True)
class Spot:
    """An invisible place, such as a corner of a line, whose tooltip is shown on hover."""

    x: float
    y: float
    tooltip: str
    radius: float = 7.0


Shape = Text | Path | Bar | Mark | Spot


@dataclass(frozen=True)
class Box:
    """A bounding box."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, x: float, y: float, reach: float) -> Box:
        """Return the square that reaches as far in all directions."""
        return cls(x - reach, y - reach, x + reach, y + reach)

    @property
    def middle(self) -> float:
        """Horizontal center."""
        return (self.left + self.right) / 2

    @property
    def center(self) -> float:
        """Vertical center."""
        return (self.top + self.bottom) / 2

    def overlaps(self, other: Box) -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether the other box contains it."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True)
class Frame:
    """The size of a picture, and the margins around its plot.

    Attributes:
        width: Width of the picture.
        height: Height of the picture.
        left: Margin for the labels of the y axis.
        right: Margin on the right of the plot.
        top: Margin above it.
        bottom: Margin for the labels of the x axis.
        ticks: Maximum number of intervals on the x and y axis.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    ticks: tuple[int, int]

    @property
    def plot(self) -> Box:
        """Area of the marks."""
        return Box(self.left, self.top, self.width - self.right, self.height - self.bottom)


@dataclass(frozen=True)
class Picture:
    """A drawing, independent of its renderer.

    Attributes:
        name: Description in one line, for screen readers.
        width: Width in pixels.
        height: Height in pixels.
        shapes: Shapes from back to front.
    """

    name: str
    width: float
    height: float
    shapes: tuple[Shape, ...]

"""What plots are made of: texts, lines and marks, in places and in colours named by their role.

Whatever draws (SVG, PNG, a page) walks over the shapes of one `Picture`, so that all of them look
alike. Each way of drawing has its own table of colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from zeus.frontier.point import Point

Kind = Literal["best", "other", "chosen", "stopped", "failed", "running"]
Form = Literal["circle", "diamond", "cross", "arrow"]
Anchor = Literal["start", "middle", "end"]

#: Roles on white paper. Blue and orange are told apart with any kind of colour vision.
COLOURS: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1c2733",
    "muted": "#5f6a78",
    "grid": "#edf0f4",
    "axis": "#c3cad4",
    "line": "#2464c9",
    "other": "#7d8896",
    "chosen": "#c2410c",
}

#: Fill, edge and width of the edge of each kind of mark; then the fill of a plain one.
LOOKS: Mapping[Kind, tuple[str, str, float, str]] = {
    "best": ("line", "paper", 1.5, "line"),
    "other": ("paper", "other", 1.6, "other"),
    "chosen": ("chosen", "paper", 1.5, "chosen"),
    "stopped": ("paper", "chosen", 1.8, "chosen"),
    "failed": ("ink", "ink", 2.0, "ink"),
    "running": ("line", "paper", 1.5, "line"),
}
#: What is no circle. Kinds are told apart without any colour, too.
FORMS: Mapping[Kind, Form] = {"stopped": "diamond", "failed": "cross", "running": "arrow"}
RING, RING_WIDTH, RING_OPACITY = 4.5, 1.6, 0.55  # around a chosen mark


@dataclass(frozen=True)
class Text:
    """A line of text; `y` is its base line. A rotated one runs upwards."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Anchor = "start"
    bold: bool = False
    rotated: bool = False
    point: Point | None = None


@dataclass(frozen=True)
class Path:
    """Straight lines through points."""

    corners: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Mark:
    """Where a point is; without a point, an entry of the legend. A plain one has no edge."""

    x: float
    y: float
    radius: float
    kind: Kind
    tooltip: str = ""
    point: Point | None = None
    plain: bool = False


Shape = Text | Path | Mark


@dataclass(frozen=True)
class Box:
    """A rectangle that something takes up."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """Half way between left and right."""
        return (self.left + self.right) / 2

    def overlaps(self, other: Box) -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether all of it lies in the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True)
class Frame:
    """The size of a picture, the room around its plot, and what goes into it.

    Attributes:
        width: Of the picture, in pixels.
        height: Of the picture.
        left: Room for the labels of energy.
        right: Room beside the plot.
        top: Room above it.
        bottom: Room for the labels of time.
        ticks: At most how many intervals there are on each axis.
        heading: Whether a title and a legend stand on top.
        interactive: Whether any mark may become the chosen one later. Then choices are named, but
            drawn as any other point, and every mark has room for the ring of a chosen one.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    ticks: tuple[int, int]
    heading: bool = False
    interactive: bool = False

    @property
    def plot(self) -> Box:
        """Where the marks are."""
        return Box(self.left, self.top, self.width - self.right, self.height - self.bottom)


SHEET = Frame(760, 480, 76, 28, 88, 62, (8, 6), heading=True)


@dataclass(frozen=True)
class Picture:
    """Everything there is to draw.

    Attributes:
        name: What it shows, in one line for those who cannot see it.
        frame: Its size.
        shapes: From back to front.
        outside: How many beaten points are too far off to be in it.
    """

    name: str
    frame: Frame
    shapes: tuple[Shape, ...]
    outside: int = 0

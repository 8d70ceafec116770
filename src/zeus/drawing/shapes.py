"""What pictures are made of: texts, lines, bars and marks, in places and in colours by their role.

Whatever draws (SVG, PNG, a page) walks over the shapes of one `Picture`, so that all of them look
alike. Lengths are pixels; x goes to the right and y downwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["best", "other", "chosen", "reference", "stopped", "failed", "running"]
Anchor = Literal["start", "middle", "end"]


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
    about: object = None  # whatever it belongs to, for who makes a page of it


@dataclass(frozen=True)
class Path:
    """Straight lines through points."""

    corners: tuple[tuple[float, float], ...]
    colour: str
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
    """Where something is, or an entry of a legend. A plain one has no edge."""

    x: float
    y: float
    radius: float
    kind: Kind
    tooltip: str = ""
    about: object = None  # whatever is there, for who makes a page of it
    plain: bool = False


Shape = Text | Path | Bar | Mark


@dataclass(frozen=True)
class Box:
    """A rectangle that something takes up."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, x: float, y: float, reach: float) -> Box:
        """What reaches as far in all directions."""
        return cls(x - reach, y - reach, x + reach, y + reach)

    @property
    def middle(self) -> float:
        """Half way between left and right."""
        return (self.left + self.right) / 2

    @property
    def centre(self) -> float:
        """Half way between top and bottom."""
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
        """Whether all of it lies in the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True)
class Frame:
    """The size of a picture, and the room around a plot in it.

    Attributes:
        width: Of the picture.
        height: Of the picture.
        left: Room for the labels of the side that goes up.
        right: Room beside the plot.
        top: Room above it.
        bottom: Room for the labels of the side that goes to the right.
        ticks: At most how many intervals there are on each side.
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
        """Where the marks are."""
        return Box(self.left, self.top, self.width - self.right, self.height - self.bottom)


@dataclass(frozen=True)
class Picture:
    """Everything there is to draw.

    Attributes:
        name: What it shows, in one line for those who cannot see it.
        width: Of the whole.
        height: Of the whole.
        shapes: From back to front.
    """

    name: str
    width: float
    height: float
    shapes: tuple[Shape, ...]

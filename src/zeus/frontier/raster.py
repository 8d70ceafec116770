"""A frontier as a PNG image, drawn by matplotlib from the same shapes as the SVG."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from zeus.errors import MissingExtraError
from zeus.frontier.chart import printable
from zeus.frontier.shapes import (
    COLOURS,
    FORMS,
    LOOKS,
    RING,
    RING_OPACITY,
    RING_WIDTH,
    Form,
    Mark,
    Path,
    Picture,
    Shape,
    Text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DENSITY = 200  # dots per inch
_PIXELS = 100.0  # of the layout, per inch
_POINT = 72.0 / _PIXELS  # typographic points per pixel of the layout
_FONT = "DejaVu Sans"  # comes with matplotlib
_MARKERS: dict[Form, str] = {"circle": "o", "diamond": "D", "cross": "x", "arrow": ">"}


def text_width() -> Callable[[str, float], float]:
    """A function for the width of a text, in the font that will be used.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("a plot as PNG", "plot") from None

    label = Figure(dpi=_DENSITY).text(0, 0, "", fontfamily=_FONT, parse_math=False)

    def width(text: str, size: float) -> float:
        label.set_text(printable(text))
        label.set_fontsize(size * _POINT)
        with _missing_glyphs_are_no_news():
            dots = label.get_window_extent().width
        return float(dots) * _PIXELS / _DENSITY

    return width


def png(picture: Picture) -> bytes:
    """The picture as an image, twice as many dots each way as the SVG has pixels.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("a plot as PNG", "plot") from None

    width, height = picture.frame.width, picture.frame.height
    figure = Figure(
        figsize=(width / _PIXELS, height / _PIXELS), dpi=_DENSITY, facecolor=COLOURS["paper"]
    )
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    # What looks alike and follows each other is drawn at once: there may be thousands of marks.
    for depth, (_, shapes) in enumerate(groupby(picture.shapes, _look)):
        _draw(axes, list(shapes), depth)
    file = io.BytesIO()
    with _missing_glyphs_are_no_news():
        figure.savefig(
            file, format="png", metadata={"Title": printable(picture.name), "Software": "Zeus"}
        )
    return file.getvalue()


def _look(shape: Shape) -> object:
    if isinstance(shape, Mark):
        return shape.kind, shape.radius, shape.plain
    return shape


def _draw(axes: Axes, shapes: Sequence[Shape], depth: int) -> None:
    shape = shapes[0]
    if isinstance(shape, Text):
        axes.text(
            shape.x,
            shape.y,
            printable(shape.text),
            fontsize=shape.size * _POINT,
            fontfamily=_FONT,
            fontweight="bold" if shape.bold else "normal",
            color=COLOURS[shape.colour],
            ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
            va="baseline",
            rotation=90 if shape.rotated else 0,
            rotation_mode="anchor",
            parse_math=False,  # a dollar sign is one
            zorder=depth,
        )
    elif isinstance(shape, Path):
        axes.plot(
            [x for x, _ in shape.corners],
            [y for _, y in shape.corners],
            color=COLOURS[shape.colour],
            linewidth=shape.width * _POINT,
            linestyle="--" if shape.dashed else "-",
            solid_joinstyle="round",
            zorder=depth,
        )
    else:
        _draw_marks(axes, [mark for mark in shapes if isinstance(mark, Mark)], depth)


def _draw_marks(axes: Axes, marks: Sequence[Mark], depth: int) -> None:
    first = marks[0]
    fill, edge, width, plain = LOOKS[first.kind]
    places = [mark.x for mark in marks], [mark.y for mark in marks]
    if first.kind == "chosen":
        axes.plot(
            *places,
            "o",
            markersize=2 * (first.radius + RING) * _POINT,
            markerfacecolor="none",
            markeredgecolor=COLOURS["chosen"],
            markeredgewidth=RING_WIDTH * _POINT,
            alpha=RING_OPACITY,
            zorder=depth,
        )
    axes.plot(
        *places,
        _MARKERS[FORMS.get(first.kind, "circle")],
        markersize=2 * first.radius * _POINT,
        markerfacecolor=COLOURS[plain if first.plain else fill],
        markeredgecolor=COLOURS[edge],
        markeredgewidth=0 if first.plain else width * _POINT,
        zorder=depth,
    )


@contextlib.contextmanager
def _missing_glyphs_are_no_news() -> Iterator[None]:
    """Characters that the font lacks become boxes, without a word about each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield

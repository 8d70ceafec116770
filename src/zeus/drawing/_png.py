"""Pictures as PNG images, drawn by matplotlib from the same shapes as the SVG."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from zeus.drawing import _looks as looks
from zeus.drawing._colors import DAY, in_table
from zeus.drawing._shapes import Anchor, Bar, Mark, Path, Picture, Shape, Spot, Text
from zeus.drawing._text import IMAGE_FONT, Measure, printable
from zeus.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DENSITY = 200  # dots per inch
_PIXELS = 100.0  # of the picture, per inch
_POINT = 72.0 / _PIXELS  # typographic points per pixel of the picture
#: Matplotlib's names of anchors.
SIDES: dict[Anchor, Literal["left", "center", "right"]] = {
    "start": "left",
    "middle": "center",
    "end": "right",
}
_MARKERS: dict[looks.Form, str] = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "cross": "x",
    "arrow": ">",
}


def text_width() -> Measure:
    """Return a function for the width of a text, in the font that will be used.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    label = _figure().text(0, 0, "", fontfamily=IMAGE_FONT, parse_math=False)

    def width(text: str, size: float) -> float:
        label.set_text(printable(text))
        label.set_fontsize(size * _POINT)
        with _missing_glyphs_are_no_news():
            dots = label.get_window_extent().width
        return float(dots) * _PIXELS / _DENSITY

    return width


def png(picture: Picture) -> bytes:
    """Return the picture as a PNG image, at twice the SVG's resolution in each direction.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    figure = _figure(picture.width, picture.height)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    # Consecutive shapes of the same style are drawn in one call: there may be thousands.
    visible = (shape for shape in picture.shapes if not isinstance(shape, Spot))
    for depth, (_, shapes) in enumerate(groupby(visible, _look)):
        _draw(axes, list(shapes), depth)
    file = io.BytesIO()
    with _missing_glyphs_are_no_news():
        figure.savefig(
            file, format="png", metadata={"Title": printable(picture.name), "Software": "Zeus"}
        )
    return file.getvalue()


def _figure(width: float = _PIXELS, height: float = _PIXELS) -> Figure:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("a picture as PNG", "plot") from None

    size = width / _PIXELS, height / _PIXELS
    return Figure(figsize=size, dpi=_DENSITY, facecolor=DAY["paper"])


def _look(shape: Shape) -> object:
    if isinstance(shape, Mark):
        return shape.kind, shape.radius, shape.plain
    return Bar if isinstance(shape, Bar) else shape


def _draw(axes: Axes, shapes: Sequence[Shape], depth: int) -> None:
    shape = shapes[0]
    if isinstance(shape, Text):
        axes.text(
            shape.x,
            shape.y,
            printable(shape.text),
            fontsize=shape.size * _POINT,
            fontfamily=IMAGE_FONT,
            fontweight="bold" if shape.bold else "normal",
            color=in_table(shape.color, DAY),
            ha=SIDES[shape.anchor],
            va="baseline",
            rotation=90 if shape.rotated else 0,
            rotation_mode="anchor",
            parse_math=False,  # a dollar sign is literal
            zorder=depth,
        )
    elif isinstance(shape, Path):
        # Dashes are in units of the line width.
        dashes = (0, tuple(length / shape.width for length in looks.DASH))
        axes.plot(
            [x for x, _ in shape.corners],
            [y for _, y in shape.corners],
            color=in_table(shape.color, DAY),
            linewidth=shape.width * _POINT,
            linestyle=dashes if shape.dashed else "-",
            solid_joinstyle="round",
            zorder=depth,
        )
    elif isinstance(shape, Bar):
        _draw_bars(axes, [bar for bar in shapes if isinstance(bar, Bar)], depth)
    else:
        _draw_marks(axes, [mark for mark in shapes if isinstance(mark, Mark)], depth)


def _draw_bars(axes: Axes, bars: Sequence[Bar], depth: int) -> None:
    from matplotlib.collections import PolyCollection  # noqa: PLC0415

    corners = [
        ((b.left, b.top), (b.right, b.top), (b.right, b.bottom), (b.left, b.bottom)) for b in bars
    ]
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=[in_table(bar.fill, DAY) for bar in bars],
            edgecolors=[in_table(bar.edge, DAY) if bar.edge else "none" for bar in bars],
            linewidths=looks.BAR_EDGE * _POINT,
            zorder=depth,
        )
    )


def _draw_marks(axes: Axes, marks: Sequence[Mark], depth: int) -> None:
    first = marks[0]
    fill, edge, width, plain = looks.LOOKS[first.kind]
    places = [mark.x for mark in marks], [mark.y for mark in marks]
    if first.kind == "chosen":
        axes.plot(
            *places,
            "o",
            markersize=2 * (first.radius + looks.RING) * _POINT,
            markerfacecolor="none",
            markeredgecolor=DAY["chosen"],
            markeredgewidth=looks.RING_WIDTH * _POINT,
            alpha=looks.RING_OPACITY,
            zorder=depth,
        )
    axes.plot(
        *places,
        _MARKERS[looks.FORMS.get(first.kind, "circle")],
        markersize=2 * first.radius * _POINT,
        markerfacecolor=DAY[plain if first.plain else fill],
        markeredgecolor=DAY[edge],
        markeredgewidth=0 if first.plain else width * _POINT,
        zorder=depth,
    )


@contextlib.contextmanager
def _missing_glyphs_are_no_news() -> Iterator[None]:
    """Suppress warnings about characters that the font lacks, which become boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield

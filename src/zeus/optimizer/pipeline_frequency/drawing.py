"""Plain shapes, and two ways to put them on paper: SVG without any library, PNG by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from zeus.errors import MissingExtraError

Anchor = Literal["start", "middle", "end"]

INK, MUTED, GRID, AXIS, PAPER = "#1c2733", "#5f6a78", "#edf0f4", "#c3cad4", "#ffffff"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
_LETTER = 0.56  # mean width of a character, in font sizes


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; `edge` is left out if empty."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    edge: str = ""
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line through two or more places."""

    corners: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Disc:
    """A mark."""

    x: float
    y: float
    radius: float
    fill: str
    edge: str = PAPER
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, placed by its base line."""

    x: float
    y: float
    text: str
    size: float = 12.0
    colour: str = INK
    anchor: Anchor = "start"
    bold: bool = False
    upright: bool = False  # read from below


Shape = Box | Line | Disc | Text


@dataclass
class Drawing:
    """Shapes on white paper; later ones cover earlier ones. Sizes are pixels."""

    width: float
    height: float
    title: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Put shapes on top."""
        self.shapes.extend(shapes)

    def rendered(self, kind: str) -> bytes:
        """The content of a file.

        Args:
            kind: ".svg" or ".png".

        Raises:
            MissingExtraError: If matplotlib is needed and not installed.
        """
        return _png(self) if kind == ".png" else _svg(self).encode()


def text_width(text: str, size: float) -> float:
    """About how wide a text is."""
    return len(text) * size * _LETTER


def shade(share: float, colours: Sequence[str]) -> str:
    """A colour between several, at a share of the way from the first to the last."""
    place = min(max(share, 0.0), 1.0) * (len(colours) - 1)
    number = min(int(place), len(colours) - 2)
    first, second = (_parts(colour) for colour in colours[number : number + 2])
    mixed = (round(a + (b - a) * (place - number)) for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def readable_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    red, green, blue = _parts(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


# --- SVG ------------------------------------------------------------------------------------------


def _svg(drawing: Drawing) -> str:
    size = f"{drawing.width:g} {drawing.height:g}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
        f'width="{drawing.width:g}" height="{drawing.height:g}" role="img" '
        f'aria-label="{_safe(drawing.title)}" font-family="{_FONT}">',
        f"<title>{_safe(drawing.title)}</title>",
        f'<rect width="{drawing.width:g}" height="{drawing.height:g}" fill="{PAPER}"/>',
        *map(_element, drawing.shapes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _element(shape: Shape) -> str:
    if isinstance(shape, Box):
        edge = f' stroke="{shape.edge}" stroke-width="0.5"' if shape.edge else ""
        return _with_tooltip(
            "rect",
            f'x="{shape.x:.2f}" y="{shape.y:.1f}" width="{shape.width:.2f}" '
            f'height="{shape.height:.1f}" fill="{shape.fill}"{edge}',
            shape.tooltip,
        )
    if isinstance(shape, Line):
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.corners)
        dashes = ' stroke-dasharray="5 3"' if shape.dashed else ""
        return (
            f'<polyline points="{corners}" fill="none" stroke="{shape.colour}" '
            f'stroke-width="{shape.width:g}" stroke-linejoin="round"{dashes}/>'
        )
    if isinstance(shape, Disc):
        return _with_tooltip(
            "circle",
            f'cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}" fill="{shape.fill}" '
            f'stroke="{shape.edge}" stroke-width="1.5"',
            shape.tooltip,
        )
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    if shape.upright:
        place = f'transform="translate({shape.x:.1f} {shape.y:.1f}) rotate(-90)"'
    anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
    weight = ' font-weight="600"' if shape.bold else ""
    return (
        f'<text {place} font-size="{shape.size:g}" fill="{shape.colour}"{anchor}{weight}>'
        f"{_safe(shape.text)}</text>"
    )


def _with_tooltip(name: str, attributes: str, tooltip: str) -> str:
    if not tooltip:
        return f"<{name} {attributes}/>"
    return f"<{name} {attributes}><title>{_safe(tooltip)}</title></{name}>"


def _safe(text: str) -> str:
    """Text as XML allows it."""
    return escape(_printable(text))


def _printable(text: str) -> str:
    return "".join(
        c for c in text if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff"
    )


# --- PNG ------------------------------------------------------------------------------------------

_DENSITY, _PIXELS = 200, 100.0  # dots, and pixels of the drawing, per inch
_POINT = 72.0 / _PIXELS  # typographic points per pixel


def _png(drawing: Drawing) -> bytes:
    try:
        from matplotlib.collections import PatchCollection  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.patches import Circle, Rectangle  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("a picture as PNG", "plot") from None

    figure = Figure(
        figsize=(drawing.width / _PIXELS, drawing.height / _PIXELS), dpi=_DENSITY, facecolor=PAPER
    )
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    for depth, shape in enumerate(drawing.shapes):
        if isinstance(shape, Box):
            axes.add_patch(
                Rectangle(
                    (shape.x, shape.y),
                    shape.width,
                    shape.height,
                    facecolor=shape.fill,
                    edgecolor=shape.edge or "none",
                    linewidth=0.5 * _POINT,
                    zorder=depth,
                )
            )
        elif isinstance(shape, Line):
            axes.plot(
                [x for x, _ in shape.corners],
                [y for _, y in shape.corners],
                color=shape.colour,
                linewidth=shape.width * _POINT,
                linestyle=(0, (5, 3)) if shape.dashed else "solid",
                solid_joinstyle="round",
                zorder=depth,
            )
        elif isinstance(shape, Disc):
            circle = Circle((shape.x, shape.y), shape.radius)
            axes.add_collection(
                PatchCollection(
                    [circle],
                    facecolor=shape.fill,
                    edgecolor=shape.edge,
                    linewidth=1.5 * _POINT,
                    zorder=depth,
                )
            )
        else:
            axes.text(
                shape.x,
                shape.y,
                _printable(shape.text),
                fontsize=shape.size * _POINT,
                fontfamily="DejaVu Sans",
                fontweight="bold" if shape.bold else "normal",
                color=shape.colour,
                ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
                va="baseline",
                rotation=90 if shape.upright else 0,
                rotation_mode="anchor",
                parse_math=False,
                zorder=depth,
            )
    return _saved(figure.savefig, drawing.title)


def _saved(save: Callable[..., None], title: str) -> bytes:
    import warnings  # noqa: PLC0415

    file = io.BytesIO()
    with warnings.catch_warnings():
        # Characters that the font lacks become boxes, without a word about each.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        save(file, format="png", metadata={"Title": _printable(title), "Software": "Zeus"})
    return file.getvalue()

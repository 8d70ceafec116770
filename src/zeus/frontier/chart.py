"""A frontier as a picture: one self-contained SVG document, drawn without any library."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

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

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


def svg(picture: Picture) -> str:
    """The picture as a complete document."""
    width, height = picture.frame.width, picture.frame.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{safe(picture.name)}" '
        f'font-family="{FONT}">',
        f'<rect width="{width:g}" height="{height:g}" fill="{COLOURS["paper"]}"/>',
        *(element(shape, COLOURS) for shape in picture.shapes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def element(shape: Shape, colours: Mapping[str, str]) -> str:
    """One shape as SVG.

    Args:
        shape: The shape.
        colours: What stands for each role.
    """
    if isinstance(shape, Text):
        return text_element(shape, colours)
    if isinstance(shape, Path):
        return _path(shape, colours)
    return _mark(shape, colours)


def text_element(text: Text, colours: Mapping[str, str], attributes: str = "") -> str:
    """A text as SVG, with further attributes."""
    place = f'x="{text.x:.1f}" y="{text.y:.1f}"'
    if text.rotated:
        place = f'transform="translate({text.x:.1f} {text.y:.1f}) rotate(-90)"'
    anchor = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    weight = ' font-weight="600"' if text.bold else ""
    return (
        f'<text {place} font-size="{text.size:g}" fill="{colours[text.colour]}"{anchor}{weight}'
        f"{attributes}>{safe(text.text)}</text>"
    )


def _path(path: Path, colours: Mapping[str, str]) -> str:
    stroke = f'stroke="{colours[path.colour]}" stroke-width="{path.width:g}"'
    if path.dashed:
        stroke += ' stroke-dasharray="5 4"'
    if len(path.corners) == 2:
        (x0, y0), (x1, y1) = path.corners
        return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" {stroke}/>'
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in path.corners)
    return f'<polyline points="{corners}" fill="none" {stroke} stroke-linejoin="round"/>'


def _mark(mark: Mark, colours: Mapping[str, str]) -> str:
    fill, edge, width, plain = LOOKS[mark.kind]
    title = f"<title>{safe(mark.tooltip)}</title>" if mark.tooltip else ""
    form = FORMS.get(mark.kind, "circle")
    place = f'<circle cx="{mark.x:.1f}" cy="{mark.y:.1f}"'
    look = f'fill="{colours[fill]}" stroke="{colours[edge]}" stroke-width="{width:g}"'
    if mark.plain:
        look = f'fill="{colours[plain]}"'
    if form != "circle":
        return f'<path d="{_outline(form, mark)}" {look} stroke-linejoin="round">{title}</path>'
    circle = f'{place} r="{mark.radius:g}" {look}>{title}</circle>'
    if mark.kind != "chosen":
        return circle
    return (
        f'{place} r="{mark.radius + RING:g}" fill="none" stroke="{colours["chosen"]}" '
        f'stroke-width="{RING_WIDTH:g}" opacity="{RING_OPACITY:g}"/>{circle}'
    )


def _outline(form: Form, mark: Mark) -> str:
    """What is no circle, as large as one."""
    x, y, r = mark.x, mark.y, mark.radius
    if form == "cross":
        s = 0.8 * r
        return (
            f"M{x - s:.1f} {y - s:.1f}L{x + s:.1f} {y + s:.1f}"
            f"M{x - s:.1f} {y + s:.1f}L{x + s:.1f} {y - s:.1f}"
        )
    if form == "diamond":
        s = 1.15 * r
        return f"M{x - s:.1f} {y:.1f}L{x:.1f} {y - s:.1f}L{x + s:.1f} {y:.1f}L{x:.1f} {y + s:.1f}Z"
    return (
        f"M{x - 0.7 * r:.1f} {y - 1.1 * r:.1f}L{x + 1.2 * r:.1f} {y:.1f}"
        f"L{x - 0.7 * r:.1f} {y + 1.1 * r:.1f}Z"
    )


def safe(text: str) -> str:
    """Text as XML and HTML allow it: markup escaped, characters without a place left out."""
    return escape(printable(text))


def printable(text: str) -> str:
    """Text without control characters, halves of pairs and what is no character."""
    return "".join(
        c for c in text if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff"
    )

"""Pictures as SVG: one self-contained document, or elements for a page; without any library."""

from __future__ import annotations

from collections.abc import Mapping

from zeus.drawing import _looks as looks
from zeus.drawing._colors import DAY, in_table
from zeus.drawing._shapes import Bar, Mark, Path, Picture, Shape, Spot, Text
from zeus.drawing._text import FONT, safe


def svg(picture: Picture) -> str:
    """Return the picture as a complete document."""
    size = f'width="{picture.width:g}" height="{picture.height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box(picture)}" {size} role="img" '
        f'aria-label="{safe(picture.name)}" font-family="{FONT}">',
        f'<rect {size} fill="{DAY["paper"]}"/>',
        *(element(shape, DAY) for shape in picture.shapes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def view_box(picture: Picture) -> str:
    """Return the value of the `viewBox` attribute."""
    return f"0 0 {picture.width:g} {picture.height:g}"


def element(shape: Shape, colors: Mapping[str, str]) -> str:
    """Return one shape as SVG.

    Args:
        shape: The shape.
        colors: Color of each role.
    """
    if isinstance(shape, Text):
        return text_element(shape, colors)
    if isinstance(shape, Path):
        return _path(shape, colors)
    if isinstance(shape, Bar):
        return _bar(shape, colors)
    if isinstance(shape, Spot):
        place = f'cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}"'
        return f'<circle {place} fill="transparent">{_title(shape.tooltip)}</circle>'
    return _mark(shape, colors)


def text_element(text: Text, colors: Mapping[str, str], attributes: str = "") -> str:
    """Return a text as SVG, with further attributes."""
    place = f'x="{text.x:.1f}" y="{text.y:.1f}"'
    if text.rotated:
        place = f'transform="translate({text.x:.1f} {text.y:.1f}) rotate(-90)"'
    anchor = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    weight = ' font-weight="600"' if text.bold else ""
    return (
        f'<text {place} font-size="{text.size:g}" fill="{in_table(text.color, colors)}"'
        f"{anchor}{weight}{attributes}>{safe(text.text)}</text>"
    )


def _path(path: Path, colors: Mapping[str, str]) -> str:
    stroke = f'stroke="{in_table(path.color, colors)}" stroke-width="{path.width:g}"'
    if path.dashed:
        stroke += f' stroke-dasharray="{looks.DASH[0]:g} {looks.DASH[1]:g}"'
    if len(path.corners) == 2:
        (x0, y0), (x1, y1) = path.corners
        return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" {stroke}/>'
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in path.corners)
    return f'<polyline points="{corners}" fill="none" {stroke} stroke-linejoin="round"/>'


def _bar(bar: Bar, colors: Mapping[str, str]) -> str:
    edge = ""
    if bar.edge:
        edge = f' stroke="{in_table(bar.edge, colors)}" stroke-width="{looks.BAR_EDGE:g}"'
    return (
        f'<rect x="{bar.left:.2f}" y="{bar.top:.1f}" width="{bar.right - bar.left:.2f}" '
        f'height="{bar.bottom - bar.top:.1f}" fill="{in_table(bar.fill, colors)}"{edge}>'
        f"{_title(bar.tooltip)}</rect>"
    )


def _mark(mark: Mark, colors: Mapping[str, str]) -> str:
    fill, edge, width, plain = looks.LOOKS[mark.kind]
    title = _title(mark.tooltip)
    form = looks.FORMS.get(mark.kind, "circle")
    place = f'<circle cx="{mark.x:.1f}" cy="{mark.y:.1f}"'
    look = f'fill="{colors[fill]}" stroke="{colors[edge]}" stroke-width="{width:g}"'
    if mark.plain:
        look = f'fill="{colors[plain]}"'
    if form != "circle":
        return f'<path d="{_outline(form, mark)}" {look} stroke-linejoin="round">{title}</path>'
    circle = f'{place} r="{mark.radius:g}" {look}>{title}</circle>'
    if mark.kind != "chosen":
        return circle
    return (
        f'{place} r="{mark.radius + looks.RING:g}" fill="none" stroke="{colors["chosen"]}" '
        f'stroke-width="{looks.RING_WIDTH:g}" opacity="{looks.RING_OPACITY:g}"/>{circle}'
    )


#: Corners of marks that are not circles, in radii; one tuple per stroke, as the cross has two.
_OUTLINES: Mapping[looks.Form, tuple[tuple[tuple[float, float], ...], ...]] = {
    "square": (((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),),
    "diamond": (((-1.15, 0.0), (0.0, -1.15), (1.15, 0.0), (0.0, 1.15)),),
    "arrow": (((-0.7, -1.1), (1.2, 0.0), (-0.7, 1.1)),),
    "cross": (((-0.8, -0.8), (0.8, 0.8)), ((-0.8, 0.8), (0.8, -0.8))),
}


def _outline(form: looks.Form, mark: Mark) -> str:
    """Return the path of a mark that is not a circle, of the same size as one."""
    radius, parts = mark.radius, []
    for stroke in _OUTLINES[form]:
        places = (f"{mark.x + x * radius:.1f} {mark.y + y * radius:.1f}" for x, y in stroke)
        parts.append(f"M{'L'.join(places)}{'Z' if len(stroke) > 2 else ''}")
    return "".join(parts)


def _title(tooltip: str) -> str:
    return f"<title>{safe(tooltip)}</title>" if tooltip else ""

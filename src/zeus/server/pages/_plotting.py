"""Charts on pages, in colors that follow the light and dark theme.

A chart is a function from a `Frame` to a `Picture`. It is drawn twice, for wide windows and for
phones, and the style sheet shows the one that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zeus.drawing._captions import Sample, swatch
from zeus.drawing._colors import VARIABLES
from zeus.drawing._markup import Content, Markup, tag, trusted
from zeus.drawing._shapes import Frame, Picture
from zeus.drawing._svg import element, view_box

#: The whole width of a page, half of it, and a phone.
WIDE = Frame(860, 300, 74, 14, 14, 56, (12, 6))
HALF = Frame(520, 330, 70, 14, 14, 56, (6, 6))
NARROW = Frame(350, 290, 62, 10, 12, 54, (5, 6))
SMALL = Frame(350, 270, 58, 12, 12, 54, (5, 5))


def drawn(picture: Picture, kind: str = "") -> Markup:
    """Return a picture as an SVG element; its name is the label for screen readers.

    If it has tooltips, it can be focused, and the arrow keys go from one to the next.
    """
    shapes = (element(shape, VARIABLES) for shape in picture.shapes)
    hover = any(getattr(shape, "tooltip", "") for shape in picture.shapes)
    return tag(
        "svg",
        trusted("\n".join(shapes)),
        class_=kind or None,
        viewBox=view_box(picture),
        role="img",
        aria_label=picture.name,
        tabindex=0 if hover else None,
    )


def figure(
    chart: Callable[[Frame], Picture],
    wide: Frame,
    legend: Iterable[tuple[Sample, str]] = (),
    *below: Content,
) -> Markup:
    """Return a chart for wide windows and for phones, with its legend.

    Args:
        chart: Draws the chart in a frame.
        wide: Frame for wide windows.
        legend: Marks or lines with their explanations.
        below: Further content of the caption.
    """
    entries = [tag("li", sample(each), text) for each, text in legend]
    listed = tag("ul", *entries, class_="legend") if entries else None
    caption = tag("figcaption", listed, *below) if listed is not None or below else None
    return tag("figure", drawn(chart(wide), "wide"), drawn(chart(NARROW), "narrow"), caption)


def sample(of: Sample, radius: float = 5.0) -> Markup:
    """Return a single mark or line, for legends."""
    inner = trusted(element(swatch(of, 10.0, 10.0, radius), VARIABLES))
    return tag("svg", inner, viewBox="0 0 20 20", aria_hidden="true")

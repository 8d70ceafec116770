"""Texts in pictures and pages: escaping, estimated width, truncation."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

#: Font of pages and of SVG pictures.
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
#: Font of PNG images: it comes with matplotlib, so that all machines draw the same.
IMAGE_FONT = "DejaVu Sans"
#: Width of bold letters relative to normal ones.
BOLD = 1.13

Measure = Callable[[str, float], float]
"""Returns the width of a text in pixels, given the text and its font size."""

# Widths of characters in hundredths of the font size, as in a wide font. Whole numbers: sums of
# fractions are rounded one way by Python 3.11 and another way by later ones.
_NARROW, _WIDE = frozenset("fijlrtI .,:;'|!()[]/-"), frozenset("mwMW@%…")
_WIDTHS = (38, 64, 95)


def estimated_width(text: str, size: float) -> float:
    """Estimate the width of a text, in pixels, for an unknown font."""
    narrow, normal, wide = _WIDTHS
    widths = (narrow if c in _NARROW else wide if c in _WIDE else normal for c in text)
    return size * sum(widths) / 100


def fitted(text: str, size: float, room: float, measure: Measure = estimated_width) -> str:
    """Return a text, cut to the room in pixels."""
    if measure(text, size) <= room:
        return text
    kept = len(text) - 1
    while kept > 0 and measure(text[:kept] + "…", size) > room:
        kept -= 1
    return text[:kept] + "…"


def safe(text: str) -> str:
    """Return text for XML and HTML: markup escaped, forbidden characters removed."""
    return escape(printable(text))


def printable(text: str) -> str:
    """Return text without control characters, surrogates and noncharacters."""
    return "".join(
        c for c in text if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff"
    )

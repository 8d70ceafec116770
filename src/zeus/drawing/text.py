"""Texts in pictures and pages: what may stand in them, how wide they are, how to cut them."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

#: Of pages and of pictures that a browser draws.
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
#: Of images: it comes with matplotlib, so that all machines draw the same.
IMAGE_FONT = "DejaVu Sans"
#: How much wider bold letters are.
BOLD = 1.13

Measure = Callable[[str, float], float]
"""Width of a text in a font size."""

# Widths of characters in hundredths of the font size, as in a wide font. Whole numbers: sums of
# fractions are rounded one way by Python 3.11 and another way by later ones.
_NARROW, _WIDE = frozenset("fijlrtI .,:;'|!()[]/-"), frozenset("mwMW@%…")
_WIDTHS = (38, 64, 95)


def estimated_width(text: str, size: float) -> float:
    """The width of a text in a font that is not known here."""
    narrow, normal, wide = _WIDTHS
    widths = (narrow if c in _NARROW else wide if c in _WIDE else normal for c in text)
    return size * sum(widths) / 100


def fitted(text: str, size: float, room: float, measure: Measure = estimated_width) -> str:
    """As much of a text as there is room for."""
    if measure(text, size) <= room:
        return text
    kept = len(text) - 1
    while kept > 0 and measure(text[:kept] + "…", size) > room:
        kept -= 1
    return text[:kept] + "…"


def safe(text: str) -> str:
    """Text as XML and HTML allow it: markup escaped, characters without a place left out."""
    return escape(printable(text))


def printable(text: str) -> str:
    """Text without control characters, halves of pairs and what is no character."""
    return "".join(
        c for c in text if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff"
    )

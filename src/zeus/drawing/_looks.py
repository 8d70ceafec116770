"""Styles of marks, bars and lines, for all renderers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from zeus.drawing._shapes import Kind

Form = Literal["circle", "square", "diamond", "cross", "arrow"]

#: Fill, edge and width of the edge of each kind of mark; then the fill of a plain one.
LOOKS: Mapping[Kind, tuple[str, str, float, str]] = {
    "best": ("line", "paper", 1.5, "line"),
    "other": ("paper", "other", 1.6, "other"),
    "chosen": ("chosen", "paper", 1.5, "chosen"),
    "reference": ("ink", "paper", 1.5, "ink"),
    "stopped": ("paper", "chosen", 1.8, "chosen"),
    "failed": ("ink", "ink", 2.0, "ink"),
    "running": ("line", "paper", 1.5, "line"),
}
#: Kinds that are not circles, so that kinds are distinguishable without color, too.
FORMS: Mapping[Kind, Form] = {
    "reference": "square",
    "stopped": "diamond",
    "failed": "cross",
    "running": "arrow",
}
RING, RING_WIDTH, RING_OPACITY = 4.5, 1.6, 0.55  # around a chosen mark
BAR_EDGE = 0.5  # width
DASH = (5.0, 4.0)  # length, and the gap to the next

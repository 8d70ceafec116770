"""Frontiers as tables, plots and pages.

One layout of a plot (`_layout.py`) is rendered as SVG, as PNG and in pages; `_page.py` adds a
slider over the objective's weight of energy. `Frontier` offers these as methods.
"""

from __future__ import annotations

from zeus.drawing.frontier._layout import lay_out
from zeus.drawing.frontier._plots import KINDS, rendered, save
from zeus.drawing.frontier._tables import (
    by_time,
    columns_of,
    compared,
    count,
    knob_label,
    rich_table,
    rows,
    text_table,
)

__all__ = [
    "KINDS",
    "by_time",
    "columns_of",
    "compared",
    "count",
    "knob_label",
    "lay_out",
    "rendered",
    "rich_table",
    "rows",
    "save",
    "text_table",
]

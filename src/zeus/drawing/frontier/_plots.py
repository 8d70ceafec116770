"""Plots of a frontier as files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from zeus.drawing import _files as files
from zeus.drawing._text import Measure
from zeus.drawing.frontier._layout import Plot, lay_out, reasons
from zeus.drawing.frontier._page import Page
from zeus.frontier import Frontier, Point, Selection
from zeus.frontier._selection import Chosen

KINDS = (*files.KINDS, ".html")


def save(
    frontier: Frontier,
    path: str | os.PathLike[str],
    *,
    chosen: Chosen = None,
    title: str = "",
    reference: Point | None = None,
) -> None:
    """Write a plot to a file; `Frontier.plot` documents the arguments and errors."""
    kind = files.kind_of(path, KINDS)
    content = rendered(frontier, kind, chosen=chosen, title=title, reference=reference)
    Path(path).write_bytes(content)


def rendered(
    frontier: Frontier,
    kind: str,
    *,
    chosen: Chosen = None,
    title: str = "",
    reference: Point | None = None,
    eta_knob: float = 0.5,
) -> bytes:
    """Return the content of a file; `Frontier.to_html` documents the other arguments.

    Args:
        frontier: Frontier to draw.
        kind: One of `KINDS`.
        chosen: Points to highlight.
        title: Replaces the name of the work.
        reference: Point to compare with.
        eta_knob: Initial value of the slider of a page.

    Raises:
        MissingExtraError: If a required library is not installed.
    """
    selections = _selections(chosen)
    if kind == ".html":
        reference = reference or frontier.fastest
        return Page(frontier, selections, title, reference, eta_knob).html().encode()
    choices = reasons(selections)

    def sheet(measure: Measure) -> Plot:
        return lay_out(frontier, choices, title, reference=reference, measure=measure, headed=True)

    return files.rendered(sheet, kind)


def _selections(chosen: Chosen) -> dict[str, Selection]:
    if chosen is None:
        return {}
    named = chosen if isinstance(chosen, Mapping) else {"": chosen}
    return {
        name: Selection(choice) if isinstance(choice, Point) else choice
        for name, choice in named.items()
    }

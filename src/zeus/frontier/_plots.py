"""Plots of a frontier, by file type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zeus.drawing import _files as files
from zeus.drawing._text import Measure
from zeus.frontier._layout import Plot, lay_out
from zeus.frontier._point import Point
from zeus.frontier._selection import Selection

if TYPE_CHECKING:
    from zeus.frontier._frontier import Frontier

KINDS = (*files.KINDS, ".html")

Chosen = Selection | Point | Mapping[str, Selection | Point] | None
"""A choice, or choices by the name of the objective."""


def rendered(
    frontier: Frontier,
    kind: str,
    *,
    chosen: Chosen = None,
    title: str = "",
    reference: Point | None = None,
    eta_knob: float = 0.5,
) -> bytes:
    """Return the content of a file of a type; `Frontier.plot` documents the rest.

    Raises:
        MissingExtraError: If a required library is not installed.
    """
    if kind == ".html":
        return page(frontier, chosen, title, reference, eta_knob).encode()
    choices = reasons(_selections(chosen))

    def sheet(measure: Measure) -> Plot:
        return lay_out(frontier, choices, title, reference=reference, measure=measure, headed=True)

    return files.rendered(sheet, kind)


def page(
    frontier: Frontier,
    chosen: Chosen = None,
    title: str = "",
    reference: Point | None = None,
    eta_knob: float = 0.5,
) -> str:
    """Return the plot as an interactive page."""
    from zeus.frontier._page import html  # noqa: PLC0415

    return html(frontier, _selections(chosen), title, reference, eta_knob)


def _selections(chosen: Chosen) -> dict[str, Selection]:
    if chosen is None:
        return {}
    named = chosen if isinstance(chosen, Mapping) else {"": chosen}
    return {
        name: Selection(choice) if isinstance(choice, Point) else choice
        for name, choice in named.items()
    }


def reasons(selections: Mapping[str, Selection]) -> dict[str, Point]:
    """Return the chosen points by the label that is drawn beside each."""
    return {
        name if selection.feasible else f"{name} (not kept)".lstrip(): selection.point
        for name, selection in selections.items()
    }

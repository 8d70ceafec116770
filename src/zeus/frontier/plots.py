"""The plots of a frontier, by kind of file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zeus.drawing import files
from zeus.drawing.text import Measure
from zeus.frontier.layout import Plot, lay_out
from zeus.frontier.point import Point
from zeus.frontier.selection import Selection

if TYPE_CHECKING:
    from zeus.frontier.frontier import Frontier

KINDS = (*files.KINDS, ".html")

Chosen = Selection | Point | Mapping[str, Selection | Point] | None
"""A choice, or choices by the name of what chose them."""


def rendered(
    frontier: Frontier,
    kind: str,
    *,
    chosen: Chosen = None,
    title: str = "",
    reference: Point | None = None,
    eta_knob: float = 0.5,
) -> bytes:
    """What is to be in a file of a kind; `Frontier.plot` documents the rest.

    Raises:
        MissingExtraError: If a library is needed for it that is not installed.
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
    """The plot as a page to play with."""
    from zeus.frontier.page import html  # noqa: PLC0415

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
    """What is written beside each chosen point, with the point."""
    return {
        name if selection.feasible else f"{name} (not kept)".lstrip(): selection.point
        for name, selection in selections.items()
    }

"""The plots of a frontier, by kind of file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from zeus.errors import FrontierError
from zeus.frontier.chart import svg
from zeus.frontier.layout import lay_out
from zeus.frontier.point import Point
from zeus.frontier.selection import Selection

if TYPE_CHECKING:
    from zeus.frontier.frontier import Frontier

KINDS = (".svg", ".png", ".html")

Chosen = Selection | Point | Mapping[str, Selection | Point] | None
"""A choice, or choices by the name of what chose them."""


def kind_of(path: PurePath) -> str:
    """The kind of plot that a file's name asks for.

    Raises:
        FrontierError: If it is none of them.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        known = ", ".join(map(repr, KINDS))
        raise FrontierError(f"a plot's file name must end in one of {known}, but got {str(path)!r}")
    return kind


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
    if kind == ".png":
        from zeus.frontier.raster import png, text_width  # noqa: PLC0415

        choices = _points(chosen)
        return png(lay_out(frontier, choices, title, reference=reference, measure=text_width()))
    return sheet(frontier, chosen, title, reference).encode()


def sheet(
    frontier: Frontier, chosen: Chosen = None, title: str = "", reference: Point | None = None
) -> str:
    """The plot as an SVG document."""
    return svg(lay_out(frontier, _points(chosen), title, reference=reference))


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


def _points(chosen: Chosen) -> dict[str, Point]:
    return reasons(_selections(chosen))


def reasons(selections: Mapping[str, Selection]) -> dict[str, Point]:
    """What is written beside each chosen point, with the point."""
    return {
        name if selection.feasible else f"{name} (not kept)".lstrip(): selection.point
        for name, selection in selections.items()
    }

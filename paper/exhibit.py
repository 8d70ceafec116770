"""An exhibit: one figure or table of the paper, with published and recomputed numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """One published statement, and our result.

    Attributes:
        what: Subject of the statement.
        where: Section, figure or table of the paper that states it.
        published: The published statement or number.
        ours: The recomputed result.
        note: Why the two differ, or what agreeing means.
        agrees: Whether they agree, to the precision of the paper; `None` where that cannot be
            decided.
    """

    what: str
    where: str
    published: str
    ours: str
    note: str = ""
    agrees: bool | None = True


@dataclass(frozen=True)
class Listing:
    """A table.

    Attributes:
        head: Names of the columns.
        rows: Cells, as text.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Exhibit:
    """One figure or table.

    Attributes:
        name: Base name of its files, such as "figure-4".
        title: Title in the paper, such as "Figure 4".
        subject: Its content, in a few words.
        caption: Explanation for readers.
        data: Data of the picture; plain values for JSON.
        draw: Draws the picture from the data alone; `None` for a table, or if data are missing.
        facts: Published numbers and ours.
        listing: The table, if the exhibit is one.
        missing: Why it was not recomputed, if it was not.
    """

    name: str
    title: str
    subject: str
    caption: str = ""
    data: Data = field(default_factory=dict)
    draw: Callable[[Data], Figure] | None = None
    facts: Sequence[Fact] = ()
    listing: Listing | None = None
    missing: str = ""


def percent(value: float, digits: int = 1) -> str:
    """Format a relative change as a percentage with its sign."""
    shown = f"{100 * value:+.{digits}f} %"
    if float(shown[1:-2]) == 0:
        shown = shown[1:]  # no sign for zero
    return shown.replace("-", "−")


def interval(low: float, high: float, digits: int = 1) -> str:
    """Format a range of fractions as percentages."""
    return f"{100 * low:.{digits}f} % to {100 * high:.{digits}f} %".replace("-", "−")

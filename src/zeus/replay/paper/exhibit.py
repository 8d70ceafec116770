"""What is shown: one figure or table of the paper, with ours beside what was published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """One published statement, and what came out here.

    Attributes:
        what: What it is about.
        where: Section, figure or table of the paper that states it.
        published: What is stated there.
        ours: What was recomputed.
        note: Why the two differ, or what agreeing means.
        agrees: Whether they do, within what can be told from the paper; `None` where it cannot be
            told.
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
        name: Of its files, such as "figure-4".
        title: As in the paper, such as "Figure 4".
        subject: What it shows, in a few words.
        caption: How to read it.
        data: What is drawn; plain values for JSON.
        draw: Makes the picture from the data alone; `None` for a table, or if data are missing.
        facts: Published numbers beside ours.
        listing: The table, if it is one.
        missing: Why there is nothing, if there is nothing.
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
    """A change as a percentage with its sign."""
    shown = f"{100 * value:+.{digits}f} %"
    if float(shown[1:-2]) == 0:
        shown = shown[1:]  # neither more nor less
    return shown.replace("-", "−")


def interval(low: float, high: float, digits: int = 1) -> str:
    """Two shares as percentages."""
    return f"{100 * low:.{digits}f} % to {100 * high:.{digits}f} %".replace("-", "−")

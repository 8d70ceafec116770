"""Tables of pages. A column is one entry: its title, its cells and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from zeus.server.pages._markup import Content, Markup, tag

Item = TypeVar("Item")


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column of a table, whose rows are items of one type.

    Attributes:
        title: Its heading.
        cell: Returns its content for an item.
        number: Whether its cells are numbers, which are aligned to the right.
        optional: Whether it is hidden on phones.
    """

    title: str
    cell: Callable[[Item], Content]
    number: bool = False
    optional: bool = False

    @property
    def classes(self) -> str | None:
        """Classes of its elements, for the style sheet."""
        return " ".join(["number"] * self.number + ["optional"] * self.optional) or None


def table(
    caption: str,
    columns: Sequence[Column[Item]],
    items: Iterable[Item],
    *,
    kind: Callable[[Item], str] = lambda _: "",
) -> Markup:
    """Return a table that scrolls horizontally where it is too wide.

    Args:
        caption: Label for screen readers.
        columns: Its columns; the first has the row headers.
        items: What its rows show.
        kind: Returns the class of an item's row: "muted", "chosen" or none.
    """
    titles = (tag("th", each.title, scope="col", class_=each.classes) for each in columns)
    first, *others = columns
    lines = (
        tag(
            "tr",
            tag("th", first.cell(item), scope="row", class_=first.classes),
            *(tag("td", each.cell(item), class_=each.classes) for each in others),
            class_=kind(item) or None,
        )
        for item in items
    )
    inner = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)

"""Tables of pages. A column is one entry: its title, its cells and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from zeus.drawing._markup import Content, Markup, tag

Item = TypeVar("Item")


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column of a table, whose rows are items of one type.

    Attributes:
        title: Its heading.
        cell: Returns its content for an item.
        name: Its class in the style sheet, if it needs one of its own.
        number: Whether its cells are numbers, which are aligned to the right.
        optional: Whether it is hidden on phones.
        sorted_by: "ascending" or "descending" if the rows are sorted by this column.
    """

    title: str
    cell: Callable[[Item], Content]
    name: str = ""
    number: bool = False
    optional: bool = False
    sorted_by: str = ""

    @property
    def classes(self) -> str | None:
        """Classes of its elements."""
        found = [self.name, "number" if self.number else "", "optional" if self.optional else ""]
        return " ".join(filter(None, found)) or None


def table(
    caption: str,
    columns: Sequence[Column[Item]],
    items: Iterable[Item],
    *,
    kind: Callable[[Item], str] = lambda _: "",
    attributes: Callable[[Item], Mapping[str, object]] = lambda _: {},
) -> Markup:
    """Return a table that scrolls horizontally where it is too wide.

    Args:
        caption: Label for screen readers.
        columns: Its columns; the first has the row headers.
        items: What its rows show.
        kind: Returns the class of an item's row, such as "muted" or "chosen"; empty for none.
        attributes: Returns further attributes of an item's row.
    """
    titles = (
        tag(
            "th",
            each.title,
            scope="col",
            class_=each.classes,
            aria_sort=each.sorted_by or None,
        )
        for each in columns
    )
    first, *others = columns
    lines = (
        tag(
            "tr",
            tag("th", first.cell(item), scope="row", class_=first.classes),
            *(tag("td", each.cell(item), class_=each.classes) for each in others),
            class_=kind(item) or None,
            **attributes(item),
        )
        for item in items
    )
    inner = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)

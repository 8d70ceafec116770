"""Reads CSV tables; errors name the file and the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from zeus.errors import StageProfileError


def rows(
    path: Path, columns: Sequence[str], what: str, optional: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a table, each with its file and line, and its values by column.

    Columns may be in any order, and further columns are allowed. Blank lines are skipped.

    Args:
        path: File to read.
        columns: Names of the columns that it must have.
        what: Name of such a table, for messages.
        optional: Names of columns that it may have.

    Raises:
        StageProfileError: If it is not a valid table.
        OSError: If it cannot be read.
    """
    head: list[str] | None = None
    empty = True
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            cells = _cells(line, where)
            if not any(cells):
                continue
            if head is None:
                head = _head(cells, columns, optional, where)
                continue
            if len(cells) != len(head):
                raise StageProfileError(
                    f"{where}: a row has as many values as the heading ({len(head)}), "
                    f"but got {len(cells)}: {','.join(cells)!r}"
                )
            empty = False
            yield where, dict(zip(head, cells, strict=True))
    if empty:
        raise StageProfileError(f"{path}: {what} has a heading and rows, but there are no rows")


def number(cells: Mapping[str, str], name: str, where: str) -> float:
    """Return a value as a finite number; raise `StageProfileError` if it is not a finite number."""
    try:
        value = float(cells[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        refuse(where, name, "a number", cells[name])
    return value


def refuse(where: str, name: str, rule: str, text: str) -> NoReturn:
    """Raise a `StageProfileError` with the rule for a value, and the value."""
    raise StageProfileError(f"{where}: `{name}` must be {rule}, but got {text!r}")


def _cells(line: bytes, where: str) -> list[str]:
    # Line by line, so that the error of an unclosed quote names its line.
    try:
        text = line.decode("utf-8-sig")
        return [cell.strip() for row in csv.reader([text], strict=True) for cell in row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise StageProfileError(f"{where}: not a line of a CSV table in UTF-8: {error}") from None


def _head(
    cells: Sequence[str], columns: Sequence[str], optional: Sequence[str], where: str
) -> list[str]:
    names = [cell.lower() for cell in cells]
    missing = [name for name in columns if name not in names]
    if missing:
        raise StageProfileError(
            f"{where}: the heading must name {', '.join(columns)}, but {', '.join(missing)} "
            f"is missing from {','.join(cells)!r}"
        )
    known = {*columns, *optional}
    twice = sorted({name for name in names if name in known and names.count(name) > 1})
    if twice:
        raise StageProfileError(
            f"{where}: the heading must name each column once, but got {', '.join(twice)} twice"
        )
    return names

"""Statements about many rows at once.

SQLite executes a statement for each row, which costs little. A statement for each row of a server
costs more than all decisions: PostgreSQL gets the columns of all rows as arrays, in one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Table,
    any_,
    bindparam,
    cast,
    column,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY

Rows = Sequence[dict[str, Any]]  # all with the same columns


def insert_rows(connection: Connection, table: Table, rows: Rows, key: Sequence[str] = ()) -> None:
    """Insert rows.

    Args:
        connection: Where.
        table: Into which table.
        rows: Their columns; at least one row.
        key: Columns that identify a row. If given, existing rows are replaced.
    """
    dialect = connection.dialect.name
    statement = _insert(dialect, table, tuple(rows[0]), tuple(key))
    connection.execute(statement, rows if dialect == "sqlite" else _arrays(table, rows))


def update_rows(connection: Connection, table: Table, rows: Rows, key: Sequence[str]) -> None:
    """Update existing rows.

    Args:
        connection: Where.
        table: Which table.
        rows: Columns that change, and those that identify each row; at least one row.
        key: Which of them identify a row.
    """
    dialect = connection.dialect.name
    statement = _update(dialect, table, tuple(rows[0]), tuple(key))
    if dialect == "sqlite":
        each = [{_PREFIX + name: value for name, value in row.items()} for row in rows]
        connection.execute(statement, each)
    else:
        connection.execute(statement, _arrays(table, rows))


def find_rows(
    connection: Connection, table: Table, rows: Rows, columns: Sequence[str]
) -> Sequence[Any]:
    """Return columns of the rows that have the same values as one of those given.

    Args:
        connection: Where.
        table: Which table.
        rows: Values that identify a row; at least one row.
        columns: Columns to return.
    """
    dialect, names = connection.dialect.name, tuple(rows[0])
    statement = _find(dialect, table, names, tuple(columns))
    if dialect == "sqlite":
        parameters: Any = {"given": [tuple(row.values()) for row in rows]}
    else:
        parameters = _arrays(table, rows)
    return connection.execute(statement, parameters).all()


def one_of(dialect: str, wanted: Column[Any]) -> Any:
    """Return the condition that a column is one of the values of a parameter of its name.

    Args:
        dialect: Name of the dialect.
        wanted: The column.
    """
    if dialect == "sqlite":
        return wanted.in_(bindparam(wanted.name, expanding=True))
    # One parameter, so that it is the same statement for any number of values.
    kind = ARRAY(wanted.type)
    return wanted == any_(cast(bindparam(wanted.name, type_=kind), kind))


# SQLAlchemy reserves the names of columns in updates.
_PREFIX = "given_"


def _arrays(table: Table, rows: Rows) -> dict[str, list[Any]]:
    """Return the values of each column, all of the column's own type."""
    found: dict[str, list[Any]] = {}
    for name in rows[0]:
        kind = table.c[name].type.python_type
        values = (row[name] for row in rows)
        found[_PREFIX + name] = [None if value is None else kind(value) for value in values]
    return found


# --- statements, whose making takes longer than their execution -----------------------------------


@cache
def _insert(dialect: str, table: Table, names: tuple[str, ...], key: tuple[str, ...]) -> Any:
    insert: Any
    if dialect == "sqlite":
        insert = sqlite.insert(table)
    else:
        given = _given(table, names)
        insert = postgresql.insert(table).from_select(names, select(*given.c))
    if not key:
        return insert
    others = {name: insert.excluded[name] for name in names if name not in key}
    return insert.on_conflict_do_update(index_elements=list(key), set_=others)


@cache
def _update(dialect: str, table: Table, names: tuple[str, ...], key: tuple[str, ...]) -> Any:
    source: Any
    if dialect == "sqlite":
        source = {name: bindparam(_PREFIX + name) for name in names}
    else:
        source = _given(table, names).c
    same = [table.c[name] == source[name] for name in key]
    return update(table).where(*same).values({n: source[n] for n in names if n not in key})


@cache
def _find(dialect: str, table: Table, names: tuple[str, ...], columns: tuple[str, ...]) -> Any:
    wanted = select(*(table.c[name] for name in columns))
    if dialect == "sqlite":
        asked = tuple_(*(table.c[name] for name in names))
        return wanted.where(asked.in_(bindparam("given", expanding=True)))
    given = _given(table, names)
    return wanted.where(*(table.c[name] == given.c[name] for name in names))


def _given(table: Table, names: tuple[str, ...]) -> Any:
    """Return rows that are given as arrays, one for each column."""
    arrays = []
    for name in names:
        kind = ARRAY(table.c[name].type)
        arrays.append(cast(bindparam(_PREFIX + name, type_=kind), kind))
    columns = [column(name, table.c[name].type) for name in names]
    return func.unnest(*arrays).table_valued(*columns, name="given").render_derived()

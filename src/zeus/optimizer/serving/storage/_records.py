"""Loads services from the database and saves them: table rows to `Runs` and `Span`, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from zeus._thinning import bounded
from zeus.errors import UnknownJobError
from zeus.optimizer.serving.api._spans import Span, joined
from zeus.optimizer.serving.storage._runs import Runs
from zeus.store._tables import service_spans, services
from zeus.store._values import damaged, parsed

MAX_SPANS = 720  # of a service: an hour of reports, before any are merged


@dataclass(frozen=True)
class Row:
    """A service as it is stored.

    Attributes:
        id: Number of the row.
        name: Its name.
        created: When it was first heard of, in seconds since 1970.
        heard: When it was last heard of.
        session: Identifies the process that controls it.
        number: Number of its latest report.
        record: JSON of its latest run.
        past: JSON of those before.
    """

    id: int
    name: str
    created: float
    heard: float
    session: str
    number: int
    record: Any
    past: Any

    def runs(self) -> Runs:
        """Return its runs.

        Raises:
            DamagedJobError: If they cannot be read.
        """
        try:
            return Runs.from_dicts(parsed(self.record), parsed(self.past))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise damaged(self.name, str(error)) from None


def names(connection: Connection) -> list[str]:
    """Return the names of all services, in order."""
    return [name for (name,) in connection.execute(select(services.c.name))]


def count(connection: Connection, since: float = 0.0) -> int:
    """Return the number of services that were heard of since an instant."""
    statement = select(func.count()).select_from(services).where(services.c.heard >= since)
    return int(connection.execute(statement).scalar_one())


def find(connection: Connection, name: str, *, lock: bool = False) -> Row | None:
    """Return a service; `None` if there is none of this name.

    Args:
        connection: A connection in a transaction.
        name: Its name.
        lock: Whether to lock the row until the end of the transaction.
    """
    if not name.isprintable():
        return None  # no service has such a name, and some databases reject it in a query
    statement = select(services).where(services.c.name == name)
    row = connection.execute(statement.with_for_update() if lock else statement).first()
    return None if row is None else Row(*row)


def get(connection: Connection, name: str, *, lock: bool = False) -> Row:
    """Return a service; see `find`.

    Raises:
        UnknownJobError: If there is none of this name.
    """
    found = find(connection, name, lock=lock)
    if found is None:
        raise UnknownJobError(f"there is no service {name!r}")
    return found


def create(connection: Connection, name: str, at: float, session: str, runs: Runs) -> None:
    """Insert a new service."""
    row = {"name": name, "created": at, **_values(at, session, 0, runs), **_past(runs)}
    connection.execute(insert(services), row)


def begin(connection: Connection, row: Row, at: float, session: str, runs: Runs) -> None:
    """Store that another run has begun."""
    _update(connection, row, {**_values(at, session, 0, runs), **_past(runs)})


def save(connection: Connection, row: Row, at: float, number: int, runs: Runs) -> None:
    """Store the latest run, which goes on.

    Args:
        connection: A connection in a transaction that writes.
        row: The service as it was loaded.
        at: When it was heard of, in seconds since 1970.
        number: Number of its latest report.
        runs: Its runs; only the latest is stored.
    """
    _update(connection, row, _values(at, row.session, number, runs))


def hear(connection: Connection, row: Row, at: float) -> None:
    """Set when a service was last heard of."""
    _update(connection, row, {"heard": at})


def _update(connection: Connection, row: Row, values: dict[str, Any]) -> None:
    connection.execute(update(services).where(services.c.id == row.id).values(**values))


def _values(at: float, session: str, number: int, runs: Runs) -> dict[str, Any]:
    record = json.dumps(runs.latest.to_dict())
    return {"heard": at, "session": session, "number": number, "record": record}


def _past(runs: Runs) -> dict[str, Any]:
    return {"past": json.dumps(runs.past_to_dict())}


def forget(connection: Connection, row: Row) -> None:
    """Delete a service."""
    connection.execute(delete(service_spans).where(service_spans.c.service == row.id))
    connection.execute(delete(services).where(services.c.id == row.id))


def spans(connection: Connection, row: Row, most: int = MAX_SPANS) -> list[Span]:
    """Return the latest spans of a service in the order of time.

    Raises:
        DamagedJobError: If one cannot be read.
    """
    own = service_spans.c.service == row.id
    order = service_spans.c.number.desc()
    statement = select(service_spans.c.record).where(own).order_by(order).limit(most)
    try:
        found = [Span.from_dict(parsed(each)) for (each,) in connection.execute(statement)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(row.name, str(error)) from None
    return found[::-1]


def add_spans(connection: Connection, row: Row, added: Sequence[Span]) -> int:
    """Add the latest spans of a service; return how many there are now."""
    total, last = _numbers(connection, row)
    if added:
        connection.execute(insert(service_spans), _rows(row, last + 1, added))
    return total + len(added)


def thinned(connection: Connection, row: Row) -> tuple[int, int, list[dict[str, Any]]]:
    """Return the spans of a service as fewer rows, in which older ones are merged.

    Returns:
        The number of spans, the number of the last, and the rows that stand for them.
    """
    total, last = _numbers(connection, row)
    kept = bounded(spans(connection, row, total), MAX_SPANS, joined)
    return total, last, _rows(row, last - len(kept) + 1, kept)


def replace_spans(
    connection: Connection, row: Row, total: int, last: int, rows: list[dict[str, Any]]
) -> None:
    """Store what `thinned` has returned, unless another process did; later spans stay."""
    own = (service_spans.c.service == row.id) & (service_spans.c.number <= last)
    counted = connection.execute(select(func.count()).select_from(service_spans).where(own))
    if counted.scalar_one() == total:
        connection.execute(delete(service_spans).where(own))
        connection.execute(insert(service_spans), rows)


def _numbers(connection: Connection, row: Row) -> tuple[int, int]:
    """Return the number of spans of a service, and the number of the last."""
    numbers = select(func.count(), func.max(service_spans.c.number))
    total, last = connection.execute(numbers.where(service_spans.c.service == row.id)).one()
    return total, last or 0


def _rows(row: Row, first: int, found: Sequence[Span]) -> list[dict[str, Any]]:
    return [
        {"service": row.id, "number": first + place, "record": json.dumps(each.to_dict())}
        for place, each in enumerate(found)
    ]

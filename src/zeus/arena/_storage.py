"""Rounds and rows in the store. Events are appended; each kind happens once in a round.

What a caller was told is stored has been committed, so no end of the process loses it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Insert, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from zeus.arena._events import Judged, RoundEvent, Voted, from_payload, to_payload
from zeus.arena._round import Round, check, fold
from zeus.arena._rows import BoardRow, from_dict, to_dict
from zeus.errors import ArenaConflictError, ArenaError, UnknownRoundError
from zeus.store import Store
from zeus.store._tables import arena_events, board_rows
from zeus.store._values import parsed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """All rounds and rows of a store.

    Attributes:
        rounds: Rounds, the oldest first.
        rows: Rows of load tests and imports, the oldest first.
        damaged: Number of rounds and rows that cannot be read; they stay in the store.
    """

    rounds: Sequence[Round]
    rows: Sequence[BoardRow]
    damaged: int


class ArenaStorage:
    """Rounds of the arena and rows of the board in a store.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, name: str, event: RoundEvent, now: float) -> Round:
        """Append an event to a round; the repetition of a stored one changes nothing.

        Args:
            name: Name of the round.
            event: The event.
            now: Time in seconds since 1970.

        Returns:
            The round with it.

        Raises:
            UnknownRoundError: If there is no such round, and the event does not begin one.
            ArenaConflictError: If the event may not follow those that are stored.
            StorageError: If the store fails.
        """
        with self._store.writing() as connection:
            if event.kind != "asked" and check(_read(connection, name), event, now):
                # Another process may write the same now: the first one wins.
                connection.execute(_once(connection, arena_events, _values(name, event, now)))
            elif event.kind == "asked":
                connection.execute(_once(connection, arena_events, _values(name, event, now)))
            current = _read(connection, name)
            if event not in _facts(current):
                raise ArenaConflictError(f"the round has another `{event.kind}` by now")
            return current

    def find(self, name: str) -> Round:
        """Return a round.

        Raises:
            UnknownRoundError: If there is none of this name.
            ArenaError: If its record is damaged.
        """
        with self._store.reading() as connection:
            return _read(connection, name)

    def add_rows(self, rows: Iterable[BoardRow], now: float) -> int:
        """Add rows to the board, all or none; return how many are new.

        Args:
            rows: The rows; those that are stored already change nothing.
            now: Time in seconds since 1970.
        """
        added = 0
        with self._store.writing() as connection:
            for row in rows:
                values = {
                    "key": row.key(),
                    "source": row.source,
                    "at": now,
                    "payload": json.dumps(to_dict(row), allow_nan=False),
                }
                # Drivers disagree on the row count of an insert that does nothing.
                statement = _once(connection, board_rows, values).returning(board_rows.c.number)
                added += connection.execute(statement).first() is not None
        return added

    def remove_rows(self, source: str) -> int:
        """Remove all rows of a source; return how many there were."""
        with self._store.writing() as connection:
            found = connection.execute(board_rows.delete().where(board_rows.c.source == source))
            return found.rowcount

    def version(self) -> tuple[int, int, int]:
        """Return numbers that change with every event and row."""
        numbers = (
            func.max(arena_events.c.number),
            func.max(board_rows.c.number),
            func.count(board_rows.c.number),
        )
        with self._store.reading() as connection:
            event, row, rows = (connection.execute(select(each)).scalar() for each in numbers)
        return event or 0, row or 0, rows or 0

    def load(self) -> Loaded:
        """Return all rounds and rows; damaged ones are logged and left out."""
        with self._store.reading() as connection:
            columns = (arena_events.c.round, *_EVENT)
            events = connection.execute(select(*columns).order_by(arena_events.c.number)).all()
            stored = select(board_rows.c.number, board_rows.c.payload).order_by(board_rows.c.number)
            rows = connection.execute(stored).all()
        by_round: dict[str, list[Any]] = {}
        for name, *event in events:
            by_round.setdefault(name, []).append(event)
        damaged = 0
        rounds = []
        for name, found in by_round.items():
            try:
                rounds.append(_folded(found))
            except ArenaError as error:
                damaged += 1
                logger.warning("round %a of the arena is damaged: %s", name, error)
        kept = []
        for number, payload in rows:
            try:
                kept.append(from_dict(_object(payload)))
            except ArenaError as error:
                damaged += 1
                logger.warning("row %s of the board is damaged: %s", number, error)
        return Loaded(rounds, kept, damaged)


_EVENT = (arena_events.c.kind, arena_events.c.at, arena_events.c.payload)


def _values(name: str, event: RoundEvent, now: float) -> dict[str, Any]:
    payload = json.dumps(to_payload(event), allow_nan=False)
    return {"round": name, "kind": event.kind, "at": now, "payload": payload}


def _once(connection: Connection, table: Table, values: dict[str, Any]) -> Insert:
    """Return a statement that inserts a row unless there is one with the same unique values."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement: Insert = dialect.insert(table).values(values).on_conflict_do_nothing()
    return statement


def _read(connection: Connection, name: str) -> Round:
    if not (name.isascii() and name.isprintable()):
        raise UnknownRoundError("there is no such round")
    statement = select(*_EVENT).where(arena_events.c.round == name).order_by(arena_events.c.number)
    found = connection.execute(statement).all()
    if not found:
        raise UnknownRoundError(f"there is no round {name!a:.80}")
    return _folded(found)


def _folded(found: Iterable[Sequence[Any]]) -> Round:
    return fold((at, from_payload(kind, _object(payload))) for kind, at, payload in found)


def _object(payload: object) -> object:
    try:
        return parsed(payload)
    except (ValueError, RecursionError) as error:
        raise ArenaError(f"it is not JSON: {error}") from None


def _facts(current: Round) -> list[RoundEvent]:
    """Return the events that a round consists of."""
    found: list[RoundEvent | None] = [current.asked, current.answered, current.ended]
    found += [Voted(current.vote) if current.vote else None]
    found += [Judged(current.judgement) if current.judgement else None]
    return [each for each in found if each is not None]

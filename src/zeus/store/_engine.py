"""Connections to the database of a store: a SQLite file, or PostgreSQL.

Transactions that write are begun here, because the two differ in locking: SQLite has one writer at
a time, PostgreSQL locks the rows of the requested jobs.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from zeus.errors import MissingExtraError, StorageError, StorageUrlError

# Seconds to wait for a lock, before it is an error: of a SQLite file, or of a job in PostgreSQL.
_FILE_WAIT, _LOCK_WAIT = 30, 10
_CONNECT_WAIT = 10  # seconds
_RESTING = "zeus_resting"  # since when a connection is idle
_TRUSTED = 1.0  # seconds of idling after which a connection is checked
# As many connections as a server has reading threads, and one for the writer.
_POOL = {"pool_size": 4, "max_overflow": 44}
_POSTGRESQL = f"-c lock_timeout={_LOCK_WAIT}s -c idle_in_transaction_session_timeout=60s"
_MAX_SAID = 500  # characters of a database's error message that are passed on
# Cause of a database error in words: by the name of SQLite's error, or the class of PostgreSQL's.
_REASONS = {
    "SQLITE_FULL": "its disk is full",
    "SQLITE_IOERR": "its disk is full or fails",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_NOTADB": "it is damaged",
    "SQLITE_BUSY": "other processes keep it locked",
    "SQLITE_LOCKED": "other processes keep it locked",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "53": "its disk is full, or it lacks memory or connections",
    "25": "it is read-only",
    "XX": "it is damaged",
    "55": "other processes keep it locked",
    "08": "it cannot be reached",
    "57": "it is being stopped",
}
_GONE = "its file was removed or replaced"


def open_engine(storage: str) -> Engine:
    """Return an engine for the database that a URL names.

    Args:
        storage: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.

    Raises:
        StorageError: If it is anything else.
        MissingExtraError: If the driver is not installed.
    """
    url = _url(storage)
    if url.get_backend_name() == "sqlite":
        # Autocommit: SQLAlchemy's events below, and not the driver, begin transactions.
        arguments: dict[str, Any] = {"timeout": _FILE_WAIT, "isolation_level": None}
        engine = create_engine(url, connect_args=arguments, **_POOL)
        same = _SameFile(engine)
        event.listen(engine, "do_connect", same.check)
        event.listen(engine, "connect", same.remember)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", same.check_before_writing)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    asked = url.query.get("options", "")
    options = asked if isinstance(asked, str) else " ".join(asked)
    arguments = {
        "connect_timeout": _CONNECT_WAIT,
        # A network that drops all packets would otherwise block for a quarter of an hour.
        "tcp_user_timeout": 1000 * _CONNECT_WAIT,
        "application_name": "zeus",
        # The plan of a prepared statement, made while a table was small, would still be used when
        # it is large.
        "prepare_threshold": None,
        "options": f"{_POSTGRESQL} {options}",
    }
    try:
        engine = create_engine(url, connect_args=arguments, pool_recycle=1800, **_POOL)
    except ImportError:
        raise MissingExtraError("storage in PostgreSQL", "postgresql") from None
    event.listen(engine, "connect", _prepare_postgresql)
    event.listen(engine, "checkin", _note_rest)
    event.listen(engine, "checkout", partial(_check_rested, engine))
    return engine


def _url(storage: str) -> URL:
    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):
        url = None
    name = None if url is None else url.drivername
    if url is not None and name == "sqlite" and url.database not in (None, "", ":memory:"):
        return url
    if url is not None and name in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    shown = repr(storage) if url is None else url.render_as_string(hide_password=True)
    raise StorageUrlError(
        f"storage must be sqlite:///FILE or postgresql://USER@HOST/DATABASE, but got {shown}"
    )


def _note_rest(_connection: Any, record: Any) -> None:
    record.info[_RESTING] = time.monotonic()


def _check_rested(engine: Engine, connection: Any, record: Any, _proxy: object) -> None:
    """Replace a connection that has broken while idle.

    The database may have been restarted meanwhile. A check before every use would cost more than
    many uses do.
    """
    if time.monotonic() - record.info.get(_RESTING, math.inf) < _TRUSTED:
        return
    try:
        alive = engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error:
        alive = False
    if not alive:
        raise DisconnectionError


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    # Acknowledged transactions survive a power failure.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()
    # Stored text may be damaged. Invalid UTF-8 is handled by the reader of its row; an error here
    # would fail for all other rows too, and write the bytes to the log.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")


def _prepare_postgresql(connection: Any, _record: object) -> None:
    from psycopg.types.array import ListBinaryDumper  # noqa: PLC0415  (an extra)

    # Rows are written as arrays. As text, every quote in them would be escaped one by one.
    connection.adapters.register_dumper(list, ListBinaryDumper)


def _begin_sqlite(connection: Connection) -> None:
    # A writer locks at the beginning. Otherwise two could read, and the second could not upgrade
    # to a write lock.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


class _SameFile:
    """Checks that a SQLite file is still the one that was opened first.

    Processes that have a removed or replaced file open would not notice: they would go on writing
    to it, and everything would be lost when the last of them closes it.
    """

    def __init__(self, engine: Engine) -> None:
        self._where = engine.url.render_as_string(hide_password=True)
        self._path = Path(str(engine.url.database)).absolute()
        self._known: tuple[int, int] | None = None

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  (before every write)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def remember(self, _connection: Any, _record: object) -> None:
        if self._known is None:
            self._known = self._found()

    def check(self, *_about: object) -> None:
        if self._known is not None and self._known != self._found():
            raise StorageError(
                f"the store {self._where} fails: {_GONE} while it was open; put it back, or start "
                "again with what is there"
            )

    def check_before_writing(self, connection: Connection) -> None:
        if _writes(connection):
            self.check()


def _writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("zeus_writes", False))


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes; committed at the end, unless there is an error.

    Raises:
        StorageError: If the database fails.
    """
    with explained(engine), engine.connect() as connection:
        connection.execution_options(zeus_writes=True)
        with connection.begin():
            yield connection


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that sees one state of the database.

    Raises:
        StorageError: If the database fails.
    """
    with explained(engine), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextlib.contextmanager
def explained(engine: Engine) -> Iterator[None]:
    """Raise errors of the database as `StorageError`, without the values of the statement."""
    try:
        yield
    except (DBAPIError, PoolTimeoutError) as error:
        where = engine.url.render_as_string(hide_password=True)
        said = _escaped(" ".join(str(getattr(error, "orig", error)).split()))
        raise StorageError(f"the store {where} fails: {said}") from error


def _escaped(text: str) -> str:
    """Return a database's message, escaped for logs: it may quote anything that is stored."""
    kept = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:_MAX_SAID])
    return kept if len(text) <= _MAX_SAID else kept + "…"


def reason(error: StorageError) -> str:
    """Return why a store fails, in a few words that reveal neither its location nor contents."""
    if _GONE in str(error):
        return _GONE
    cause = error.__cause__
    original = cause.orig if isinstance(cause, DBAPIError) else None
    name = str(getattr(original, "sqlite_errorname", ""))
    state = str(getattr(original, "sqlstate", None) or "")
    known = _REASONS.get("_".join(name.split("_")[:2])) or _REASONS.get(state[:2])
    if known is None and original is not None and not name and not state:
        return _REASONS["08"]  # PostgreSQL's driver sets no error class for failed connections
    return known or "it does not answer as it should"


def may_be_tried_again(error: StorageError) -> bool:
    """Whether the cause is transient: a lock, a deadlock, a broken connection."""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError):
        return False
    state = getattr(cause.orig, "sqlstate", None) or ""
    return cause.connection_invalidated or (
        isinstance(cause, OperationalError) and state[:2] in ("40", "55", "57", "08")
    )

"""Creates the schema of a store and upgrades it when the store is opened.

The steps are Alembic migrations shipped with the package. They run in one transaction under a lock
of the database, so that several processes may open a new store at once and a crash leaves the old
or the new schema intact. Alembic is imported only when there is something to do.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from zeus.errors import StorageError
from zeus.store._engine import reading, writing
from zeus.store._tables import VERSION_TABLE

# All steps in order; a version is the name of its last.
VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")
_MIGRATIONS = Path(__file__).parent / "migrations"
_ONE_AT_A_TIME = threading.Lock()  # Alembic keeps its context in module globals
_LOCK = 0x7A657573  # arbitrary, but must never change


def prepare(engine: Engine) -> None:
    """Create the schema, or upgrade an older one.

    Raises:
        StorageError: If it was written by a newer Zeus.
    """
    with reading(engine) as connection:
        if _version(connection) == VERSIONS[-1]:
            return
    if engine.dialect.name == "sqlite":
        _let_readers_read(engine)
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        if _version(connection) != VERSIONS[-1]:  # another process may have been faster
            upgrade(connection, VERSIONS[-1])


def _let_readers_read(engine: Engine) -> None:
    """Enable write-ahead logging, so that readers need not wait; the file keeps this mode."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        # Fails if another process that opens the new file does the same at this moment.
        with contextlib.suppress(sqlite3.OperationalError):
            driver.execute("PRAGMA journal_mode = WAL")  # type: ignore[union-attr]


def _version(connection: Connection) -> str | None:
    """Return the version of the schema; `None` if there is none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if found is not None and found not in VERSIONS:
        raise StorageError(
            f"{_where(connection)} has schema {found}, but this Zeus knows up to {VERSIONS[-1]}: "
            "it was written by a newer one; upgrade Zeus"
        )
    return None if found is None else str(found)


def _where(connection: Connection) -> str:
    return f"the store {connection.engine.url.render_as_string(hide_password=True)}"


def upgrade(connection: Connection, version: str) -> None:
    """Upgrade a schema to a version, in the connection's transaction."""
    from alembic import command  # noqa: PLC0415  (rarely needed, and slow)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, version)

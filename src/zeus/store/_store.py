"""The database of a store: opened, upgraded, and shared by everything that is kept in it.

The rooms that keep something in it (recurring jobs, pipeline jobs, tokens) have their own queries;
what they share is how transactions begin, fail and are explained.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine

from zeus.errors import StorageError
from zeus.state._files import state_directory
from zeus.store._engine import open_engine, reading, writing
from zeus.store._schema import prepare

STORAGE_VARIABLE = "ZEUS_STORAGE"


def default_storage() -> str:
    """Return `ZEUS_STORAGE` if set, else the URL of a SQLite file in Zeus's state directory."""
    return os.environ.get(STORAGE_VARIABLE) or f"sqlite:///{state_directory() / 'jobs.db'}"


class Store:
    """A database of jobs and tokens.

    Safe to use from several threads and processes at the same time.

    Args:
        storage: `sqlite:///FILE` (created if missing) or `postgresql://USER@HOST/DATABASE`.

    Raises:
        StorageError: If it cannot be opened, or was written by a newer Zeus.
        MissingExtraError: If the driver is not installed.
    """

    def __init__(self, storage: str) -> None:
        self._engine: Engine = open_engine(storage)
        try:
            self._protect_file()
            prepare(self._engine)
        except BaseException:
            self._engine.dispose()
            raise

    @property
    def where(self) -> str:
        """URL without a password."""
        return self._engine.url.render_as_string(hide_password=True)

    @property
    def engine(self) -> Engine:
        """SQLAlchemy engine."""
        return self._engine

    def _protect_file(self) -> None:
        """Create a new SQLite file readable only by its owner: it will hold tokens' hashes."""
        if self._engine.dialect.name != "sqlite":
            return
        path = Path(str(self._engine.url.database))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise StorageError(f"the store {self.where} cannot be opened: {said}") from error

    def close(self) -> None:
        """Close all connections; later use opens new ones."""
        self._engine.dispose()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that may write; it is rolled back if there is an error.

        Raises:
            StorageError: If the database fails.
        """
        with writing(self._engine) as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the database.

        Raises:
            StorageError: If the database fails.
        """
        with reading(self._engine) as connection:
            yield connection

"""All rows of the board, computed again only when something was stored."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.arena._rows import BoardRow
from zeus.arena._standings import standings
from zeus.arena._storage import ArenaStorage


@dataclass(frozen=True)
class Board:
    """The board.

    Attributes:
        rows: Rows of own rounds, then of load tests and imports.
        votes: Number of votes.
        damaged: Number of stored rounds and rows that cannot be read.
    """

    rows: Sequence[BoardRow]
    votes: int
    damaged: int


class BoardCache:
    """The board of a store. Safe to use from several threads.

    Args:
        storage: Rounds and rows.
    """

    def __init__(self, storage: ArenaStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._version: tuple[int, int, int] | None = None
        self._board = Board((), 0, 0)

    def read(self) -> Board:
        """Return the board as stored now.

        Raises:
            StorageError: If the store fails.
        """
        with self._lock:
            version = self._storage.version()
            if version != self._version:
                loaded = self._storage.load()
                rows = [*standings(loaded.rounds), *loaded.rows]
                votes = sum(bool(each.vote) for each in loaded.rounds)
                self._board, self._version = Board(rows, votes, loaded.damaged), version
            return self._board

"""The store of recurring jobs: their logs, in a SQLite file or in PostgreSQL."""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import numpy  # noqa: F401
    import sqlalchemy  # noqa: F401
except ImportError:
    raise MissingExtraError("the store of recurring jobs", "store") from None

from zeus.optimizer.batch_size.store._store import Changes, Store, Transaction, default_storage
from zeus.optimizer.batch_size.store._tokens import Token, Tokens
from zeus.optimizer.batch_size.store._view import RUNNING, JobRow, Row, View

__all__ = [
    "RUNNING",
    "Changes",
    "JobRow",
    "Row",
    "Store",
    "Token",
    "Tokens",
    "Transaction",
    "View",
    "default_storage",
]

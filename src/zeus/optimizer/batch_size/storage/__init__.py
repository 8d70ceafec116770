"""Jobs that are kept: the rows of a store, and the service that answers for them."""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import numpy  # noqa: F401
except ImportError:
    raise MissingExtraError("the store of recurring jobs", "store") from None

from zeus.optimizer.batch_size.storage._transaction import (
    Changes,
    Transaction,
    reading_jobs,
    writing_jobs,
)
from zeus.optimizer.batch_size.storage._view import JobRow, Row, View

__all__ = [
    "Changes",
    "JobRow",
    "Row",
    "Transaction",
    "View",
    "reading_jobs",
    "writing_jobs",
]

"""The store: a database of jobs and tokens, in a SQLite file or in PostgreSQL.

`Store` opens it and upgrades an older schema. `_tables.py` and `migrations/` define the tables,
`_engine.py` connects, and `Tokens` are the secrets of the server's clients. The queries of jobs
live with the jobs.
"""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import sqlalchemy  # noqa: F401
except ImportError:
    raise MissingExtraError("the store of recurring jobs", "store") from None

from zeus.store._store import Store, default_storage
from zeus.store._tokens import Token, Tokens

__all__ = ["Store", "Token", "Tokens", "default_storage"]

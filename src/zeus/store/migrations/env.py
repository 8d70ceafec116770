"""Run by Alembic: migrates the connection that `store/schema.py` has locked, in its transaction."""

from __future__ import annotations

from alembic import context

from zeus.store._tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite can roll back schema changes too, if the driver does not manage transactions.
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

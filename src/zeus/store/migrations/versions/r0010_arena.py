"""The arena: events of its rounds, and rows of the board from elsewhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "zeus_arena_events",
        sa.Column("number", _ID, primary_key=True),
        sa.Column("round", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.UniqueConstraint("round", "kind", name="zeus_arena_events_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "zeus_board_rows",
        sa.Column("number", _ID, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )

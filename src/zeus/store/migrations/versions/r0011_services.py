"""Inference services: their runs, and what they did over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "zeus_services",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("heard", sa.Double, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("past", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    key = sa.ForeignKey("zeus_services.id", ondelete="CASCADE")
    op.create_table(
        "zeus_service_spans",
        sa.Column("service", _ID, key, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("record", sa.Text, nullable=False),
    )

"""Pipeline jobs, their ranks, and what happened to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _pipeline() -> sa.Column[int]:
    return sa.Column(
        "pipeline", _ID, sa.ForeignKey("zeus_pipelines.id", ondelete="CASCADE"), primary_key=True
    )


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "zeus_pipelines",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("degrees", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("inputs", sa.Integer, nullable=False),
        sa.Column("planned", sa.Integer, nullable=False),
        sa.Column("failure", sa.Text, nullable=False),
        sa.Column("stragglers", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "zeus_pipeline_ranks",
        _pipeline(),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("sequence", sa.Text),
        sa.Column("measured", sa.Text),
    )
    op.create_table(
        "zeus_pipeline_events",
        _pipeline(),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
    )

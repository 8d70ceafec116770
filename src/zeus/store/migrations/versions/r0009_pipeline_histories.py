"""Histories of pipeline jobs: step time and energy by plan and over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table; the histories of existing jobs begin with their next step."""
    key = sa.ForeignKey("zeus_pipelines.id", ondelete="CASCADE")
    op.create_table(
        "zeus_pipeline_histories",
        sa.Column("pipeline", _ID, key, primary_key=True),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )

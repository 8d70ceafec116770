"""Snapshots, so that a decision does not fold the whole log of its job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "zeus_snapshots",
        sa.Column(
            "job",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.ForeignKey("zeus_jobs.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )

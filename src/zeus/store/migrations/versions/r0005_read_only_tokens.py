"""Tokens for reading only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; existing tokens keep write access."""
    op.add_column(
        "zeus_tokens",
        sa.Column("read_only", sa.Boolean, nullable=False, server_default=sa.false()),
    )

"""Profiles that jobs share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column; existing profiles are shared with no job."""
    op.add_column("zeus_profiles", sa.Column("key", sa.Text))
    op.create_index(
        "zeus_profiles_key",
        "zeus_profiles",
        ["key"],
        sqlite_where=sa.text("key IS NOT NULL"),
        postgresql_where=sa.text("key IS NOT NULL"),
    )

"""Objectives of pipeline jobs, and the measurements of their previous run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns; existing jobs run as fast as possible, and have no previous run."""
    for name, empty in (("objective", "{}"), ("previous", "[]")):
        column = sa.Column(name, sa.Text, nullable=False, server_default=empty)
        op.add_column("zeus_pipelines", column)

"""Jobs, their logs, trials and profiles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _job() -> sa.Column[int]:
    return sa.Column(
        "job", _ID, sa.ForeignKey("zeus_jobs.id", ondelete="CASCADE"), primary_key=True
    )


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "zeus_jobs",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("recurrences", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "zeus_events",
        _job(),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "zeus_trials",
        _job(),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("lease", sa.Double, nullable=False),
        sa.Column("lease_until", sa.Double),
        sa.Column("recurrence", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("gpu", sa.Text, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("max_power", sa.Double, nullable=False),
        sa.Column("batch_size", sa.BigInteger, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("threshold", sa.Double),
        sa.Column("began", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("epochs", sa.Integer, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("energy", sa.Double),
        sa.Column("cost", sa.Double, nullable=False),
        sa.Column("metric", sa.Double),
        sa.Column("note", sa.Text, nullable=False),
        sa.UniqueConstraint("job", "request", name="zeus_trials_request"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "zeus_trials_lease",
        "zeus_trials",
        ["lease_until"],
        sqlite_where=sa.text("lease_until IS NOT NULL"),
        postgresql_where=sa.text("lease_until IS NOT NULL"),
    )
    op.create_table(
        "zeus_profiles",
        _job(),
        sa.Column("gpu", sa.Text, primary_key=True),
        sa.Column("gpus", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("batch_size", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("epoch_cost", sa.Double),
        sa.Column("load", sa.Double),
        sa.Column("power_limit", sa.Double),
        sa.Column("frontier", sa.Text),
    )

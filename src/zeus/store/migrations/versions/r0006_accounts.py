"""What each job took and saved, for lists that are sorted by it; tags; the best metric of trials.

Jobs that exist get an empty account. It is computed from their trials later, because that takes
the code that computes it for all others.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _job() -> sa.Column[int]:
    return sa.Column(
        "job", _ID, sa.ForeignKey("zeus_jobs.id", ondelete="CASCADE"), primary_key=True
    )


def upgrade() -> None:
    """Create the tables, and an empty account for each job."""
    op.add_column("zeus_trials", sa.Column("best", sa.Double))
    op.add_column("zeus_trials", sa.Column("reason", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "zeus_accounts",
        _job(),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("tally", sa.Text),
        sa.Column("energy", sa.Double),
        sa.Column("time", sa.Double),
        sa.Column("cost", sa.Double),
        sa.Column("unmeasured", sa.Integer, nullable=False),
        sa.Column("wasted", sa.Double),
        sa.Column("saved_energy", sa.Double),
        sa.Column("saved_time", sa.Double),
        sa.Column("saved_cost", sa.Double),
        sa.Column("default_energy", sa.Double),
        sa.Column("default_time", sa.Double),
        sa.Column("default_cost", sa.Double),
        sa.Column("basis", sa.Text, nullable=False),
        sa.Column("comparison", sa.Text, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
    )
    for name in ("saved_energy", "wasted"):
        op.create_index(f"zeus_accounts_{name}", "zeus_accounts", [name])
    for name, rows in (("trouble", "trouble <> ''"), ("tally", "tally IS NULL")):
        op.create_index(
            f"zeus_accounts_{name}",
            "zeus_accounts",
            ["job"],
            sqlite_where=sa.text(rows),
            postgresql_where=sa.text(rows),
        )
    op.create_table(
        "zeus_tags",
        _job(),
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Index("zeus_tags_tag", "tag"),
    )
    op.execute(
        "INSERT INTO zeus_accounts (job, sequence, unmeasured, basis, comparison, trouble) "
        "SELECT id, 0, 0, '', '', '' FROM zeus_jobs"
    )

"""The tables of a store: recurring jobs, tokens, pipeline jobs, services, and the arena.

The event log is the source of truth for recurring jobs. `trials`, the counters in `jobs`,
`accounts`, `profiles` and `snapshots` are derived from events, and written in the same transaction.
Texts have no length limit.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

# Named after Zeus: the database may be shared with other applications.
VERSION_TABLE = "zeus_version"

metadata = MetaData()

# SQLite numbers rows by itself only in a column of this exact type.
_Id = BigInteger().with_variant(Integer(), "sqlite")


def _job() -> Column[int]:
    return Column("job", _Id, ForeignKey("zeus_jobs.id", ondelete="CASCADE"), primary_key=True)


jobs = Table(
    "zeus_jobs",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("spec", Text, nullable=False),  # JSON of `JobSpec.to_dict`
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("sequence", Integer, nullable=False),  # of the last event
    Column("trials", Integer, nullable=False),
    Column("recurrences", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    sqlite_autoincrement=True,  # the id of a deleted job is never reused
)

events = Table(
    "zeus_events",
    metadata,
    _job(),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("payload", Text, nullable=False),  # JSON
    sqlite_with_rowid=False,
)

trials = Table(
    "zeus_trials",
    metadata,
    _job(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("request", Text, nullable=False),
    Column("sequence", Integer, nullable=False),  # of the event that began it
    Column("state", Text, nullable=False),  # "running", or how it ended
    Column("lease", Double, nullable=False),  # seconds
    Column("lease_until", Double),  # absent once it has ended
    Column("recurrence", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("max_power", Double, nullable=False),
    Column("batch_size", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("threshold", Double),
    Column("began", Double, nullable=False),
    Column("ended", Double),
    Column("epochs", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("energy", Double),  # absent if a part could not be measured
    Column("cost", Double, nullable=False),
    Column("metric", Double),
    Column("best", Double),  # absent for trials that were stored before there was this column
    Column("note", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    UniqueConstraint("job", "request", name="zeus_trials_request"),
    Index(
        "zeus_trials_lease",
        "lease_until",
        sqlite_where=text("lease_until IS NOT NULL"),
        postgresql_where=text("lease_until IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)

accounts = Table(
    "zeus_accounts",
    metadata,
    _job(),
    Column("sequence", Integer, nullable=False),  # of the last event that is in it
    Column("tally", Text),  # JSON of `Tally.to_dict`; absent until it is computed
    Column("energy", Double),  # of trials that have ended, like all that follows
    Column("time", Double),
    Column("cost", Double),
    Column("unmeasured", Integer, nullable=False),
    Column("wasted", Double),
    Column("saved_energy", Double),
    Column("saved_time", Double),
    Column("saved_cost", Double),
    Column("default_energy", Double),
    Column("default_time", Double),
    Column("default_cost", Double),
    Column("basis", Text, nullable=False),
    Column("comparison", Text, nullable=False),
    Column("trouble", Text, nullable=False),
    Index("zeus_accounts_saved_energy", "saved_energy"),
    Index("zeus_accounts_wasted", "wasted"),
    Index(
        "zeus_accounts_trouble",
        "job",
        sqlite_where=text("trouble <> ''"),
        postgresql_where=text("trouble <> ''"),
    ),
    Index(
        "zeus_accounts_tally",
        "job",
        sqlite_where=text("tally IS NULL"),
        postgresql_where=text("tally IS NULL"),
    ),
)

tags = Table(
    "zeus_tags",
    metadata,
    _job(),
    Column("tag", Text, primary_key=True),
    Index("zeus_tags_tag", "tag"),
)

profiles = Table(
    "zeus_profiles",
    metadata,
    _job(),
    Column("gpu", Text, primary_key=True),
    Column("gpus", Integer, primary_key=True, autoincrement=False),
    Column("batch_size", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("epoch_cost", Double),
    Column("load", Double),
    Column("power_limit", Double),
    Column("frontier", Text),  # JSON of `Frontier.to_dict`
    Column("key", Text),  # of jobs that share their profiles; absent if this job does not
    Index(
        "zeus_profiles_key",
        "key",
        sqlite_where=text("key IS NOT NULL"),
        postgresql_where=text("key IS NOT NULL"),
    ),
)

tokens = Table(
    "zeus_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # the token itself is not stored
    Column("job", Text),  # name of the only job it is valid for; absent if for all
    Column("note", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
    Column("read_only", Boolean, nullable=False, server_default=false()),
)

snapshots = Table(
    "zeus_snapshots",
    metadata,
    _job(),
    Column("sequence", Integer, nullable=False),  # of the last event that is in it
    Column("fingerprint", Text, nullable=False),
    Column("state", LargeBinary, nullable=False),
)


def _pipeline() -> Column[int]:
    key = ForeignKey("zeus_pipelines.id", ondelete="CASCADE")
    return Column("pipeline", _Id, key, primary_key=True)


pipelines = Table(
    "zeus_pipelines",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("degrees", Text, nullable=False),  # JSON
    Column("note", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("version", Integer, nullable=False),  # of the ranks' instructions
    Column("changes", Integer, nullable=False),  # counts changes of anything
    Column("inputs", Integer, nullable=False),  # counts changes of the planner's inputs
    Column("planned", Integer, nullable=False),
    Column("failure", Text, nullable=False),
    Column("stragglers", Text, nullable=False),  # JSON
    Column("objective", Text, nullable=False, server_default="{}"),  # JSON
    Column("previous", Text, nullable=False, server_default="[]"),  # JSON, of the run before
    sqlite_autoincrement=True,
)

pipeline_ranks = Table(
    "zeus_pipeline_ranks",
    metadata,
    _pipeline(),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),  # JSON: identity and state of the rank
    Column("sequence", Text),  # JSON: its instructions
    Column("measured", Text),  # JSON: their measured time and energy
)

pipeline_events = Table(
    "zeus_pipeline_events",
    metadata,
    _pipeline(),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
)

pipeline_histories = Table(
    "zeus_pipeline_histories",
    metadata,
    _pipeline(),
    Column("changes", Integer, nullable=False),  # counts how often it was written
    Column("record", Text, nullable=False),  # JSON: steps by plan and over time
)

services = Table(
    "zeus_services",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("heard", Double, nullable=False),  # when the latest message came
    Column("session", Text, nullable=False),  # of the process that controls it
    Column("number", BigInteger, nullable=False),  # of its latest report
    Column("record", Text, nullable=False),  # JSON: the latest run, and how it is going
    Column("past", Text, nullable=False),  # JSON: the runs before
    sqlite_autoincrement=True,
)

service_spans = Table(
    "zeus_service_spans",
    metadata,
    Column("service", _Id, ForeignKey("zeus_services.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # in the order of time
    Column("record", Text, nullable=False),  # JSON of `Span.to_dict`
)

arena_events = Table(
    "zeus_arena_events",
    metadata,
    Column("number", _Id, primary_key=True),
    Column("round", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("payload", Text, nullable=False),  # JSON
    # Nothing happens twice in a round, whichever processes report it.
    UniqueConstraint("round", "kind", name="zeus_arena_events_once"),
    sqlite_autoincrement=True,
)

board_rows = Table(
    "zeus_board_rows",
    metadata,
    Column("number", _Id, primary_key=True),
    Column("key", Text, nullable=False, unique=True),  # the same row is kept once
    Column("source", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("payload", Text, nullable=False),  # JSON
    sqlite_autoincrement=True,
)

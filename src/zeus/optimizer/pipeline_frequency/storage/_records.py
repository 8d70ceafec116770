"""Loads pipeline jobs from the database and saves them: table rows to `PipelineJob` and back."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from zeus.optimizer.pipeline_frequency.job._job import JobEvent, PipelineJob, Rank
from zeus.optimizer.pipeline_frequency.job._messages import (
    Measured,
    RankPlace,
    Straggler,
    sequence_from,
)
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._previous import PreviousProfile
from zeus.store._tables import pipeline_events, pipeline_histories, pipeline_ranks, pipelines
from zeus.store._values import damaged

_KEPT_EVENTS = 1_000  # per job


def names(connection: Connection, after: str = "", most: int = 10_000) -> list[str]:
    """Return up to `most` job names that sort after `after`, in order."""
    statement = (
        select(pipelines.c.name)
        .where(pipelines.c.name > after)
        .order_by(pipelines.c.name)
        .limit(most)
    )
    return [name for (name,) in connection.execute(statement)]


def count(connection: Connection) -> int:
    """Return the number of jobs."""
    return int(connection.execute(select(func.count()).select_from(pipelines)).scalar_one())


def changes(connection: Connection, name: str, *, lock: bool = False) -> tuple[int, int] | None:
    """Return a job's row id and its change counter; `None` if no job has this name.

    Args:
        connection: A connection in a transaction.
        name: Name of the job.
        lock: Whether to lock the row until the end of the transaction.
    """
    if not name.isprintable():
        return None  # no job has such a name, and some databases reject it in a query
    statement = select(pipelines.c.id, pipelines.c.changes).where(pipelines.c.name == name)
    row = connection.execute(statement.with_for_update() if lock else statement).first()
    return None if row is None else (row[0], row[1])


def load(connection: Connection, name: str, number: int) -> PipelineJob:
    """Load a job with all its ranks.

    Raises:
        DamagedJobError: If its stored record cannot be read.
    """
    try:
        return _load(connection, number)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(name, str(error)) from None


def _load(connection: Connection, number: int) -> PipelineJob:
    row = connection.execute(select(pipelines).where(pipelines.c.id == number)).mappings().one()
    dp, pp, tp = json.loads(row["degrees"])
    job = PipelineJob(
        row["name"],
        (dp, pp, tp),
        row["created"],
        row["updated"],
        row["note"],
        row["version"],
        row["changes"],
        row["inputs"],
        bool(row["planned"]),
        row["failure"],
    )
    for record in json.loads(row["stragglers"]):
        straggler = Straggler(**record)
        job.stragglers[straggler.dp_rank] = straggler
    job.objective = PipelineObjective(**json.loads(row["objective"]))
    job.previous = list(map(PreviousProfile.from_dict, json.loads(row["previous"])))
    statement = select(pipeline_ranks).where(pipeline_ranks.c.pipeline == number)
    for each in connection.execute(statement.order_by(pipeline_ranks.c.rank)).mappings():
        job.ranks[each["rank"]] = _rank(each)
    return job


def events(connection: Connection, number: int, most: int) -> list[JobEvent]:
    """Return up to `most` events of a job, the latest first."""
    columns = pipeline_events.c.at, pipeline_events.c.kind, pipeline_events.c.message
    statement = (
        select(*columns)
        .where(pipeline_events.c.pipeline == number)
        .order_by(pipeline_events.c.sequence.desc())
        .limit(most)
    )
    return [JobEvent(*row) for row in connection.execute(statement)]


def create(connection: Connection, job: PipelineJob) -> int:
    """Insert a new job and return its row id."""
    result = connection.execute(insert(pipelines), {"name": job.name, **_row(job)})
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def save(connection: Connection, number: int, job: PipelineJob) -> None:
    """Write the changes since the job was loaded or last saved."""
    connection.execute(update(pipelines).where(pipelines.c.id == number).values(**_row(job)))
    known = connection.execute(
        select(pipeline_ranks.c.rank).where(pipeline_ranks.c.pipeline == number)
    )
    stored = {rank for (rank,) in known}
    for rank in (stored - set(job.ranks)) | job.dirty:
        connection.execute(
            delete(pipeline_ranks).where(
                pipeline_ranks.c.pipeline == number, pipeline_ranks.c.rank == rank
            )
        )
    rows = [
        {"pipeline": number, "rank": rank, **_columns(job.ranks[rank])}
        for rank in sorted(job.dirty)
        if rank in job.ranks
    ]
    if rows:
        connection.execute(insert(pipeline_ranks), rows)
    job.dirty.clear()
    _save_events(connection, number, job)


def forget(connection: Connection, number: int) -> None:
    """Delete a job and everything that belongs to it."""
    for table in (pipeline_events, pipeline_ranks, pipeline_histories):
        connection.execute(delete(table).where(table.c.pipeline == number))
    connection.execute(delete(pipelines).where(pipelines.c.id == number))


def _save_events(connection: Connection, number: int, job: PipelineJob) -> None:
    if not job.happenings:
        return
    last = connection.execute(
        select(func.max(pipeline_events.c.sequence)).where(pipeline_events.c.pipeline == number)
    ).scalar()
    first = (last or 0) + 1
    connection.execute(
        insert(pipeline_events),
        [
            {"pipeline": number, "sequence": first + place, **asdict(each)}
            for place, each in enumerate(job.happenings)
        ],
    )
    connection.execute(
        delete(pipeline_events).where(
            pipeline_events.c.pipeline == number,
            pipeline_events.c.sequence < first + len(job.happenings) - _KEPT_EVENTS,
        )
    )
    job.happenings.clear()


def _row(job: PipelineJob) -> dict[str, Any]:
    return {
        "degrees": json.dumps(job.degrees),
        "note": job.note,
        "created": job.created,
        "updated": job.updated,
        "version": job.version,
        "changes": job.changes,
        "inputs": job.inputs,
        "planned": int(job.planned),
        "failure": job.failure,
        "stragglers": json.dumps([asdict(each) for each in job.stragglers.values()]),
        "objective": json.dumps(job.objective.to_dict()),
        "previous": json.dumps([each.to_dict() for each in job.previous]),
    }


def _columns(rank: Rank) -> dict[str, Any]:
    record = {
        "seat": asdict(rank.seat),
        "session": rank.session,
        "gpu": rank.gpu,
        "clocks": rank.clocks,
        "told_power": rank.told_power,
        "registered": rank.registered,
        "trouble": rank.trouble,
        "left": rank.left,
        "late": rank.late,
        "drifted": rank.drifted,
    }
    return {
        "record": json.dumps(record),
        "sequence": json.dumps(rank.sequence) if rank.sequence else None,
        "measured": None if rank.measured is None else json.dumps(rank.measured.to_dict()),
    }


def _rank(row: Any) -> Rank:
    record = json.loads(row["record"])
    measured = row["measured"]
    return Rank(
        **{
            **record,
            "seat": RankPlace(**record["seat"]),
            "clocks": tuple(record["clocks"]),
            "sequence": sequence_from(json.loads(row["sequence"] or "[]")),
            "measured": None if measured is None else Measured.from_dict(json.loads(measured)),
        }
    )

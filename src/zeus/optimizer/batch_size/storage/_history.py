"""Aggregates over the trials of a job, computed by the database to be fast for long histories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Integer,
    Select,
    bindparam,
    case,
    func,
    literal_column,
    select,
)

from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.store._tables import trials


@dataclass(frozen=True)
class Span:
    """Trials of a segment of recurrences with the same batch size, state and GPUs.

    Attributes:
        first: The first recurrence of the segment.
        batch_size: Batch size of the trials; `state`, `gpu` and `gpus` likewise.
        trials: Number of trials.
        time: Their total duration in seconds.
        measured: Number of trials with a measured energy; `energy` is theirs, in joules.
        bound: Maximum joules of the others.
        cost: Their total cost in joules.
        latest: Number of the last of them.
    """

    first: int
    batch_size: int
    state: str
    gpu: str
    gpus: int
    trials: int
    time: float
    measured: int
    energy: float
    bound: float
    cost: float
    latest: int


@dataclass(frozen=True)
class Total:
    """All trials of a job with the same batch size, state and GPUs.

    Attributes:
        gpu: Model of the GPUs; `gpus` is their number.
        batch_size: Batch size of the trials; `state` likewise.
        trials: Number of trials.
        epochs: Their total number of epochs.
        time: Their total duration in seconds.
        measured: Number of trials with a measured energy; `energy` is theirs, in joules, and
            `measured_time` in seconds.
        bound: Maximum joules of the others.
        cost: Their total cost in joules.
        latest: Number of the last of them.
    """

    gpu: str
    gpus: int
    batch_size: int
    state: str
    trials: int
    epochs: int
    time: float
    measured: int
    measured_time: float
    energy: float
    bound: float
    cost: float
    latest: int


_MEASURED = trials.c.energy.is_not(None)
_ENERGY = func.coalesce(func.sum(trials.c.energy), 0.0)
_BOUND = func.sum(case((_MEASURED, 0.0), else_=trials.c.max_power * trials.c.time))
_TOTALS = (
    select(
        trials.c.gpu,
        trials.c.gpus,
        trials.c.batch_size,
        trials.c.state,
        func.count(),
        func.sum(trials.c.epochs),
        func.sum(trials.c.time),
        func.count(trials.c.energy),
        func.sum(case((_MEASURED, trials.c.time), else_=0.0)),
        _ENERGY,
        _BOUND,
        func.sum(trials.c.cost),
        func.max(trials.c.number),
    )
    .where(trials.c.job == bindparam("job"))
    .group_by(trials.c.gpu, trials.c.gpus, trials.c.batch_size, trials.c.state)
    .order_by(trials.c.gpu, trials.c.gpus, trials.c.batch_size, trials.c.state)
)
_COSTS = (
    select(trials.c.batch_size, trials.c.cost)
    .where(
        trials.c.job == bindparam("job"),
        trials.c.gpu == bindparam("gpu"),
        trials.c.gpus == bindparam("gpus"),
        trials.c.state == bindparam("state"),
    )
    .order_by(trials.c.number.desc())
    .limit(bindparam("most"))
)


def spans(connection: Connection, job: int, after: int, width: int) -> list[Span]:
    """Return trials by segments of `width` recurrences, starting after recurrence `after`."""
    statement = _spans(width)
    found = connection.execute(statement, {"job": job, "after": after})
    return [Span(*row) for row in found]


def _spans(width: int) -> Select[Any]:
    # A literal: a database treats two parameters as different even if their values are equal.
    place = (trials.c.recurrence - 1) % literal_column(str(int(width)), Integer)
    first = (trials.c.recurrence - place).label("first")
    alike = (first, trials.c.batch_size, trials.c.state, trials.c.gpu, trials.c.gpus)
    latest = func.max(trials.c.number)
    return (
        select(
            *alike,
            func.count(),
            func.sum(trials.c.time),
            func.count(trials.c.energy),
            _ENERGY,
            _BOUND,
            func.sum(trials.c.cost),
            latest,
        )
        .where(trials.c.job == bindparam("job"), trials.c.recurrence > bindparam("after"))
        .group_by(*alike)
        .order_by(first, latest)
    )


def totals(connection: Connection, job: int) -> list[Total]:
    """Return totals of all trials, by GPU, batch size and state."""
    return [Total(*row) for row in connection.execute(_TOTALS, {"job": job})]


def costs(
    connection: Connection, job: int, gpu: GpuModel, state: str, most: int
) -> list[tuple[int, float]]:
    """Return batch size and cost of the latest trials in a state."""
    values = {"job": job, "gpu": gpu.name, "gpus": gpu.number, "state": state, "most": most}
    return [(size, cost) for size, cost in connection.execute(_COSTS, values)]

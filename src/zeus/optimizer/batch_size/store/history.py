"""Sums over the trials of a job, worked out by the database: a long life is quickly told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Integer, Select, bindparam, func, literal_column, select, tuple_

from zeus.optimizer.batch_size.events import GpuModel
from zeus.optimizer.batch_size.store.tables import trials


@dataclass(frozen=True)
class Span:
    """Trials of neighbouring recurrences that are alike.

    Attributes:
        first: The first recurrence of the stretch.
        batch_size: Of the trials, as are `state`, `gpu` and `gpus`.
        trials: How many there are.
        cost: Joules of cost, of all of them.
        latest: Number of the last of them.
    """

    first: int
    batch_size: int
    state: str
    gpu: str
    gpus: int
    trials: int
    cost: float
    latest: int


@dataclass(frozen=True)
class Total:
    """All trials of a job that are alike.

    Attributes:
        gpu: Model of the GPUs; `gpus` how many; `batch_size` and `state` likewise.
        trials: How many there are.
        epochs: Of all of them.
        time: Seconds.
        measured: How many of them have an energy; `energy` is theirs, in joules.
        cost: Joules of cost.
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
    energy: float
    cost: float
    latest: int


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
        func.coalesce(func.sum(trials.c.energy), 0.0),
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
_LATEST = select(trials.c.job, trials.c.batch_size, trials.c.state).where(
    tuple_(trials.c.job, trials.c.number).in_(bindparam("pairs", expanding=True))
)


def spans(connection: Connection, job: int, after: int, width: int) -> list[Span]:
    """Trials by stretches of so many recurrences, from the one after `after`."""
    statement = _spans(width)
    found = connection.execute(statement, {"job": job, "after": after})
    return [Span(*row) for row in found]


def _spans(width: int) -> Select[Any]:
    # Written out: a database takes two parameters for different even if they are the same.
    place = (trials.c.recurrence - 1) % literal_column(str(int(width)), Integer)
    first = (trials.c.recurrence - place).label("first")
    alike = (first, trials.c.batch_size, trials.c.state, trials.c.gpu, trials.c.gpus)
    latest = func.max(trials.c.number)
    return (
        select(*alike, func.count(), func.sum(trials.c.cost), latest)
        .where(trials.c.job == bindparam("job"), trials.c.recurrence > bindparam("after"))
        .group_by(*alike)
        .order_by(first, latest)
    )


def totals(connection: Connection, job: int) -> list[Total]:
    """All trials, by GPU, batch size and state."""
    return [Total(*row) for row in connection.execute(_TOTALS, {"job": job})]


def costs(
    connection: Connection, job: int, gpu: GpuModel, state: str, most: int
) -> list[tuple[int, float]]:
    """Batch size and cost of the latest trials in a state."""
    values = {"job": job, "gpu": gpu.name, "gpus": gpu.number, "state": state, "most": most}
    return [(size, cost) for size, cost in connection.execute(_COSTS, values)]


def latest(connection: Connection, pairs: list[tuple[int, int]]) -> dict[int, tuple[int, str]]:
    """Batch size and state of trials, by their job; given as jobs and numbers."""
    if not pairs:
        return {}
    found = connection.execute(_LATEST, {"pairs": pairs})
    return {job: (size, state) for job, size, state in found}

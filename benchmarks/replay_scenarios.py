"""Synthetic GPUs, jobs whose environment changes, and jobs whose recurrences overlap.

Built from recorded traces. Synthetic GPUs: power traces, distorted in the ways in which GPUs
differ; a policy that was overfitted to the GPUs it was developed on does worse there. Data drift:
the number of epochs at each batch size comes from one trace after another, or is interpolated
between two. A change of GPU: from some recurrence on, the same training runs on another model.
Overlap: recurrences are submitted before earlier ones have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zeus.errors import TraceError
from zeus.replay._jobs import Job
from zeus.replay._table import JobTable
from zeus.replay.cluster._groups import Groups


def bent(table: JobTable, number: int) -> JobTable:
    """Return a table of the same workload on a synthetic GPU.

    Four things change: how speed depends on the batch size (a slope, and a fixed cost of each
    step), how much a low power limit slows it down, how much power a light load draws, and the
    range of the power limits.

    Args:
        table: Table of a recorded GPU.
        number: Number of the synthetic GPU; the same GPU for every workload.
    """
    generator = np.random.default_rng([number, sum(map(ord, table.gpu))])
    slope = generator.uniform(-0.2, 0.2)
    overhead = np.exp(generator.uniform(np.log(0.02), np.log(0.5)))
    stiffness = generator.uniform(0.5, 1.5)
    scale = np.exp(generator.uniform(np.log(0.6), np.log(1.6)))
    idle = generator.uniform(0.0, 0.15)
    relative = np.array(table.batch_sizes)[:, None] / table.batch_sizes[table.default]
    time = table.time * relative**slope * (1 + overhead / relative) / (1 + overhead)
    fastest = np.nanmin(time, axis=1, keepdims=True)
    time = fastest * (time / fastest) ** stiffness
    power = scale * ((1 - idle) * table.power + idle * table.max_power)
    return replace(
        table,
        gpu=f"{table.gpu}~{number}",
        power_limits=tuple(float(scale * limit) for limit in table.power_limits),
        max_power=float(scale * table.max_power),
        time=time,
        power=power,
    )


def blended(table: JobTable, other: JobTable, share: float) -> JobTable:
    """Return a table whose epochs are interpolated between those of two tables.

    Runs are matched by rank, so that a lucky run stays one. A batch size that never reaches the
    target in one of the tables takes the epochs of the nearer table.

    Args:
        table: Source of everything but the epochs.
        other: A table with the same batch sizes.
        share: Weight of the other table, from 0 to 1.
    """
    runs = max(table.epochs.shape[1], other.epochs.shape[1])
    first, second = _ranked(table.epochs, runs), _ranked(other.epochs, runs)
    nearer = first if share < 0.5 else second
    both = np.isfinite(first) & np.isfinite(second)
    mixed = np.where(both, first, 1.0) ** (1 - share) * np.where(both, second, 1.0) ** share
    return replace(table, epochs=np.where(both, np.maximum(np.round(mixed), 1.0), nearer))


def _ranked(epochs: np.ndarray, runs: int) -> np.ndarray:
    """Return `runs` quantiles of the recorded runs of each batch size."""
    ranked = np.empty((len(epochs), runs))
    for row, recorded in enumerate(epochs):
        known = np.sort(recorded[~np.isnan(recorded)])
        ranked[row] = known[(np.arange(runs) * len(known)) // runs]
    return ranked


def restricted(table: JobTable, batch_sizes: tuple[int, ...]) -> JobTable:
    """Return a table of only some batch sizes; the default is the nearest remaining one."""
    kept = [i for i, size in enumerate(table.batch_sizes) if size in batch_sizes]
    if not kept:
        raise TraceError(f"{table.workload} on {table.gpu} has none of {batch_sizes}")
    log = np.log([table.batch_sizes[i] for i in kept])
    default = int(np.abs(log - np.log(table.batch_sizes[table.default])).argmin())
    return replace(
        table,
        batch_sizes=tuple(table.batch_sizes[i] for i in kept),
        default=default,
        epochs=table.epochs[kept],
        time=table.time[kept],
        power=table.power[kept],
    )


def common(tables: Sequence[JobTable]) -> list[JobTable]:
    """Restrict tables to the batch sizes that all of them have.

    The default is that of the first table.
    """
    sizes = tuple(
        size for size in tables[0].batch_sizes if all(size in table.batch_sizes for table in tables)
    )
    kept = [restricted(table, sizes) for table in tables]
    return [replace(table, default=kept[0].default) for table in kept]


def drifting(
    tables: Sequence[JobTable], policy: str, seed: int, *, slices: int, hold: int, window: int
) -> Job:
    """Return a job whose data drift from each table to the next.

    Args:
        tables: Tables of one workload or several, all with the same batch sizes. Only their epochs
            are used, the rest comes from the first.
        policy: Name of the policy.
        seed: Seed for drawing recorded runs.
        slices: Recurrences for the transition from one table to the next; 1 is a sudden change.
        hold: Recurrences at each table.
        window: Number of latest observations that the policy uses.
    """
    steps: list[JobTable] = []
    schedule: list[int] = []
    for place, table in enumerate(tables):
        here = blended(tables[0], table, 1.0)
        if place:
            before = blended(tables[0], tables[place - 1], 1.0)
            for step in range(1, slices):
                steps.append(blended(before, here, step / slices))
                schedule.append(len(steps) - 1)
        steps.append(here)
        schedule += [len(steps) - 1] * hold
    return Job(steps[0].spec(policy, seed, window=window), steps, schedule, seed)


def moving(tables: Sequence[JobTable], policy: str, seed: int, *, before: int, after: int) -> Job:
    """Return a job that runs on one GPU model, then on another.

    Args:
        tables: The same workload on both models.
        policy: Name of the policy.
        seed: Seed for drawing recorded runs.
        before: Recurrences on the first model.
        after: Recurrences on the second model.
    """
    first, second = common(tables)
    return Job(first.spec(policy, seed), [first, second], [0] * before + [1] * after, seed)


def overlapping(
    tables: Sequence[JobTable],
    seeds: Sequence[int],
    recurrences: Sequence[int],
    *,
    at_once: float,
    regular: bool = False,
) -> Groups:
    """Return jobs that are submitted whether or not earlier recurrences have ended.

    Submission times do not depend on the policy: they follow a schedule, or the arrival of new
    data. So a policy that makes runs shorter has fewer at the same time. The default, at full
    power, has `at_once` on average.

    Args:
        tables: One for each job; every job is replayed once per seed.
        seeds: Seeds for the submissions and for drawing recorded runs.
        recurrences: Number of recurrences of each job.
        at_once: Average number of concurrent recurrences, if all run with the default.
        regular: Whether recurrences are submitted at equal intervals; otherwise independently of
            each other (a Poisson process).
    """
    starts: list[np.ndarray] = []
    for table, count in zip(tables, recurrences, strict=True):
        _, duration = table.default_expectation()
        for seed in seeds:
            generator = np.random.default_rng([seed, count])
            gaps = np.ones(count) if regular else generator.exponential(size=count)
            gaps[0] = 0.0
            starts.append(np.cumsum(gaps) * duration / at_once)
    lengths = np.repeat(np.asarray(recurrences, dtype=np.int64), len(seeds))
    whole = np.ones(int(lengths.sum()))
    return Groups(
        table=np.repeat(np.arange(len(tables)), len(seeds)),
        seed=np.tile(np.asarray(seeds, dtype=np.int64), len(tables)),
        first=np.concatenate(([0], np.cumsum(lengths))),
        start=np.concatenate(starts),
        weight=whole,
        stretch=whole,
    )

"""Jobs whose world changes, and jobs whose recurrences overlap.

Built from recorded traces. Data drift: how many epochs a job needs at each batch size is taken from
one trace after another, or from in between. GPUs are swapped: the same training runs on another
from some day on. Or recurrences are submitted before earlier ones have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zeus.replay.cluster.lockstep import Groups
from zeus.replay.engine import Job
from zeus.replay.table import JobTable


def blended(table: JobTable, other: JobTable, share: float) -> JobTable:
    """A table whose epochs lie between those of two, in proportion.

    Runs are matched by rank, so that a lucky run stays one. A batch size that never reaches the
    target in one of them does what the nearer one does.

    Args:
        table: Gives everything but the epochs.
        other: With the same batch sizes.
        share: 0 is the first, 1 the other.
    """
    runs = max(table.epochs.shape[1], other.epochs.shape[1])
    first, second = _ranked(table.epochs, runs), _ranked(other.epochs, runs)
    nearer = first if share < 0.5 else second
    both = np.isfinite(first) & np.isfinite(second)
    mixed = np.where(both, first, 1.0) ** (1 - share) * np.where(both, second, 1.0) ** share
    return replace(table, epochs=np.where(both, np.maximum(np.round(mixed), 1.0), nearer))


def _ranked(epochs: np.ndarray, runs: int) -> np.ndarray:
    """Quantiles of the recorded runs, so many of each batch size."""
    ranked = np.empty((len(epochs), runs))
    for row, recorded in enumerate(epochs):
        known = np.sort(recorded[~np.isnan(recorded)])
        ranked[row] = known[(np.arange(runs) * len(known)) // runs]
    return ranked


def common(tables: Sequence[JobTable]) -> list[JobTable]:
    """The tables with only the batch sizes that all of them have.

    The default is that of the first.
    """
    sizes = tuple(
        size for size in tables[0].batch_sizes if all(size in table.batch_sizes for table in tables)
    )
    kept = [table.restricted(sizes) for table in tables]
    return [replace(table, default=kept[0].default) for table in kept]


def drifting(
    tables: Sequence[JobTable], policy: str, seed: int, *, slices: int, hold: int, window: int
) -> Job:
    """A job whose data drift from each table to the next.

    Args:
        tables: Of one workload or several, all with the same batch sizes; only their epochs count,
            the rest is that of the first.
        policy: Name of the policy.
        seed: Of the runs that are drawn.
        slices: Recurrences of the way from one table to the next; 1 is a sudden change.
        hold: Recurrences at each table.
        window: Of the policy.
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
    """A job that runs on one GPU model, then on another.

    Args:
        tables: The same workload on both.
        policy: Name of the policy.
        seed: Of the runs that are drawn.
        before: Recurrences on the first.
        after: Recurrences on the second.
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
    """Jobs that are submitted whether or not earlier recurrences have ended.

    When is nobody's decision: by a schedule, or whenever there are new data. So a policy that makes
    runs shorter has fewer at the same time. The default, at full power, has `at_once` on average.

    Args:
        tables: One for each job, which lives once with every seed.
        seeds: Of the submissions and of the runs that are drawn.
        recurrences: Of each job.
        at_once: Recurrences that run at the same time on average, if all are run as the default.
        regular: Whether they are submitted at equal intervals; otherwise independently of each
            other (a Poisson process).
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

"""Jobs whose world changes: data that drift, moves to another GPU model, submissions that overlap.

A scenario is the table that applies to each recurrence of a job. Data drift: the epochs at each
batch size become those of another table, and the rest stays. A move: from some recurrence on, the
same training runs on another GPU model. Overlap: recurrences are submitted whether or not earlier
ones have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zeus.errors import TraceError
from zeus.optimizer.batch_size.job._job_batch import Floats
from zeus.replay._jobs import Job
from zeus.replay._table import JobTable

# Corners of each drift: fractions of the recurrences, and shares of the other table there.
_CORNERS = {
    "linear": ((0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.0, 0.0, 1.0, 1.0, 0.0, 0.0)),
    "ramp": ((0.0, 1 / 3, 2 / 3, 1.0), (0.0, 0.0, 1.0, 1.0)),
}
_CYCLES = 2  # of a sinusoidal drift
# Shares are rounded to this fraction, so that a long job needs few tables.
_STEPS = 20
DRIFTS = ("sudden", "linear", "sinusoidal", "ramp")
"""Drifts by name; see `drift_shares`."""


@dataclass(frozen=True)
class Scenario:
    """What a job meets.

    Attributes:
        tables: All tables of the job; the first has its specification.
        schedule: Index of the table that applies, by recurrence.
        overlap: How many recurrences would run at the same time on average, if all ran with the
            default at full power; `None` if each waits for the one before.
        regular: Whether recurrences that overlap are submitted at equal intervals; otherwise
            independently of each other (a Poisson process).
        label: What changes, in words.
    """

    tables: Sequence[JobTable]
    schedule: Sequence[int]
    overlap: float | None = None
    regular: bool = False
    label: str = ""

    @classmethod
    def steady(cls, table: JobTable, recurrences: int | None = None) -> Scenario:
        """Return a scenario in which nothing changes.

        Args:
            table: The table.
            recurrences: By default twice the number of configurations.
        """
        return cls([table], [0] * (table.recurrences if recurrences is None else recurrences))

    @property
    def recurrences(self) -> int:
        """Number of recurrences of a job."""
        return len(self.schedule)

    @property
    def last(self) -> JobTable:
        """The table of the last recurrence."""
        return self.tables[self.schedule[-1]]

    def jobs(self, policy: str, seeds: Iterable[int], **options: float | int | None) -> list[Job]:
        """Return one job for each seed.

        Args:
            policy: Name of the policy.
            seeds: Seeds of the policy, of recorded runs and of submissions.
            options: Fields of the specification: `beta`, `window`, `pruning_rounds`.
        """
        return [
            Job(
                self.tables[0].spec(policy, seed, **options),
                self.tables,
                self.schedule,
                seed,
                None if self.overlap is None else self._submissions(seed, self.overlap),
            )
            for seed in seeds
        ]

    def _submissions(self, seed: int, overlap: float) -> Floats:
        """Return when the recurrences are submitted, in seconds.

        This does not depend on the policy: recurrences follow a schedule, or the arrival of new
        data. So a policy that makes runs shorter has fewer at the same time.
        """
        table = self.tables[0]
        _, duration = table.default_expectation()
        if not np.isfinite(duration):
            raise TraceError(
                f"jobs of {table.workload} on {table.gpu} cannot overlap by the duration of the "
                f"default {table.batch_sizes[table.default]}, which never reaches the target"
            )
        generator = np.random.default_rng([seed, self.recurrences])
        ones = np.ones(self.recurrences)
        gaps = ones if self.regular else generator.exponential(size=self.recurrences)
        gaps[0] = 0.0
        starts: Floats = np.cumsum(gaps) * duration / overlap
        return starts


# --- drift ----------------------------------------------------------------------------------------


def drift_shares(kind: str, recurrences: int) -> Floats:
    """Return the share of the other table, by recurrence.

    Args:
        kind: "sudden" jumps there and back, after a third of the recurrences each. "linear" stays,
            goes there, stays, comes back and stays, a fifth of the recurrences each. "sinusoidal"
            goes there and back twice. "ramp" stays, goes there and stays, a third each.
        recurrences: Number of recurrences.
    """
    part = np.arange(recurrences) / max(recurrences - 1, 1)
    if kind == "sudden":
        shares = (np.arange(recurrences) * 3 // recurrences == 1).astype(np.float64)
    elif kind == "sinusoidal":
        shares = 0.5 - 0.5 * np.cos(2 * np.pi * _CYCLES * part)
    else:
        shares = np.interp(part, *_CORNERS[kind])
    rounded: Floats = np.round(shares * _STEPS) / _STEPS
    return rounded


def drifting(table: JobTable, other: JobTable, kind: str, recurrences: int) -> Scenario:
    """Return a scenario in which the epochs become those of another table.

    Args:
        table: The workload on a GPU.
        other: Whose epochs they become; only batch sizes that both have are offered.
        kind: One of `DRIFTS`.
        recurrences: Number of recurrences.
    """
    table, other = common([table, other])
    shares, schedule = np.unique(drift_shares(kind, recurrences), return_inverse=True)
    return Scenario([blended(table, other, share) for share in shares], schedule.tolist())


def farthest(table: JobTable, others: Iterable[JobTable]) -> JobTable:
    """Return the table whose best batch size is farthest from that of a table.

    Its data are those where what was learned helps the least. Of several it is the one with the
    most similar number of epochs; if the best batch size is the same in all, the least similar.

    Args:
        table: The table.
        others: Those to choose from, as of other targets; some may be out of reach.

    Raises:
        TraceError: If none of them can be reached.
    """

    def best(each: JobTable) -> tuple[float, float]:
        arm = each.optimum.arm
        return float(np.log(each.batch_sizes[arm])), float(np.log(each.expected_epochs[arm]))

    size, epochs = best(table)

    def distance(each: JobTable) -> tuple[float, float]:
        other, its_epochs = best(each)
        away, change = abs(other - size), abs(its_epochs - epochs)
        return away, -change if away > 0 else change

    reachable = [each for each in others if np.isfinite(each.expected_epochs).any()]
    if not reachable:
        raise TraceError(f"{table.workload} on {table.gpu} has no other target within reach")
    return max(reachable, key=distance)


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


def _ranked(epochs: Floats, runs: int) -> Floats:
    """Return `runs` quantiles of the recorded runs of each batch size."""
    ranked = np.empty((len(epochs), runs))
    for row, recorded in enumerate(epochs):
        known = np.sort(recorded[~np.isnan(recorded)])
        ranked[row] = known[(np.arange(runs) * len(known)) // runs]
    return ranked


# --- moves ----------------------------------------------------------------------------------------


def moving(tables: Sequence[JobTable], stays: Sequence[int]) -> Scenario:
    """Return a scenario of moves from one GPU model to the next.

    Args:
        tables: The same workload on each model, in the order of the moves; a model may come again.
            Only batch sizes that all have are offered.
        stays: Recurrences on each of them.
    """
    restricted = common(tables)
    schedule = [place for place, stay in enumerate(stays) for _ in range(stay)]
    return Scenario(restricted, schedule)


def with_default(table: JobTable, batch_size: int) -> JobTable:
    """Return a table with another default batch size.

    Args:
        table: The table.
        batch_size: One of its batch sizes.

    Raises:
        TraceError: If it is none of them.
    """
    if batch_size not in table.batch_sizes:
        offered = ", ".join(map(str, table.batch_sizes))
        raise TraceError(
            f"the default must be one of the batch sizes {offered} of {table.workload} on "
            f"{table.gpu}, but got {batch_size}"
        )
    return replace(table, default=table.batch_sizes.index(batch_size))


def restricted(table: JobTable, batch_sizes: tuple[int, ...]) -> JobTable:
    """Return a table of only some batch sizes; the default is the nearest remaining one.

    Args:
        table: The table.
        batch_sizes: Those to keep.

    Raises:
        TraceError: If it has none of them.
    """
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

    Args:
        tables: The tables.
    """
    sizes = tuple(
        size for size in tables[0].batch_sizes if all(size in table.batch_sizes for table in tables)
    )
    kept = [restricted(table, sizes) for table in tables]
    return [replace(table, default=kept[0].default) for table in kept]

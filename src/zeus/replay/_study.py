"""Replays of whole studies: GPUs by workloads by policies by seeds, with one record of each.

`zeus replay --json` writes these records. Ratios against the default compare with the expected time
and energy of the default, which follow from the traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zeus.replay._jobs import Job, Result, replay
from zeus.replay._table import JobTable, relative

# More jobs at once are no faster and only take memory.
_MAX_JOBS = 2048


@dataclass(frozen=True)
class Record:
    """One job over its recurrences.

    Attributes:
        gpu: Name of the GPU model.
        workload: Name of the workload.
        policy: Name of the policy.
        seed: Seed for drawing recorded runs, and of the policy.
        recurrences: Number of recurrences of the job.
        trials: Number of runs, retries included.
        eta_last5_vs_default: Energy of the last five recurrences over that of the default; `None`
            if the default never reaches the target. `tta_last5_vs_default` is the ratio of times.
        cumulative_regret: Cost beyond that of the oracle, in units of the oracle's cost of one run.
        cumulative_eta_vs_default: Energy of all recurrences over that of the default;
            `cumulative_tta_vs_default` is the ratio of times.
        last_batch_size: Batch size of the last recurrence.
        last_power_limit: Power limit of the last recurrence, in watts.
        optimal_batch_size: Batch size of the oracle.
        optimal_power_limit: Power limit of the oracle, in watts.
    """

    gpu: str
    workload: str
    policy: str
    seed: int
    recurrences: int
    trials: int
    eta_last5_vs_default: float | None
    tta_last5_vs_default: float | None
    cumulative_regret: float
    cumulative_eta_vs_default: float | None
    cumulative_tta_vs_default: float | None
    last_batch_size: int
    last_power_limit: float
    optimal_batch_size: int
    optimal_power_limit: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def study(
    tables: Sequence[JobTable],
    policy: str,
    seeds: Iterable[int],
    *,
    recurrences: int | None = None,
    progress: Callable[[float], None] | None = None,
    **options: float | int | None,
) -> list[Record]:
    """Replay one policy on every table with every seed.

    Args:
        tables: Workloads on GPUs.
        policy: Name of the policy.
        seeds: Seeds; each gives one job per table.
        recurrences: Recurrences of each job; by default twice its number of configurations, as in
            the paper.
        progress: Called from time to time with the fraction that is done.
        options: Fields of the specification: `beta`, `window`, `pruning_rounds`.
    """
    jobs = [
        Job(table.spec(policy, seed, **options), [table], [0] * count, seed)
        for table in tables
        for count in [table.recurrences if recurrences is None else recurrences]
        for seed in seeds
    ]
    records: list[Record] = []
    for first in range(0, len(jobs), _MAX_JOBS):
        chunk = jobs[first : first + _MAX_JOBS]

        def report(share: float, first: int = first, size: int = len(chunk)) -> None:
            if progress is not None:
                progress((first + share * size) / len(jobs))

        records += _records(chunk, replay(chunk, progress=report))
    return records


def _records(jobs: Sequence[Job], result: Result) -> Iterator[Record]:
    for row, job in enumerate(jobs):
        table = job.tables[0]
        energy, time = table.default_expectation()
        runs = int(result.recurrences[row])
        best = table.optimum
        yield Record(
            gpu=table.gpu,
            workload=table.workload,
            policy=job.spec.policy,
            seed=job.seed,
            recurrences=runs,
            trials=int(result.trials[row]),
            eta_last5_vs_default=relative(np.nanmean(result.last_energy[row]), energy),
            tta_last5_vs_default=relative(np.nanmean(result.last_time[row]), time),
            cumulative_regret=float(result.regret[row]),
            cumulative_eta_vs_default=relative(result.energy[row], energy * runs),
            cumulative_tta_vs_default=relative(result.time[row], time * runs),
            last_batch_size=table.batch_sizes[int(result.last_arm[row])],
            last_power_limit=table.power_limits[int(result.last_power[row])],
            optimal_batch_size=table.batch_sizes[best.arm],
            optimal_power_limit=table.power_limits[best.power],
        )

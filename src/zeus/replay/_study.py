"""Replays of whole studies: GPUs by workloads by policies by seeds, with one record of each.

`zeus replay --json` writes these records. Ratios against the default compare with the expected time
and energy of the default, which follow from the traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Floats
from zeus.optimizer.batch_size.policies._base import Policy
from zeus.replay._jobs import FIRST_RECURRENCES, Job, Result, replay
from zeus.replay._scenarios import Scenario
from zeus.replay._table import JobTable, relative

# More jobs at once are no faster and only take memory.
_MAX_JOBS = 2048
_ANY = "zeus"  # for the specification of jobs whose policy is not registered


@dataclass(frozen=True)
class Record:
    """One job over its recurrences.

    Attributes:
        gpu: Name of the GPU model.
        workload: Name of the workload.
        scenario: What changes for the job, in words; empty if nothing does.
        policy: Name of the policy.
        seed: Seed for drawing recorded runs, and of the policy.
        recurrences: Number of recurrences of the job.
        trials: Number of runs, retries included.
        unreached: Recurrences that were abandoned.
        energy: Joules of all recurrences; `time` in seconds, and `cost` in joules.
        eta_last5_vs_default: Energy of the last five recurrences over that of the default; `None`
            if the default never reaches the target. `tta_last5_vs_default` is the ratio of times.
        cumulative_regret: Cost beyond that of the oracle, in units of the oracle's cost of one run.
        too_expensive_after_100: Of the recurrences after the first 100, the fraction whose
            configuration is expected to cost more than 5 % above the oracle's; `None` if there are
            none.
        cumulative_eta_vs_default: Energy of all recurrences over that of the default;
            `cumulative_tta_vs_default` is the ratio of times.
        last_batch_size: Batch size of the last recurrence.
        last_power_limit: Power limit of the last recurrence, in watts.
        optimal_batch_size: Batch size of the oracle, in the last recurrence.
        optimal_power_limit: Power limit of the oracle, in watts.
    """

    gpu: str
    workload: str
    scenario: str
    policy: str
    seed: int
    recurrences: int
    trials: int
    unreached: int
    energy: float
    time: float
    cost: float
    eta_last5_vs_default: float | None
    tta_last5_vs_default: float | None
    cumulative_regret: float
    too_expensive_after_100: float | None
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
    scenarios: Sequence[JobTable | Scenario],
    policy: str | Policy,
    seeds: Iterable[int],
    *,
    recurrences: int | None = None,
    progress: Callable[[float], None] | None = None,
    measure_sizes: bool = True,
    **options: float | int | None,
) -> list[Record]:
    """Replay one policy in every scenario with every seed.

    Args:
        scenarios: What the jobs meet: workloads on GPUs that stay as they are, or scenarios.
        policy: Name of the policy, or a policy that is not registered.
        seeds: Seeds; each gives one job per scenario.
        recurrences: Recurrences of each job where nothing changes; by default twice its number of
            configurations, as in the paper.
        progress: Called from time to time with the fraction that is done.
        measure_sizes: As in `replay`.
        options: Fields of the specification: `beta`, `window`, `pruning_rounds`.
    """
    chosen = list(seeds)
    whole = [
        Scenario.steady(each, recurrences) if isinstance(each, JobTable) else each
        for each in scenarios
    ]
    named = policy if isinstance(policy, str) else _ANY
    jobs = [job for each in whole for job in each.jobs(named, chosen, **options)]
    of_job = [each for each in whole for _ in chosen]
    records: list[Record] = []
    for first in range(0, len(jobs), _MAX_JOBS):
        chunk = jobs[first : first + _MAX_JOBS]

        def report(share: float, first: int = first, size: int = len(chunk)) -> None:
            if progress is not None:
                progress((first + share * size) / len(jobs))

        result = replay(
            chunk,
            policy=None if isinstance(policy, str) else policy,
            progress=report,
            measure_sizes=measure_sizes,
        )
        name = policy if isinstance(policy, str) else policy.name
        records += _records(name, chunk, of_job[first : first + _MAX_JOBS], result)
    return records


def _records(
    policy: str, jobs: Sequence[Job], scenarios: Sequence[Scenario], result: Result
) -> Iterator[Record]:
    expectations: dict[int, tuple[Floats, Floats]] = {}
    for row, (job, scenario) in enumerate(zip(jobs, scenarios, strict=True)):
        if id(scenario) not in expectations:
            expectations[id(scenario)] = _with_default(scenario)
        energy, time = expectations[id(scenario)]
        runs, table, best = scenario.recurrences, scenario.last, scenario.last.optimum
        late = runs - FIRST_RECURRENCES
        last = slice(-result.last_energy.shape[1], None)
        yield Record(
            gpu=scenario.tables[0].gpu,
            workload=scenario.tables[0].workload,
            scenario=scenario.label,
            policy=policy,
            seed=job.seed,
            recurrences=runs,
            trials=int(result.trials[row]),
            unreached=int(result.unreached[row]),
            energy=float(result.energy[row]),
            time=float(result.time[row]),
            cost=float(result.cost[row]),
            eta_last5_vs_default=relative(np.nanmean(result.last_energy[row]), energy[last].mean()),
            tta_last5_vs_default=relative(np.nanmean(result.last_time[row]), time[last].mean()),
            cumulative_regret=float(result.regret[row]),
            too_expensive_after_100=int(result.too_expensive[row]) / late if late > 0 else None,
            cumulative_eta_vs_default=relative(result.energy[row], energy.sum()),
            cumulative_tta_vs_default=relative(result.time[row], time.sum()),
            last_batch_size=table.batch_sizes[int(result.last_arm[row])],
            last_power_limit=table.power_limits[int(result.last_power[row])],
            optimal_batch_size=table.batch_sizes[best.arm],
            optimal_power_limit=table.power_limits[best.power],
        )


def _with_default(scenario: Scenario) -> tuple[Floats, Floats]:
    """Return the expected joules and seconds of the default, by recurrence."""
    each = np.array([table.default_expectation() for table in scenario.tables])
    energy, time = each[np.asarray(scenario.schedule)].T
    return energy, time

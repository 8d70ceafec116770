"""Replays a whole cluster with several policies, and adds up time and energy of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Floats, Ints
from zeus.replay._table import JobTable, relative
from zeus.replay.cluster._assignment import Assignment, Scale, assigned
from zeus.replay.cluster._engines import run_tasks
from zeus.replay.cluster._groups import Sums
from zeus.replay.cluster._tasks import cut
from zeus.replay.cluster._trace import ClusterTrace

ALL_WORKLOADS = "all"
POLICIES = ("default", "grid", "paper", "zeus")


@dataclass(frozen=True)
class ClusterRecord:
    """Totals over the jobs of one workload with one policy.

    Attributes:
        gpu: Name of the GPU model.
        workload: Name of the workload, or "all" for the whole cluster.
        policy: Name of the policy.
        seed: Seed of all draws.
        groups: Number of groups that the workload represents, with `jobs` jobs in total.
        mean_runtime: Mean over groups of their mean runtime in the cluster, in seconds.
        trials: Number of runs, retries included.
        unreached: Jobs that were abandoned.
        energy: Total energy in joules.
        time: Total time in seconds.
        energy_vs_default: Energy over the expected energy of the default; `None` if the default
            never reaches the target. `time_vs_default` is the ratio of times.
        cumulative_regret: Cost beyond that of the oracle, in units of the oracle's cost of one run.
        overlapping_jobs: Jobs that started while another one of their group was running.
        most_at_once: Maximum number of jobs of one group that were running at the same time.
    """

    gpu: str
    workload: str
    policy: str
    seed: int
    groups: int
    jobs: int
    mean_runtime: float
    trials: int
    unreached: int
    energy: float
    time: float
    energy_vs_default: float | None
    time_vs_default: float | None
    cumulative_regret: float
    overlapping_jobs: int
    most_at_once: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ClusterResult:
    """Result of a simulation.

    Attributes:
        records: For each policy, one record for each workload, from the shortest to the longest,
            and one for all of them.
        by_group: Totals of each group, by policy; in the order of the trace's groups.
        table: Index of the table of each group.
        size: Sum of the sizes of each group's jobs, in recorded runs of the workload.
    """

    records: list[ClusterRecord]
    by_group: dict[str, Sums]
    table: Ints
    size: Floats


def simulate(
    trace: ClusterTrace,
    tables: Sequence[JobTable],
    policies: Sequence[str] = POLICIES,
    *,
    seed: int = 0,
    scale: Scale = "linear",
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[float], None] | None = None,
    **options: float | int | None,
) -> ClusterResult:
    """Replay all jobs of a cluster with each policy.

    Args:
        trace: From `read_trace`, or `made_up_trace`.
        tables: Tables of the workloads, on one GPU, from `job_table`.
        policies: Names of policies.
        seed: Seed of all draws.
        scale: Scale on which groups are clustered: mean runtime ("linear", as in the paper), or
            its logarithm ("log").
        engine: "local" or "ray"; the result is the same.
        workers: Number of processes; by default one per core.
        address: Address of a Ray cluster; see `zeus.replay.cluster._engines`.
        progress: Called from time to time with the fraction that is done.
        options: Fields of the specifications: `beta`, `window`, `pruning_rounds`.

    Raises:
        TraceError: If the trace has fewer different groups than there are workloads.
        MissingExtraError: If Ray is requested and not installed.
    """
    assignment = assigned(trace, tables, scale)
    tasks = cut(trace, assignment, tables, policies, seed=seed, options=options)
    work, begun = max(trace.jobs * len(policies), 1), 0

    def started(jobs: int) -> None:
        nonlocal begun
        begun += jobs
        if progress is not None:
            progress(begun / work)

    by_group = {policy: Sums.zeros(trace.groups) for policy in policies}
    for number, sums in run_tasks(tasks, engine, workers, address, started):
        task = tasks[number]
        by_group[task.policy].put(task.members, sums)
    size = np.add.reduceat(assignment.weight, trace.first[:-1])
    records = [
        record
        for policy in policies
        for record in _records(
            trace, tables, assignment, size, policy=policy, seed=seed, sums=by_group[policy]
        )
    ]
    return ClusterResult(records, by_group, assignment.table, size)


def _records(
    trace: ClusterTrace,
    tables: Sequence[JobTable],
    assignment: Assignment,
    size: Floats,
    *,
    policy: str,
    seed: int,
    sums: Sums,
) -> Iterator[ClusterRecord]:
    usual = np.array([table.default_expectation() for table in tables])
    means = trace.mean_runtime()

    def record(name: str, groups: Ints) -> ClusterRecord:
        default = usual[assignment.table[groups]] * size[groups, None]
        energy, time = math.fsum(sums.energy[groups]), math.fsum(sums.time[groups])
        jobs = int(sums.jobs[groups].sum())
        return ClusterRecord(
            gpu=tables[0].gpu,
            workload=name,
            policy=policy,
            seed=seed,
            groups=len(groups),
            jobs=jobs,
            mean_runtime=math.fsum(means[groups]) / len(groups),
            trials=int(sums.trials[groups].sum()),
            unreached=int(sums.unreached[groups].sum()),
            energy=energy,
            time=time,
            energy_vs_default=relative(energy, math.fsum(default[:, 0])),
            time_vs_default=relative(time, math.fsum(default[:, 1])),
            cumulative_regret=math.fsum(sums.runs[groups]) - jobs,
            overlapping_jobs=int(sums.overlapping[groups].sum()),
            most_at_once=int(sums.most_at_once[groups].max()),
        )

    for number in np.argsort(assignment.mean_runtime):
        yield record(tables[number].workload, np.flatnonzero(assignment.table == number))
    yield record(ALL_WORKLOADS, np.arange(trace.groups))

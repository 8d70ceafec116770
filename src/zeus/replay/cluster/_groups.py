"""Replays many groups of jobs, which start when they did in the cluster and may overlap.

A group is one recurring job of the event loop, and its jobs are the recurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Floats, Ints, JobBatch
from zeus.optimizer.batch_size.policies._base import Policy
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._event_loop import Accounts, Columns, RunningTrials, Submissions, run
from zeus.replay._table import JobTable
from zeus.replay._world import TrialResults

Options = Mapping[str, float | int | None]


@dataclass(frozen=True)
class Groups:
    """Some groups of jobs.

    Attributes:
        table: Index of the table of each group.
        seed: Seed for the draws of each group.
        first: Index of the first job of each group, then the number of all jobs.
        start: Start time of each job, in seconds.
        weight: Size of each job, in recorded runs.
        stretch: Seconds that pass for each recorded second, by job.
    """

    table: Ints
    seed: Ints
    first: Ints
    start: Floats
    weight: Floats
    stretch: Floats


@dataclass
class Sums(Columns):
    """Totals over the jobs of each group.

    Attributes:
        jobs: Number of jobs.
        trials: Number of trials.
        unreached: Jobs that were abandoned.
        energy: Joules, scaled by the jobs' sizes; `time` in seconds likewise.
        runs: Cost in units of the oracle's expected cost of one run, regardless of the jobs' sizes.
        overlapping: Jobs that started while another was running.
        most_at_once: Maximum number of jobs running at the same time.
    """

    jobs: Ints
    trials: Ints
    unreached: Ints
    energy: Floats
    time: Floats
    runs: Floats
    overlapping: Ints
    most_at_once: Ints

    def put(self, groups: Ints, sums: Sums) -> None:
        """Set the totals of some groups."""
        for field in fields(self):
            getattr(self, field.name)[groups] = getattr(sums, field.name)


def run_groups(
    groups: Groups,
    tables: Sequence[JobTable],
    policy: str,
    options: Options,
    progress: Callable[[int], None] | None = None,
    *,
    instead: Policy | None = None,
) -> Sums:
    """Replay groups with one policy.

    Args:
        groups: The groups and their jobs.
        tables: Tables of the workloads.
        policy: Name of the policy.
        options: Fields of the specifications: `beta`, `window`, `pruning_rounds`.
        progress: Called from time to time with the number of jobs that have started so far.
        instead: Policy to use in place of the named one.
    """
    used, kind = np.unique(groups.table, return_inverse=True)
    kinds = JobBatch.of([tables[number].spec(policy, 0, **options) for number in used])
    submissions = Submissions(
        jobs=replace(kinds.take(kind), seed=groups.seed),
        seed=groups.seed,
        first=groups.first,
        table=np.repeat(groups.table.astype(np.int32), np.diff(groups.first)),
        start=groups.start,
        stretch=groups.stretch,
        measure_sizes=False,  # of a whole cluster's programs, hardly any will
    )
    accounts = _GroupAccounts(groups)
    run(
        submissions,
        tables,
        policy_named(policy) if instead is None else instead,
        accounts,
        progress,
    )
    return accounts.sums


class _GroupAccounts(Accounts):
    """Adds up trials when they begin."""

    def __init__(self, groups: Groups) -> None:
        self._weight = groups.weight
        self.sums = Sums.zeros(len(groups.table))
        self.sums.jobs[:] = np.diff(groups.first)

    def submitted(self, job: Ints, cell: Ints, running: Ints) -> None:  # noqa: ARG002
        self.sums.overlapping[job] += running > 1
        self.sums.most_at_once[job] = np.maximum(self.sums.most_at_once[job], running)

    def began(self, job: Ints, cell: Ints, recurrence: Ints, ran: TrialResults) -> None:  # noqa: ARG002
        weight, sums = self._weight[recurrence], self.sums
        sums.trials[job] += 1
        sums.energy[job] += ran.energy * weight
        sums.time[job] += ran.time * weight
        sums.runs[job] += ran.cost / ran.oracle

    def finished(self, job: Ints, cell: Ints, trials: RunningTrials) -> None:
        self.sums.unreached[job] += ~trials.converged[cell]

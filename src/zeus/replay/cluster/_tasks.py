"""Splits a replay of a cluster into tasks that any process can run, in any order.

The split depends on the jobs only, never on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Ints
from zeus.optimizer.batch_size.policies._randomness import uniform
from zeus.replay._table import JobTable
from zeus.replay.cluster._assignment import Assignment
from zeus.replay.cluster._groups import Groups, Options, Sums, run_groups
from zeus.replay.cluster._trace import ClusterTrace

# Groups that are replayed at once: enough to amortize the overhead of a sweep.
_AT_ONCE = 2048
# The largest groups take as many sweeps as they have jobs, with few other groups left by then. More
# parts would take more sweeps in total, fewer could not use two cores.
_LARGEST_PARTS = 2

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """Some groups with one policy.

    Attributes:
        policy: Name of the policy.
        members: Indices of the groups in the trace.
        groups: The groups and their jobs.
        tables: Tables of the workloads.
        options: Fields of the specifications.
    """

    policy: str
    members: Ints
    groups: Groups
    tables: Sequence[JobTable]
    options: Options

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self.groups.start)

    def run(self, progress: Progress | None = None) -> Sums:
        """Replay the groups and return their totals."""
        return run_groups(self.groups, self.tables, self.policy, self.options, progress)


def cut(
    trace: ClusterTrace,
    assignment: Assignment,
    tables: Sequence[JobTable],
    policies: Sequence[str],
    *,
    seed: int,
    options: Options,
) -> list[Task]:
    """Return all tasks, longest first."""
    # A group's draws depend on the seed and on its name, not on the other groups.
    seeds = (uniform(seed, trace.names) * 2.0**53).astype(np.int64)
    return [
        Task(policy, members, groups, tables, options)
        for members, groups in _parts(trace, assignment, seeds)
        for policy in policies
    ]


def _parts(
    trace: ClusterTrace, assignment: Assignment, seeds: Ints
) -> Iterator[tuple[Ints, Groups]]:
    # Groups of about the same size finish together.
    order = np.argsort(-trace.sizes, kind="stable")
    largest, rest = order[:_AT_ONCE], order[_AT_ONCE:]
    parts = [largest[part::_LARGEST_PARTS] for part in range(_LARGEST_PARTS)]
    # Groups of one workload have the same batch sizes, so no padding is needed.
    for table in np.unique(assignment.table):
        alike = rest[assignment.table[rest] == table]
        parts += [alike[at : at + _AT_ONCE] for at in range(0, len(alike), _AT_ONCE)]
    parts.sort(key=lambda members: -int(trace.sizes[members].sum()))
    for members in parts:
        if not len(members):
            continue
        sizes = trace.sizes[members]
        first = np.concatenate(([0], np.cumsum(sizes)))
        jobs = np.arange(first[-1]) + np.repeat(trace.first[members] - first[:-1], sizes)
        yield (
            members,
            Groups(
                table=assignment.table[members],
                seed=seeds[members],
                first=first,
                start=trace.start[jobs],
                weight=assignment.weight[jobs],
                stretch=assignment.stretch[jobs],
            ),
        )

"""Replays jobs whose recurrences follow each other, with one record of each job.

With one slot a job runs its recurrences sequentially; with more they overlap, and the next one is
submitted as soon as one has finished. A job with submission times does not wait for slots.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Floats, Ints, JobBatch
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import Policy
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._event_loop import Accounts, RunningTrials, Submissions, run
from zeus.replay._table import JobTable
from zeus.replay._world import TrialResults

_LAST = 5
_HISTORY = ("arm", "power", "cost", "energy", "time", "trials", "reached", "expected")
FIRST_RECURRENCES = 100
"""Recurrences in which a policy may still be learning."""
TOO_EXPENSIVE = 1.05
"""A choice is too expensive from this multiple of the oracle's cost on."""


@dataclass(frozen=True)
class Job:
    """A job to replay.

    Attributes:
        spec: The specification that the policy gets.
        tables: One table, or several that apply in turn; all with the spec's batch sizes.
        schedule: Index of the table that applies, by recurrence; its length is the number of
            recurrences.
        seed: Seed for drawing recorded runs.
        start: Submission time of each recurrence in seconds, in ascending order; by default a
            recurrence is submitted when there is a free slot. Of jobs that are replayed together,
            all have submission times or none.
    """

    spec: JobSpec
    tables: Sequence[JobTable]
    schedule: Sequence[int]
    seed: int
    start: Floats | None = None


@dataclass
class Result:
    """Results of a replay by job, and with a history also by recurrence.

    Attributes:
        recurrences: Number of recurrences.
        trials: Number of trials of all recurrences.
        unreached: Number of recurrences that were abandoned.
        cost: Total cost in joules; `energy` in joules and `time` in seconds likewise.
        regret: Sum over recurrences of the cost beyond the oracle's, in units of the oracle's.
        too_expensive: Number of recurrences after the first 100 whose configuration is expected to
            cost more than 5 % above the oracle's.
        last_energy: Joules of each of the last five recurrences; `last_time` in seconds.
        last_arm: Index of the batch size of the last recurrence; `last_power` of its power limit.
        history: By job and recurrence, if requested: `arm`, `power`, `cost`, `energy`, `time`,
            `trials`, `reached`, and `expected`, the expected cost of the configuration in units of
            the oracle's; NaN beyond the end of a shorter job.
    """

    recurrences: Ints
    trials: Ints
    unreached: Ints
    cost: Floats
    energy: Floats
    time: Floats
    regret: Floats
    too_expensive: Ints
    last_energy: Floats
    last_time: Floats
    last_arm: Ints
    last_power: Ints
    history: dict[str, Floats] = field(default_factory=dict)


def replay(
    jobs: Sequence[Job],
    *,
    slots: int = 1,
    history: bool = False,
    policy: Policy | None = None,
    progress: Callable[[float], None] | None = None,
    measure_sizes: bool = True,
) -> Result:
    """Replay jobs that all have the same policy.

    Args:
        jobs: The jobs.
        slots: How many recurrences of a job run at the same time.
        history: Whether to record every recurrence.
        policy: Used instead of the policy that the first job names.
        progress: Called from time to time with the fraction that is done.
        measure_sizes: Whether programs measure for some seconds what an epoch costs at every batch
            size, before their first trial on a GPU model. Only the policy `zeus` asks for it.
    """
    submissions, tables = _submissions(jobs, slots)
    submissions = replace(submissions, measure_sizes=measure_sizes)
    accounts = _JobAccounts(submissions.first, submissions.slots, history)
    work = max(int(submissions.first[-1]), 1)
    run(
        submissions,
        tables,
        policy_named(jobs[0].spec.policy) if policy is None else policy,
        accounts,
        None if progress is None else lambda submitted: progress(submitted / work),
    )
    if progress is not None:
        progress(1.0)
    return accounts.result


def _submissions(jobs: Sequence[Job], slots: int) -> tuple[Submissions, list[JobTable]]:
    """Return the recurrences of jobs, and their tables."""
    tables = list({id(table): table for job in jobs for table in job.tables}.values())
    places = {id(table): place for place, table in enumerate(tables)}
    schedules, gpus = [], []
    for job in jobs:
        models = list(dict.fromkeys(table.gpu for table in job.tables))
        turns = np.asarray(job.schedule, dtype=np.int64)
        numbers = np.array([places[id(table)] for table in job.tables], dtype=np.int32)
        schedules.append(numbers[turns])
        numbers = np.array([models.index(table.gpu) for table in job.tables], dtype=np.int8)
        gpus.append(numbers[turns])
    lengths = [len(job.schedule) for job in jobs]
    starts = [job.start for job in jobs if job.start is not None]
    submissions = Submissions(
        jobs=JobBatch.of([job.spec for job in jobs]),
        seed=np.array([job.seed for job in jobs], dtype=np.int64),
        first=np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
        table=np.concatenate(schedules),
        gpu=np.concatenate(gpus) if any(each.any() for each in gpus) else None,
        start=np.concatenate(starts) if starts else None,
        slots=sys.maxsize if starts else slots,
    )
    return submissions, tables


class _JobAccounts(Accounts):
    """Adds up recurrences when they are finished."""

    def __init__(self, first: Ints, slots: int, history: bool) -> None:
        self._base, self._total = first[:-1], np.diff(first)
        count = len(self._total)
        cells = int(first[-1]) if slots == sys.maxsize else count * slots
        shape = (count, int(self._total.max()))
        self._cost, self._energy, self._time, self._oracle, self._expected = np.zeros((5, cells))
        self._power = np.zeros(cells, dtype=np.int64)
        self.result = Result(
            recurrences=self._total.copy(),
            trials=np.zeros(count, dtype=np.int64),
            unreached=np.zeros(count, dtype=np.int64),
            cost=np.zeros(count),
            energy=np.zeros(count),
            time=np.zeros(count),
            regret=np.zeros(count),
            too_expensive=np.zeros(count, dtype=np.int64),
            last_arm=np.zeros(count, dtype=np.int64),
            last_power=np.zeros(count, dtype=np.int64),
            last_energy=np.full((count, _LAST), np.nan),
            last_time=np.full((count, _LAST), np.nan),
            history={name: np.full(shape, np.nan) for name in _HISTORY} if history else {},
        )

    def submitted(self, job: Ints, cell: Ints, running: Ints) -> None:  # noqa: ARG002
        self._cost[cell] = self._energy[cell] = self._time[cell] = 0.0

    def began(self, job: Ints, cell: Ints, recurrence: Ints, ran: TrialResults) -> None:  # noqa: ARG002
        self._cost[cell] += ran.cost
        self._energy[cell] += ran.energy
        self._time[cell] += ran.time
        self._oracle[cell], self._power[cell] = ran.oracle, ran.power
        self._expected[cell] = ran.expected / ran.oracle

    def finished(self, job: Ints, cell: Ints, trials: RunningTrials) -> None:
        result = self.result
        cost, energy, time = self._cost[cell], self._energy[cell], self._time[cell]
        count, arm, reached = trials.attempt[cell], trials.arm[cell], trials.converged[cell]
        power = self._power[cell]
        result.trials[job] += count
        result.unreached[job] += ~reached
        result.cost[job] += cost
        result.energy[job] += energy
        result.time[job] += time
        result.regret[job] += cost / self._oracle[cell] - 1
        number = trials.recurrence[cell] - self._base[job]
        expected = self._expected[cell]
        result.too_expensive[job] += (number >= FIRST_RECURRENCES) & (expected > TOO_EXPENSIVE)
        place = number - self._total[job] + _LAST
        last = np.flatnonzero(place >= 0)
        result.last_energy[job[last], place[last]] = energy[last]
        result.last_time[job[last], place[last]] = time[last]
        final = np.flatnonzero(place == _LAST - 1)
        result.last_arm[job[final]] = arm[final]
        result.last_power[job[final]] = power[final]
        if result.history:
            values = (arm, power, cost, energy, time, count, reached, expected)
            for name, value in zip(_HISTORY, values, strict=True):
                result.history[name][job, number] = value

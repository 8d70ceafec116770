"""Replays many groups of overlapping jobs at once, each event by event.

Groups are independent, so each can have its own clock: in every sweep every group handles its next
events, an end of a trial and then a start, in chronological order. A decision is made when a job
starts, from the trials that have ended by then and the first epochs of new batch sizes. A trial
that misses its target is followed at once by another of the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import ALL, Floats, Ints, JobBatch, Rows, Trials
from zeus.optimizer.batch_size.policies._base import FirstEpochs, Policy
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._engine import MAX_ATTEMPTS
from zeus.replay._table import JobTable
from zeus.replay._world import World

Options = Mapping[str, float | int | None]

# Sweeps between two calls of `progress`.
_REPORT = 128


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
class Sums:
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

    @classmethod
    def blank(cls, groups: int) -> Sums:
        """Return totals that are all zero."""

        def whole() -> Ints:
            return np.zeros(groups, dtype=np.int64)

        def real() -> Floats:
            return np.zeros(groups)

        return cls(
            jobs=whole(),
            trials=whole(),
            unreached=whole(),
            energy=real(),
            time=real(),
            runs=real(),
            overlapping=whole(),
            most_at_once=whole(),
        )

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
    return _Replay(groups, tables, policy, options, instead).run(progress)


class _Replay:
    """State of a replay. Finished groups are dropped; `origin` maps the others to the input.

    A job has one trial at a time, so running trials are stored by job (`trial`). Each group stores
    which of its trials ends first, and when; the others, if there are any, are in a heap.
    """

    def __init__(
        self,
        groups: Groups,
        tables: Sequence[JobTable],
        policy: str,
        options: Options,
        instead: Policy | None,
    ) -> None:
        self.world = World.of(tables)
        self.policy = policy_named(policy) if instead is None else instead
        used, kind = np.unique(groups.table, return_inverse=True)
        kinds = JobBatch.of([tables[number].spec(policy, 0, **options) for number in used])
        lanes = replace(kinds.take(kind), seed=groups.seed)
        self.state = self.policy.begin(lanes)
        count, jobs = len(groups.table), len(groups.start)
        self.groups = groups
        self.table = groups.table.astype(np.int64)
        self.seed = groups.seed
        self.origin = np.arange(count)
        self.base = groups.first[:-1].astype(np.int64)
        self.last_job = groups.first[1:].astype(np.int64)
        self.next_job = self.base.copy()
        # One more start at infinity, for groups whose last job has started.
        self.start = np.concatenate((groups.start, [np.inf]))
        self.coming = self.start[self.next_job]
        self.profiled = np.zeros((count, lanes.arms), dtype=np.bool_)
        self.soonest = np.full(count, np.inf)
        self.front = np.zeros(count, dtype=np.int64)
        self.flying = np.zeros(count, dtype=np.int64)
        self.behind: list[list[tuple[float, int]]] = [[] for _ in range(count)]
        self.attempt = np.zeros(jobs, dtype=np.int64)
        self.trial = _Trial.blank(jobs)
        self.sums = Sums.blank(count)
        self.sums.jobs[:] = np.diff(groups.first)

    def run(self, progress: Callable[[int], None] | None) -> Sums:
        sweeps = 0
        while len(self.origin):
            self._sweep()
            sweeps += 1
            self._leave()
            if progress is not None and sweeps % _REPORT == 0:
                progress(self._started())
        return self.sums

    def _started(self) -> int:
        gone = np.ones(len(self.sums.jobs), dtype=np.bool_)
        gone[self.origin] = False
        return int(self.sums.jobs[gone].sum() + (self.next_job - self.base).sum())

    def _leave(self) -> None:
        """Drop finished groups, once there are enough of them to be worth the copying."""
        over = (self.flying == 0) & (self.next_job == self.last_job)
        count = int(over.sum())
        if not count or (count < len(over) // 16 and count < len(over)):
            return
        kept = np.flatnonzero(~over)
        self.state = self.state.take(kept)
        for name in _PER_GROUP:
            setattr(self, name, getattr(self, name)[kept])

    def _sweep(self) -> None:
        # A trial that ends at the instant of a start is known to its decision.
        ending = np.flatnonzero((self.soonest <= self.coming) & (self.soonest < np.inf))
        free = np.ones(len(self.origin), dtype=np.bool_)
        rows, job, when = ending[:0], ending[:0], self.soonest[:0]
        if len(ending):
            rows, job, when = self._end(ending)
            # A failed trial is retried before any other event of its group.
            free[rows] = False
        new = np.flatnonzero(free & (self.coming < self.soonest))
        if len(new):
            started = self._submit(new)
            rows = np.concatenate((rows, new))
            job = np.concatenate((job, started))
            when = np.concatenate((when, self.start[started]))
            if len(rows) > len(new):
                order = np.argsort(rows)
                rows, job, when = rows[order], job[order], when[order]
        if len(rows):
            self._begin(rows, job, when)

    def _submit(self, rows: Ints) -> Ints:
        """Start the next job of each of these groups."""
        job: Ints = self.next_job[rows]
        self.next_job[rows] = job + 1
        self.coming[rows] = np.where(job + 1 < self.last_job[rows], self.start[job + 1], np.inf)
        flying = self.flying[rows] + 1
        self.flying[rows] = flying
        who = self.origin[rows]
        self.sums.overlapping[who] += flying > 1
        self.sums.most_at_once[who] = np.maximum(self.sums.most_at_once[who], flying)
        return job

    def _begin(self, rows: Ints, job: Ints, when: Floats) -> None:
        attempt = self.attempt[job]
        which: Rows = ALL if len(rows) == len(self.origin) else rows
        choices = self.policy.choose(self.state, which, np.zeros_like(rows), attempt)
        self.policy.decided(self.state, which, choices)
        table = self.table[rows]
        ran = self.world.run(
            table,
            choices,
            self.profiled[rows, choices.arm],
            seed=self.seed[rows],
            recurrence=job - self.base[rows],
            attempt=attempt,
        )
        self.attempt[job] = attempt + 1
        trial = self.trial
        trial.arm[job], trial.role[job], trial.power[job] = choices.arm, choices.role, choices.power
        trial.converged[job], trial.epochs[job] = ran.converged, ran.epochs
        trial.cost[job], trial.epoch_cost[job] = ran.cost, ran.epoch_cost
        trial.load[job] = ran.load
        who, weight, sums = self.origin[rows], self.groups.weight[job], self.sums
        sums.trials[who] += 1
        sums.energy[who] += ran.energy * weight
        sums.time[who] += ran.time * weight
        sums.runs[who] += ran.cost / self.world.oracle[table]
        stretch = self.groups.stretch[job]
        end = when + ran.time * stretch
        early = np.isfinite(ran.told)
        trial.final[job] = np.where(early, end, np.nan)
        self._queue(rows, job, np.where(early, when + ran.told * stretch, end))

    def _end(self, rows: Ints) -> tuple[Ints, Ints, Floats]:
        """End the first trial of each of these groups.

        Returns:
            Groups whose job must retry, the job, and the time.
        """
        trial = self.trial
        early = np.isfinite(trial.final[self.front[rows]])
        if early.any():
            self._note(rows[early])
            rows = rows[~early]
        job, when = self.front[rows], self.soonest[rows]
        if not len(rows):
            return rows, job, when
        arm, converged, epochs = trial.arm[job], trial.converged[job], trial.epochs[job]
        nothing = np.zeros(len(rows), dtype=np.bool_)
        self.policy.ended(
            self.state,
            ALL if len(rows) == len(self.origin) else rows,
            Trials(
                arm=arm,
                role=trial.role[job],
                power=trial.power[job],
                gpu=np.zeros_like(rows),
                converged=converged,
                void=nothing,
                unfit=nothing,
                epochs=epochs,
                cost=trial.cost[job],
                epoch_cost=trial.epoch_cost[job],
                load=trial.load[job],
            ),
        )
        self.profiled[rows, arm] |= epochs > 0
        self._advance(rows)
        over = converged | (self.attempt[job] >= MAX_ATTEMPTS)
        done, again = rows[over], ~over
        self.flying[done] -= 1
        self.sums.unreached[self.origin[done]] += ~converged[over]
        return rows[again], job[again], when[again]

    def _note(self, rows: Ints) -> None:
        """Handle the end of the first epoch of new batch sizes; their trials continue."""
        job, trial = self.front[rows], self.trial
        arm = trial.arm[job]
        self.policy.noted(
            self.state,
            ALL if len(rows) == len(self.origin) else rows,
            FirstEpochs(arm, np.zeros_like(rows), trial.epoch_cost[job], trial.load[job]),
        )
        self.profiled[rows, arm] = True
        end = trial.final[job]
        trial.final[job] = np.nan
        self._advance(rows)
        self._queue(rows, job, end)

    # --- which trial ends next; ties go to the job that was submitted first -----------------------

    def _queue(self, rows: Ints, job: Ints, end: Floats) -> None:
        """Queue the next events of trials."""
        soonest, front = self.soonest[rows], self.front[rows]
        sooner = (end < soonest) | ((end == soonest) & (job < front))
        taken = np.flatnonzero(soonest < np.inf)
        if len(taken):
            first = sooner[taken]
            ends = np.where(first, soonest[taken], end[taken]).tolist()
            jobs = np.where(first, front[taken], job[taken]).tolist()
            for who, late, whose in zip(self.origin[rows[taken]].tolist(), ends, jobs, strict=True):
                heappush(self.behind[who], (late, whose))
        self.soonest[rows] = np.where(sooner, end, soonest)
        self.front[rows] = np.where(sooner, job, front)

    def _advance(self, rows: Ints) -> None:
        """Move the next trial of each group to the front."""
        self.soonest[rows] = np.inf
        several = rows[self.flying[rows] > 1]
        if len(several):
            behind = self.behind
            taken = [heappop(behind[who]) for who in self.origin[several].tolist()]
            self.soonest[several], self.front[several] = zip(*taken, strict=True)


_PER_GROUP = (
    "table",
    "seed",
    "origin",
    "next_job",
    "base",
    "last_job",
    "coming",
    "profiled",
    "soonest",
    "front",
    "flying",
)


@dataclass
class _Trial:
    """The running trial of each job, with its outcome.

    Where the end of its first epoch is an event of its own, `final` is the end of the trial; NaN
    otherwise.
    """

    arm: Ints
    role: Ints
    power: Ints
    converged: np.ndarray
    epochs: Floats
    cost: Floats
    epoch_cost: Floats
    load: Floats
    final: Floats

    @classmethod
    def blank(cls, jobs: int) -> _Trial:
        kinds = {"arm": np.int64, "role": np.int64, "power": np.int64, "converged": np.bool_}
        return cls(
            **{
                field.name: np.zeros(jobs, dtype=kinds.get(field.name, np.float64))
                for field in fields(cls)
            }
        )

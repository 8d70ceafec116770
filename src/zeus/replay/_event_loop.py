"""The event loop of all replays: the policies of production, on recorded outcomes, for many jobs.

Jobs are independent, so each has its own clock: in every sweep every job handles its next events,
the end of a trial and then a submission, in chronological order. A decision is made when a trial
begins, from the trials that have ended by then and, where recurrences may overlap, the first epochs
of new batch sizes. Before the first one on a GPU model, every batch size is measured for some
seconds, if programs do so. A trial that misses its target is followed at once by another of the
same recurrence.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Self

import numpy as np
from numpy.typing import NDArray

from zeus.optimizer.batch_size.job._job_batch import (
    ALL,
    Bools,
    Floats,
    Ints,
    JobBatch,
    Rows,
    Trials,
)
from zeus.optimizer.batch_size.policies._base import FirstEpochs, Policy
from zeus.replay._table import JobTable
from zeus.replay._world import TrialResults, World

# A recurrence that has not reached its target after this many trials is abandoned.
MAX_ATTEMPTS = 20
# Sweeps between two calls of `progress`.
_REPORT = 32


@dataclass(frozen=True)
class Submissions:
    """Recurrences of many jobs.

    Attributes:
        jobs: Specifications of the jobs.
        seed: Seed of each job for drawing recorded runs.
        first: Index of the first recurrence of each job, then the number of all recurrences.
        table: Index of the table that applies, by recurrence.
        gpu: Number of the GPU model, by recurrence; GPU models are numbered within each job.
        start: Submission time of each recurrence in seconds, in ascending order within a job. By
            default a recurrence is submitted as soon as there is a free slot.
        stretch: Seconds that pass for each recorded second, by recurrence; by default 1.
        slots: Maximum number of recurrences of a job that run at the same time; by default any.
        measure_sizes: Whether programs measure for some seconds what an epoch costs at every batch
            size, before their first trial on a GPU model, as `BatchSizeOptimizer` lets them, and if
            the policy makes use of it.
    """

    jobs: JobBatch
    seed: Ints
    first: Ints
    table: NDArray[np.integer]
    gpu: NDArray[np.integer] | None = None
    start: Floats | None = None
    stretch: Floats | None = None
    slots: int = sys.maxsize
    measure_sizes: bool = True


class Columns:
    """Base of dataclasses whose fields are arrays of the same length."""

    @classmethod
    def zeros(cls, length: int) -> Self:
        """Return arrays that are all zero."""
        kinds = {"Ints": np.int64, "Bools": np.bool_, "Floats": np.float64}
        columns = fields(cls)  # type: ignore[arg-type]
        return cls(**{each.name: np.zeros(length, dtype=kinds[str(each.type)]) for each in columns})


@dataclass
class RunningTrials(Columns):
    """The running trial of each recurrence, with its outcome, by cell.

    A cell is the place of a recurrence, which no other one has until it is finished.

    Attributes:
        recurrence: Index of the recurrence.
        attempt: Number of trials of the recurrence so far.
        arm: As in `Trials`, as are the following.
        final: End of the trial in seconds, as long as the end of its first epoch is an event of its
            own; NaN otherwise.
    """

    recurrence: Ints
    attempt: Ints
    arm: Ints
    role: Ints
    power: Ints
    converged: Bools
    epochs: Floats
    cost: Floats
    epoch_cost: Floats
    load: Floats
    full_cost: Floats
    final: Floats


class Accounts(ABC):
    """Adds up what trials and recurrences cost; jobs are indexed as in `Submissions`."""

    def submitted(self, job: Ints, cell: Ints, running: Ints) -> None:  # noqa: B027
        """Count recurrences that are submitted; `running` includes them."""

    @abstractmethod
    def began(self, job: Ints, cell: Ints, recurrence: Ints, ran: TrialResults) -> None:
        """Count trials and their outcomes."""

    @abstractmethod
    def finished(self, job: Ints, cell: Ints, trials: RunningTrials) -> None:
        """Count recurrences that have reached their target, or were abandoned."""


def run(
    submissions: Submissions,
    tables: Sequence[JobTable],
    policy: Policy,
    accounts: Accounts,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Replay all recurrences.

    Args:
        submissions: The jobs and their recurrences.
        tables: The tables that `submissions` refers to.
        policy: Policy of all jobs.
        accounts: Adds up the results.
        progress: Called from time to time with the number of recurrences submitted so far.
    """
    _EventLoop(submissions, tables, policy, accounts).run(progress)


class _EventLoop:
    """State of a replay. Finished jobs are dropped; `origin` maps the others to the input.

    Each job stores which of its trials has the next event, and when. The events of the others are
    in a heap, or in an array if the number of slots is limited. Ties go to the lower cell.
    """

    def __init__(
        self,
        submissions: Submissions,
        tables: Sequence[JobTable],
        policy: Policy,
        accounts: Accounts,
    ) -> None:
        self.world = World.of(tables)
        self.policy, self.accounts = policy, accounts
        self.measures_sizes = submissions.measure_sizes and policy.measures_sizes
        count, total = len(submissions.seed), int(submissions.first[-1])
        self.slots = submissions.slots
        self.limited = self.slots < sys.maxsize
        self.table = submissions.table
        self.gpu = submissions.gpu
        gpus = 1 if self.gpu is None else int(self.gpu.max()) + 1
        # States of each job: one for each GPU model, unless the policy crosses them.
        self.states = 1 if policy.crosses_gpus else gpus
        whole = np.arange(count).repeat(self.states) if self.states > 1 else ALL
        self.state = policy.begin(submissions.jobs.take(whole), gpus // self.states)
        # One more start, for jobs whose last recurrence has been submitted.
        self.start = (
            np.broadcast_to(-np.inf, total + 1)
            if submissions.start is None
            else np.concatenate((submissions.start, [np.inf]))
        )
        self.stretch = (
            np.broadcast_to(1.0, total) if submissions.stretch is None else submissions.stretch
        )
        self.seed = submissions.seed
        self.origin = np.arange(count)
        self.base = submissions.first[:-1].astype(np.int64)
        self.last = submissions.first[1:].astype(np.int64)
        self.next = self.base.copy()
        self.coming = self.start[self.next]
        self.clock = np.zeros(count)
        self.soonest = np.full(count, np.inf)
        self.front = np.zeros(count, dtype=np.int64)
        self.flying = np.zeros(count, dtype=np.int64)
        self.profiled = np.zeros((count, gpus, submissions.jobs.arms), dtype=np.bool_)
        self.measured = np.zeros((count, gpus), dtype=np.bool_)
        if self.limited:
            self.events = np.full((count, self.slots), np.inf)
        else:
            self.behind: list[list[tuple[float, int]]] = [[] for _ in range(count)]
        self.trial = RunningTrials.zeros(count * self.slots if self.limited else total)
        self.submitted = 0

    def run(self, progress: Callable[[int], None] | None) -> None:
        sweeps = 0
        while len(self.origin):
            self._sweep()
            sweeps += 1
            self._leave()
            if progress is not None and sweeps % _REPORT == 0:
                progress(self.submitted)

    def _leave(self) -> None:
        """Drop finished jobs, once there are enough of them to be worth the copying."""
        over = (self.flying == 0) & (self.next == self.last)
        count = int(over.sum())
        if not count or (count < len(over) // 16 and count < len(over)):
            return
        kept = np.flatnonzero(~over)
        self.state = self.state.take((kept[:, None] * self.states + np.arange(self.states)).ravel())
        for name in _PER_JOB:
            setattr(self, name, getattr(self, name)[kept])

    def _rows(self, rows: Ints, gpu: Ints) -> Rows:
        """Return the rows of the state for jobs on GPU models."""
        if self.states > 1:
            return rows * self.states + gpu
        return ALL if len(rows) == len(self.origin) else rows

    def _sweep(self) -> None:
        # A trial that ends at the instant of a submission is known to its decision.
        ending = np.flatnonzero((self.soonest <= self.coming) & (self.soonest < np.inf))
        rows = cell = ending[:0]
        if len(ending):
            rows, cell = self._end(ending)
        submits = self.coming < self.soonest
        # A failed trial is retried before any other event of its job.
        submits[rows] = False
        new = np.flatnonzero(submits)
        if len(new):
            submitted = self._submit(new)
            if len(rows):
                rows, cell = np.concatenate((rows, new)), np.concatenate((cell, submitted))
                order = np.argsort(rows)
                rows, cell = rows[order], cell[order]
            else:
                rows, cell = new, submitted
        if len(rows):
            self._begin(rows, cell)

    def _submit(self, rows: Ints) -> Ints:
        """Submit the next recurrence of each of these jobs, and return their cells."""
        recurrence = self.next[rows]
        self.next[rows] = recurrence + 1
        self.submitted += len(rows)
        self.clock[rows] = np.maximum(self.clock[rows], self.start[recurrence])
        flying = self.flying[rows] + 1
        self.flying[rows] = flying
        self._await(rows, recurrence + 1, flying)
        job, trial = self.origin[rows], self.trial
        cell = recurrence
        if self.limited:
            cell = job * self.slots + np.isinf(self.events[job]).argmax(axis=1)
        trial.recurrence[cell] = recurrence
        trial.attempt[cell] = 0
        self.accounts.submitted(job, cell, flying)
        return cell

    def _await(self, rows: Ints, following: Ints, flying: Ints) -> None:
        """Set when these jobs submit the following recurrence."""
        waiting = following < self.last[rows]
        if self.limited:
            waiting &= flying < self.slots
        self.coming[rows] = np.where(waiting, self.start[following], np.inf)

    def _begin(self, rows: Ints, cell: Ints) -> None:
        trial = self.trial
        recurrence, attempt = trial.recurrence[cell], trial.attempt[cell]
        table = self.table[recurrence].astype(np.int64)
        gpu, model = self._gpus(recurrence)
        which = self._rows(rows, gpu)
        first = ~self.measured[rows, gpu] if self.measures_sizes else None
        if first is not None and first.any():
            self.measured[rows, gpu] = True
            self._measure_sizes(rows[first], gpu[first], model[first], table[first])
        choices = self.policy.choose(self.state, which, model, attempt)
        self.policy.decided(self.state, which, choices)
        arm = choices.arm
        ran = self.world.run(
            table,
            choices,
            self.profiled[rows, gpu, arm],
            seed=self.seed[rows],
            recurrence=recurrence - self.base[rows],
            attempt=attempt,
            foreseen=self.policy.foresees_epochs,
        )
        trial.attempt[cell] = attempt + 1
        trial.arm[cell], trial.role[cell], trial.power[cell] = arm, choices.role, choices.power
        trial.converged[cell], trial.epochs[cell] = ran.converged, ran.epochs
        trial.cost[cell], trial.epoch_cost[cell] = ran.cost, ran.epoch_cost
        trial.load[cell], trial.full_cost[cell] = ran.load, ran.full_cost
        if first is not None:
            ran = self.world.with_sizes_measured(ran, table, first)
        self.accounts.began(self.origin[rows], cell, recurrence, ran)
        now, stretch = self.clock[rows], self.stretch[recurrence]
        end = now + ran.time * stretch
        if self.slots > 1:
            # Others may begin before this trial ends: the end of its first epoch is an event, too.
            early = np.isfinite(ran.first_epoch)
            trial.final[cell] = np.where(early, end, np.nan)
            end = np.where(early, now + ran.first_epoch * stretch, end)
        self._queue(rows, cell, end)

    def _gpus(self, recurrence: Ints) -> tuple[Ints, Ints]:
        """Return GPU models, and those that a state of the policy distinguishes."""
        none = np.zeros(len(recurrence), dtype=np.int64)
        if self.gpu is None:
            return none, none
        gpu = self.gpu[recurrence].astype(np.int64)
        return gpu, gpu if self.policy.crosses_gpus else none

    def _end(self, rows: Ints) -> tuple[Ints, Ints]:
        """End the first trial of each of these jobs, and return jobs and cells that must retry."""
        trial = self.trial
        self.clock[rows] = self.soonest[rows]
        if self.slots > 1:
            early = np.isfinite(trial.final[self.front[rows]])
            if early.any():
                self._note(rows[early])
                rows = rows[~early]
                if not len(rows):
                    return rows, rows
        cell = self.front[rows]
        arm, converged, epochs = trial.arm[cell], trial.converged[cell], trial.epochs[cell]
        gpu, model = self._gpus(trial.recurrence[cell])
        nothing = np.zeros(len(rows), dtype=np.bool_)
        trials = Trials(
            arm=arm,
            role=trial.role[cell],
            power=trial.power[cell],
            gpu=model,
            converged=converged,
            void=nothing,
            unfit=nothing,
            epochs=epochs,
            cost=trial.cost[cell],
            epoch_cost=trial.epoch_cost[cell],
            load=trial.load[cell],
            full_cost=trial.full_cost[cell],
        )
        self.policy.ended(self.state, self._rows(rows, gpu), trials)
        self._profile(rows[epochs > 0], cell[epochs > 0])
        self._advance(rows)
        over = converged | (trial.attempt[cell] >= MAX_ATTEMPTS)
        done, left = rows[over], cell[over]
        self.flying[done] -= 1
        if self.limited:
            self._await(done, self.next[done], self.flying[done])
        self.accounts.finished(self.origin[done], left, trial)
        return rows[~over], cell[~over]

    def _measure_sizes(
        self, rows: Ints, gpu: Ints, model: Ints, table: Ints, scale: Floats | None = None
    ) -> None:
        """Pass on what an epoch costs at every batch size, at the highest power limit.

        Args:
            rows: The jobs.
            gpu: GPU model of each; `model` is the one that a state of the policy distinguishes.
            model: See there.
            table: Table of each.
            scale: Factor on the costs.
        """
        world = self.world
        arm = np.arange(self.profiled.shape[2])
        at = table[:, None], arm, world.highest[table][:, None]
        cost = world.cost[at] if scale is None else world.cost[at] * scale[:, None]
        # What a trial has measured with its best power limit is known better.
        cost = np.where(self.profiled[rows, gpu], np.nan, cost)
        self.policy.measured(self.state, self._rows(rows, gpu), model, cost, world.load[at])

    def _profile(self, rows: Ints, cell: Ints) -> None:
        """Mark batch sizes as profiled, and make what was measured before comparable with them.

        That was at the highest power limit. Lower ones are assumed to save as much as they do on
        average where they were profiled.
        """
        trial = self.trial
        gpu, model = self._gpus(trial.recurrence[cell])
        new = ~self.profiled[rows, gpu, trial.arm[cell]]
        self.profiled[rows, gpu, trial.arm[cell]] = True
        if self.measures_sizes and new.any():
            rows, cell, gpu, model = rows[new], cell[new], gpu[new], model[new]
            table = self.table[trial.recurrence[cell]].astype(np.int64)
            profiled = self.profiled[rows, gpu]
            saving = np.where(profiled, self.world.saving[table], 0.0).sum(axis=1)
            self._measure_sizes(rows, gpu, model, table, saving / profiled.sum(axis=1))

    def _note(self, rows: Ints) -> None:
        """Handle the end of the first epoch of new batch sizes; their trials continue."""
        cell, trial = self.front[rows], self.trial
        arm = trial.arm[cell]
        gpu, model = self._gpus(trial.recurrence[cell])
        notes = FirstEpochs(arm, model, trial.epoch_cost[cell], trial.load[cell])
        self.policy.noted(self.state, self._rows(rows, gpu), notes)
        self._profile(rows, cell)
        end = trial.final[cell]
        trial.final[cell] = np.nan
        self._advance(rows)
        self._queue(rows, cell, end)

    # --- which trial has the next event -----------------------------------------------------------

    def _queue(self, rows: Ints, cell: Ints, when: Floats) -> None:
        """Queue the next events of trials."""
        soonest, front = self.soonest[rows], self.front[rows]
        sooner = (when < soonest) | ((when == soonest) & (cell < front))
        if self.limited:
            self.events.flat[cell] = when
        else:
            taken = np.flatnonzero(soonest < np.inf)
            later = np.where(sooner, soonest, when)[taken].tolist()
            cells = np.where(sooner, front, cell)[taken].tolist()
            for job, *event in zip(self.origin[rows[taken]].tolist(), later, cells, strict=True):
                heappush(self.behind[job], tuple(event))
        self.soonest[rows] = np.where(sooner, when, soonest)
        self.front[rows] = np.where(sooner, cell, front)

    def _advance(self, rows: Ints) -> None:
        """Move the next trial of each job to the front."""
        self.soonest[rows] = np.inf
        if self.limited:
            self.events.flat[self.front[rows]] = np.inf
        several = rows[self.flying[rows] > 1]
        if not len(several):
            return
        job = self.origin[several]
        if self.limited:
            place = self.events[job].argmin(axis=1)
            self.soonest[several] = self.events[job, place]
            self.front[several] = job * self.slots + place
        else:
            first = [heappop(self.behind[each]) for each in job.tolist()]
            self.soonest[several], self.front[several] = zip(*first, strict=True)


_PER_JOB = (
    "seed", "origin", "base", "last", "next", "coming", "clock", "soonest", "front", "flying",
    "profiled", "measured",
)  # fmt: skip

"""Replays many jobs at once: the policies of production, on recorded outcomes.

Every lane is a job with its own clock. In each step every lane handles its next event, which is the
end of a trial or the submission of a recurrence. A trial that did not converge is followed by a
retry. With one slot a lane runs its recurrences sequentially; with more they overlap. Then the end
of the first epoch of a new batch size is an event as well: its cost is known from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import (
    ALL,
    Bools,
    Floats,
    Ints,
    JobBatch,
    Rows,
    Trials,
    any_arm,
)
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import FirstEpochs, Policy
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._table import JobTable
from zeus.replay._world import World

# A recurrence that has not reached its target after this many trials is abandoned.
MAX_ATTEMPTS = 20
_LAST = 5


@dataclass(frozen=True)
class Job:
    """One lane of a replay.

    Attributes:
        spec: The specification that the policy gets.
        tables: One table, or several that apply in turn; all with the spec's batch sizes.
        schedule: Index of the table that applies, by recurrence; its length is the number of
            recurrences.
        seed: Seed for drawing recorded runs.
    """

    spec: JobSpec
    tables: Sequence[JobTable]
    schedule: Sequence[int]
    seed: int


@dataclass
class Result:
    """Results of a replay by job, and with a history also by recurrence.

    Attributes:
        recurrences: Number of recurrences.
        trials: Number of trials of all recurrences.
        unreached: Number of recurrences that were abandoned.
        cost: Total cost in joules; `energy` in joules and `time` in seconds likewise.
        regret: Sum over recurrences of the cost beyond the oracle's, in units of the oracle's.
        last_energy: Joules of each of the last five recurrences; `last_time` in seconds.
        last_arm: Index of the batch size of the last recurrence; `last_power` of its power limit.
        history: By job and recurrence, if requested: `arm`, `power`, `cost`, `energy`, `time`,
            `trials` and `reached`; NaN beyond the end of a shorter job.
    """

    recurrences: Ints
    trials: Ints
    unreached: Ints
    cost: Floats
    energy: Floats
    time: Floats
    regret: Floats
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
) -> Result:
    """Replay jobs that all have the same policy.

    Args:
        jobs: The lanes.
        slots: How many recurrences of a job run at the same time.
        history: Whether to record every recurrence.
        policy: Used instead of the policy that the first job names.
        progress: Called from time to time with the fraction that is done.
    """
    chosen = policy_named(jobs[0].spec.policy) if policy is None else policy
    return _Replay(jobs, chosen, slots, history).run(progress)


class _Replay:
    """State of a replay. Finished lanes are dropped; `origin` maps the others to jobs."""

    def __init__(self, jobs: Sequence[Job], policy: Policy, slots: int, history: bool) -> None:
        tables: list[JobTable] = []
        places: dict[int, int] = {}
        for job in jobs:
            for table in job.tables:
                if id(table) not in places:
                    places[id(table)] = len(tables)
                    tables.append(table)
        self.world = World.of(tables)
        self.policy = policy
        crosses = policy.crosses_gpus
        lanes = JobBatch.of([job.spec for job in jobs])
        # GPU models are numbered within each job.
        models = [list(dict.fromkeys(table.gpu for table in job.tables)) for job in jobs]
        gpus = max(len(names) for names in models)
        self.state = self.policy.begin(lanes, gpus if crosses else 1)
        self.crosses = crosses
        count = len(jobs)
        self.total = np.array([len(job.schedule) for job in jobs], dtype=np.int64)
        self.schedule = np.zeros((count, int(self.total.max())), dtype=np.int32)
        self.gpu = np.zeros(self.schedule.shape, dtype=np.int8)
        for row, (job, names) in enumerate(zip(jobs, models, strict=True)):
            turns = np.asarray(job.schedule, dtype=np.int64)
            numbers = np.array([places[id(table)] for table in job.tables])
            self.schedule[row, : len(turns)] = numbers[turns]
            numbers = np.array([names.index(table.gpu) for table in job.tables])
            self.gpu[row, : len(turns)] = numbers[turns]
        self.seed = np.array([job.seed for job in jobs], dtype=np.int64)
        self.origin = np.arange(count)
        self.done = np.zeros(count, dtype=np.int64)
        self.submitted = np.zeros(count, dtype=np.int64)
        self.profiled = np.zeros((count, gpus, lanes.arms), dtype=np.bool_)
        self.flight = _Flight.of(count, slots)
        shape = (count, self.schedule.shape[1])
        self.result = Result(
            recurrences=self.total.copy(),
            trials=np.zeros(count, dtype=np.int64),
            unreached=np.zeros(count, dtype=np.int64),
            cost=np.zeros(count),
            energy=np.zeros(count),
            time=np.zeros(count),
            regret=np.zeros(count),
            last_arm=np.zeros(count, dtype=np.int64),
            last_power=np.zeros(count, dtype=np.int64),
            last_energy=np.full((count, _LAST), np.nan),
            last_time=np.full((count, _LAST), np.nan),
            history={name: np.full(shape, np.nan) for name in _HISTORY} if history else {},
        )

    def run(self, progress: Callable[[float], None] | None) -> Result:
        work, step = max(int(self.result.recurrences.sum()), 1), 0
        finished = 0
        while len(self.origin):
            self._step()
            step += 1
            finished += self._leave()
            if progress is not None and step % 16 == 0:
                progress((finished + int(self.done.sum())) / work)
        if progress is not None:
            progress(1.0)
        return self.result

    def _leave(self) -> int:
        """Drop finished lanes, once there are enough of them to be worth the copying."""
        over = self.done >= self.total
        count = int(over.sum())
        if not count or (count < len(over) // 16 and count < len(over)):
            return 0
        kept = np.flatnonzero(~over)
        left = int(self.done[over].sum())
        self.state = self.state.take(kept)
        self.flight = self.flight.take(kept)
        for name in _PER_LANE:
            setattr(self, name, getattr(self, name)[kept])
        return left

    def _step(self) -> None:
        flight = self.flight
        count = len(self.origin)
        if flight.busy.any():
            # The trial that ends first, in lanes where no submission comes earlier.
            waiting = (self.submitted < self.total) & any_arm(~flight.busy)
            ending = np.flatnonzero(any_arm(flight.busy) & ~waiting)
            retry = self._end(ending) if len(ending) else ending
        else:
            retry = np.zeros(0, dtype=np.int64)
        free = any_arm(~flight.busy)
        free[retry] = False
        new = np.flatnonzero(free & (self.submitted < self.total))
        rows = np.concatenate((retry, new)) if len(retry) else new
        if not len(rows):
            return
        slot = np.concatenate((flight.slot[retry], flight.busy[new].argmin(axis=1)))
        flight.recurrence[new, slot[len(retry) :]] = self.submitted[new]
        flight.start_over(new, slot[len(retry) :])
        self.submitted[new] += 1
        order = np.argsort(rows) if len(retry) and len(new) else ALL
        rows, slot = rows[order], slot[order]
        self._begin(rows, slot, whole=len(rows) == count)

    def _begin(self, rows: Ints, slot: Ints, whole: bool) -> None:
        flight = self.flight
        recurrence = flight.recurrence[rows, slot]
        attempt = flight.attempt[rows, slot]
        table = self.schedule[rows, recurrence].astype(np.int64)
        gpu = self.gpu[rows, recurrence].astype(np.int64)
        told = gpu if self.crosses else np.zeros_like(gpu)
        lanes: Rows = ALL if whole else rows
        choices = self.policy.choose(self.state, lanes, told, attempt)
        self.policy.decided(self.state, lanes, choices)
        known = self.profiled[rows, gpu, choices.arm]
        ran = self.world.run(
            table, choices, known, seed=self.seed[rows], recurrence=recurrence, attempt=attempt
        )
        flight.busy[rows, slot] = True
        at = rows, slot
        start = flight.clock[rows]
        flight.end[at] = start + ran.time
        if flight.busy.shape[1] > 1:
            # With a new batch size, the end of the first epoch comes first, the rest follows.
            early = np.isfinite(ran.told)
            flight.final[at] = np.where(early, flight.end[at], np.nan)
            flight.end[at] = np.where(early, start + ran.told, flight.end[at])
        flight.arm[at], flight.role[at], flight.power[at] = choices.arm, choices.role, choices.power
        flight.settled[at], flight.converged[at] = ran.power, ran.converged
        flight.epochs[at], flight.cost[at], flight.epoch_cost[at] = (
            ran.epochs,
            ran.cost,
            ran.epoch_cost,
        )
        flight.load[at] = ran.load
        flight.sum_cost[at] += ran.cost
        flight.sum_energy[at] += ran.energy
        flight.sum_time[at] += ran.time
        flight.attempt[at] += 1

    def _end(self, rows: Ints) -> Ints:
        """End the first trial of each of these lanes, and return the lanes that must retry."""
        flight = self.flight
        slot = flight.end[rows].argmin(axis=1)
        if flight.busy.shape[1] > 1:
            early = np.isfinite(flight.final[rows, slot])
            if early.any():
                self._note(rows[early], slot[early])
                rows, slot = rows[~early], slot[~early]
                if not len(rows):
                    return rows
        at = rows, slot
        flight.slot[rows] = slot
        flight.clock[rows] = flight.end[at]
        flight.end[at] = np.inf
        flight.busy[at] = False
        recurrence, arm = flight.recurrence[at], flight.arm[at]
        table = self.schedule[rows, recurrence].astype(np.int64)
        gpu = self.gpu[rows, recurrence].astype(np.int64)
        converged = flight.converged[at]
        nothing = np.zeros(len(rows), dtype=np.bool_)
        trials = Trials(
            arm=arm,
            role=flight.role[at],
            power=flight.power[at],
            gpu=gpu if self.crosses else np.zeros_like(gpu),
            converged=converged,
            void=nothing,
            unfit=nothing,
            epochs=flight.epochs[at],
            cost=flight.cost[at],
            epoch_cost=flight.epoch_cost[at],
            load=flight.load[at],
        )
        self.policy.ended(self.state, ALL if len(rows) == len(self.origin) else rows, trials)
        self.profiled[rows, gpu, arm] |= trials.epochs > 0
        over = converged | (flight.attempt[at] >= MAX_ATTEMPTS)
        self._account(rows[over], slot[over], table[over])
        again: Ints = rows[~over]
        return again

    def _note(self, rows: Ints, slot: Ints) -> None:
        """Handle the end of the first epoch of new batch sizes; their trials continue."""
        flight = self.flight
        at = rows, slot
        gpu = self.gpu[rows, flight.recurrence[at]].astype(np.int64)
        notes = FirstEpochs(
            arm=flight.arm[at],
            gpu=gpu if self.crosses else np.zeros_like(gpu),
            epoch_cost=flight.epoch_cost[at],
            load=flight.load[at],
        )
        self.policy.noted(self.state, ALL if len(rows) == len(self.origin) else rows, notes)
        self.profiled[rows, gpu, notes.arm] = True
        flight.clock[rows] = flight.end[at]
        flight.end[at] = flight.final[at]
        flight.final[at] = np.nan

    def _account(self, rows: Ints, slot: Ints, table: Ints) -> None:
        """Add finished recurrences to the result."""
        flight, result = self.flight, self.result
        at, who = (rows, slot), self.origin[rows]
        cost, energy, time = flight.sum_cost[at], flight.sum_energy[at], flight.sum_time[at]
        recurrence = flight.recurrence[at]
        result.trials[who] += flight.attempt[at]
        result.unreached[who] += ~flight.converged[at]
        result.cost[who] += cost
        result.energy[who] += energy
        result.time[who] += time
        result.regret[who] += cost / self.world.oracle[table] - 1
        last = np.flatnonzero(recurrence >= self.total[rows] - _LAST)
        place = recurrence[last] - self.total[rows][last] + _LAST
        result.last_energy[who[last], place] = energy[last]
        result.last_time[who[last], place] = time[last]
        final = np.flatnonzero(recurrence == self.total[rows] - 1)
        result.last_arm[who[final]] = flight.arm[at][final]
        result.last_power[who[final]] = flight.settled[at][final]
        self.done[rows] += 1
        if result.history:
            values = {
                "arm": flight.arm[at],
                "power": flight.settled[at],
                "cost": cost,
                "energy": energy,
                "time": time,
                "trials": flight.attempt[at],
                "reached": flight.converged[at],
            }
            for name, value in values.items():
                result.history[name][who, recurrence] = value


_PER_LANE = ("total", "schedule", "gpu", "seed", "origin", "done", "submitted", "profiled")
_HISTORY = ("arm", "power", "cost", "energy", "time", "trials", "reached")


@dataclass
class _Flight:
    """Running trials, by lane and slot.

    `end` is the time of the next event of each. Where that is only the end of its first epoch,
    `final` is the end of the trial; NaN otherwise.
    """

    clock: Floats
    slot: Ints
    busy: Bools
    end: Floats
    final: Floats
    recurrence: Ints
    attempt: Ints
    arm: Ints
    role: Ints
    power: Ints
    settled: Ints
    converged: Bools
    epochs: Floats
    cost: Floats
    epoch_cost: Floats
    load: Floats
    sum_cost: Floats
    sum_energy: Floats
    sum_time: Floats

    @classmethod
    def of(cls, lanes: int, slots: int) -> _Flight:
        shape = (lanes, slots)

        def whole() -> Ints:
            return np.zeros(shape, dtype=np.int64)

        def real() -> Floats:
            return np.zeros(shape)

        return cls(
            clock=np.zeros(lanes),
            slot=np.zeros(lanes, dtype=np.int64),
            busy=np.zeros(shape, dtype=np.bool_),
            end=np.full(shape, np.inf),
            final=np.full(shape, np.nan),
            recurrence=whole(),
            attempt=whole(),
            arm=whole(),
            role=whole(),
            power=whole(),
            settled=whole(),
            converged=np.zeros(shape, dtype=np.bool_),
            epochs=real(),
            cost=real(),
            epoch_cost=real(),
            load=real(),
            sum_cost=real(),
            sum_energy=real(),
            sum_time=real(),
        )

    def take(self, rows: Ints) -> _Flight:
        return _Flight(**{name: value[rows] for name, value in vars(self).items()})

    def start_over(self, rows: Ints, slot: Ints) -> None:
        """Begin a new recurrence in these slots."""
        at = rows, slot
        self.attempt[at] = 0
        self.sum_cost[at] = self.sum_energy[at] = self.sum_time[at] = 0.0

"""The slow way: one job after the other, one event after the other, from a queue of events."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Choices, JobBatch, Trials
from zeus.optimizer.batch_size.policies._base import FirstEpochs
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._event_loop import MAX_ATTEMPTS
from zeus.replay._world import TrialResults, World

END, START = 0, 1  # what ends at the instant of a start is known to it


@dataclass
class Began:
    """A trial: when it began and ends, how many recurrences ran then, and its outcome.

    Its cost includes what was measured before, which is no part of the outcome.
    """

    recurrence: int
    attempt: int
    arm: int
    running: int
    begin: float
    end: float
    cost: float
    oracle: float
    choices: Choices
    ran: TrialResults


def story(spec, tables, seed, *, start=None, stretch=None, slots=None, measure=True):
    """Every trial of a job, in the order in which they begin.

    Args:
        spec: Of the job.
        tables: That of each recurrence.
        seed: For drawing recorded runs.
        start: Submission times; without, the next is submitted when one of the `slots` is free.
        stretch: Seconds that pass for each recorded one.
        slots: How many run at the same time.
        measure: Whether all batch sizes are measured before the first trial on a GPU model.
    """
    policy, world = policy_named(spec.policy), World.of(tables)
    models = list(dict.fromkeys(table.gpu for table in tables))
    crosses = policy.crosses_gpus
    # A policy that does not cross GPU models has a state for each of them.
    states = [
        policy.begin(JobBatch.of([spec]), len(models) if crosses else 1)
        for _ in ([None] if crosses else models)
    ]
    stretch = np.ones(len(tables)) if stretch is None else stretch
    one = slice(None)
    queue: list = []
    running: dict = {}
    final: dict = {}
    place: dict = {}
    trials: list = []
    profiled: set = set()
    measured: set = set()
    waiting = count()

    def number(job):
        return models.index(tables[job].gpu)

    def known(job):
        return np.array([number(job) if crosses else 0])

    def state_of(job):
        return states[0 if crosses else number(job)]

    def measure_sizes(job, scale=1.0):
        """At the highest power limit, but for what a trial has profiled."""
        table = tables[job]
        cost, load = scale * table.epoch_cost[:, -1], table.power[:, -1] / table.power_limits[-1]
        cost[[arm for gpu, arm in profiled if gpu == number(job)]] = np.nan
        policy.measured(state_of(job), one, known(job), cost[None], load[None])

    def profile(job, trial):
        profiled.add((number(job), trial.arm))
        if measure and policy.measures_sizes:
            cost = tables[job].epoch_cost
            known = sorted(arm for gpu, arm in profiled if gpu == number(job))
            measure_sizes(job, float((cost[known].min(axis=1) / cost[known, -1]).mean()))

    def begin(now, job):
        new = measure and policy.measures_sizes and number(job) not in measured
        if new:
            measured.add(number(job))
            measure_sizes(job)
        attempt = running[job].attempt + 1 if job in running else 0
        choices = policy.choose(state_of(job), one, known(job), np.array([attempt]))
        policy.decided(state_of(job), one, choices)
        arm = int(choices.arm[0])
        ran = world.run(
            np.array([job]), choices, np.array([(number(job), arm) in profiled]),
            seed=np.array([seed]), recurrence=np.array([job]), attempt=np.array([attempt]),
            foreseen=policy.foresees_epochs,
        )  # fmt: skip
        whole = world.with_sizes_measured(ran, np.array([job]), np.array([new]))
        end, cost = now + float(whole.time[0]) * stretch[job], float(whole.cost[0])
        running.setdefault(job, None)
        oracle = float(world.oracle[job])
        running[job] = Began(job, attempt, arm, len(running), now, end, cost, oracle, choices, ran)
        trials.append(running[job])
        # Nobody else decides before the end of the only trial.
        early = np.isfinite(ran.first_epoch[0]) and slots != 1
        final[job] = end if early else None
        next_event = now + float(ran.first_epoch[0]) * stretch[job] if early else end
        heapq.heappush(queue, (next_event, END, place[job], job))

    def submit(now, spot):
        job = next(waiting)
        if job < len(tables):
            place[job] = spot
            begin(now, job)

    if start is None:
        for slot in range(slots):
            submit(0.0, slot)
    else:
        place |= {job: job for job in range(len(tables))}
        queue += [(float(when), START, job, job) for job, when in enumerate(start)]
        heapq.heapify(queue)
    while queue:
        now, kind, _, job = heapq.heappop(queue)
        if kind == START:
            begin(now, job)
            continue
        trial = running[job]
        choices, ran = trial.choices, trial.ran
        if final[job] is not None:
            notes = FirstEpochs(choices.arm, known(job), ran.epoch_cost, ran.load)
            policy.noted(state_of(job), one, notes)
            if (number(job), trial.arm) not in profiled:
                profile(job, trial)
            heapq.heappush(queue, (final[job], END, place[job], job))
            final[job] = None
            continue
        nothing = np.zeros(1, dtype=np.bool_)
        policy.ended(
            state_of(job), one,
            Trials(
                arm=choices.arm, role=choices.role, power=choices.power, gpu=known(job),
                converged=ran.converged, void=nothing, unfit=nothing, epochs=ran.epochs,
                cost=ran.cost, epoch_cost=ran.epoch_cost, load=ran.load,
                full_cost=ran.full_cost,
            ),
        )  # fmt: skip
        if ran.epochs[0] > 0 and (number(job), trial.arm) not in profiled:
            profile(job, trial)
        if not ran.converged[0] and trial.attempt + 1 < MAX_ATTEMPTS:
            begin(now, job)
            continue
        del running[job]
        if start is None:
            submit(now, place[job])
    return trials

"""The slow way: one group after the other, one event after the other, from a queue of events."""

from __future__ import annotations

import heapq

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import JobBatch, Trials
from zeus.optimizer.batch_size.policies._base import FirstEpochs
from zeus.optimizer.batch_size.policies._registry import policy_named
from zeus.replay._engine import MAX_ATTEMPTS
from zeus.replay._world import World

END, START = 0, 1  # what ends at the instant of a start is known to it


def replayed(groups, tables, policy, **options):
    """What each group takes, by group: the figures of `Sums`, and what every trial was."""
    return [
        _group(
            tables[groups.table[number]].spec(policy, int(groups.seed[number]), **options),
            tables[groups.table[number]],
            slice(groups.first[number], groups.first[number + 1]),
            groups,
        )
        for number in range(len(groups.table))
    ]


def _group(spec, table, jobs, groups):
    policy, world = policy_named(spec.policy), World.of([table])
    state = policy.begin(JobBatch.of([spec]))
    start, weight, stretch = groups.start[jobs], groups.weight[jobs], groups.stretch[jobs]
    queue = [(float(when), START, number) for number, when in enumerate(start)]
    heapq.heapify(queue)
    running, attempts, profiled, told = {}, {}, set(), {}
    one, zero = slice(None), np.zeros(1, dtype=np.int64)
    sums = {"jobs": len(start), "trials": 0, "unreached": 0, "overlapping": 0, "most_at_once": 0}
    sums |= {"energy": 0.0, "time": 0.0, "runs": 0.0}
    story = []

    def begin(now, job):
        attempt = attempts.get(job, 0)
        choices = policy.choose(state, one, zero, np.array([attempt]))
        policy.decided(state, one, choices)
        arm = int(choices.arm[0])
        ran = world.run(
            zero, choices, np.array([arm in profiled]), seed=np.array([spec.seed]),
            recurrence=np.array([job]), attempt=np.array([attempt]),
        )  # fmt: skip
        attempts[job] = attempt + 1
        running[job] = (choices, ran)
        sums["trials"] += 1
        sums["energy"] += float(ran.energy[0]) * weight[job]
        sums["time"] += float(ran.time[0]) * weight[job]
        sums["runs"] += float(ran.cost[0]) / float(world.oracle[0])
        end = now + float(ran.time[0]) * stretch[job]
        story.append((now, job, attempt, arm, end))
        early = np.isfinite(ran.told[0])
        told[job] = end if early else None
        heapq.heappush(queue, (now + float(ran.told[0]) * stretch[job] if early else end, END, job))

    while queue:
        now, kind, job = heapq.heappop(queue)
        if kind == START:
            sums["overlapping"] += bool(running)
            begin(now, job)
            sums["most_at_once"] = max(sums["most_at_once"], len(running))
            continue
        if told[job] is not None:
            choices, ran = running[job]
            policy.noted(state, one, FirstEpochs(choices.arm, zero, ran.epoch_cost, ran.load))
            profiled.add(int(choices.arm[0]))
            heapq.heappush(queue, (told[job], END, job))
            told[job] = None
            continue
        choices, ran = running.pop(job)
        nothing = np.zeros(1, dtype=np.bool_)
        policy.ended(
            state, one,
            Trials(
                arm=choices.arm, role=choices.role, power=choices.power, gpu=zero,
                converged=ran.converged, void=nothing, unfit=nothing, epochs=ran.epochs,
                cost=ran.cost, epoch_cost=ran.epoch_cost, load=ran.load,
            ),
        )  # fmt: skip
        if ran.epochs[0] > 0:
            profiled.add(int(choices.arm[0]))
        if ran.converged[0]:
            continue
        if attempts[job] >= MAX_ATTEMPTS:
            sums["unreached"] += 1
        else:
            begin(now, job)
    return sums, story

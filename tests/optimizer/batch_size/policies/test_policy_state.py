"""Many jobs at once: the same as each alone, to the last digit."""

from __future__ import annotations

import random

import pytest
from tests.optimizer.batch_size.histories import A40, V100, random_history, spec

from zeus.optimizer.batch_size.job._events import Event
from zeus.optimizer.batch_size.policies._job_state import JobState, Setup, decide_ahead
from zeus.optimizer.batch_size.policies._policy_state import update_all

POLICIES = ["zeus", "paper", "paper-repaired", "grid", "default"]


def jobs() -> list[tuple[JobState, list[Event]]]:
    """Jobs of all policies, of several shapes, with the events that they will get."""
    made = []
    for seed in range(20):
        sizes = (8, 16, 32, 64, 128, 256) if seed % 5 == 0 else (16, 32, 64, 128, 256)
        policy = POLICIES[seed % 7] if seed % 7 < len(POLICIES) else "zeus"
        job = spec(policy=policy, window=3 * (seed % 4 == 1), batch_sizes=sizes)
        made.append((JobState(job), random_history(job, seed, 60)))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_updates_of_many_jobs_at_once_are_those_of_each(seed):
    chance = random.Random(seed)
    together, alone = jobs(), jobs()
    for number in range(60):
        for (brain, events), (single, _) in zip(together, alone, strict=True):
            brain.apply(events[number])
            single.apply(events[number])
            update_all(single.policy_states)
        if chance.random() < 0.3:
            update_all(state for brain, _ in together for state in brain.policy_states)
    update_all(state for brain, _ in together for state in brain.policy_states)
    for (brain, _), (single, _) in zip(together, alone, strict=True):
        assert brain.snapshot() == single.snapshot()


def test_decisions_of_many_jobs_at_once_are_those_of_each():
    brains = [JobState.of(brain.spec, events) for brain, events in jobs()]
    asked = [
        (gpu, attempt, Setup(replicas))
        for gpu in (A40, V100)
        for attempt in (0, 1)
        for replicas in (None, 16, 32)
    ]
    alone = [[brain.decide(gpu, n, setup=setup) for gpu, n, setup in asked] for brain in brains]
    brains = [JobState.of(brain.spec, events) for brain, events in jobs()]
    decide_ahead([(brain, each) for brain in brains for each in asked])
    assert [
        [brain.decide(gpu, n, setup=setup) for gpu, n, setup in asked] for brain in brains
    ] == alone
    assert len({choice.batch_size for choices in alone for choice in choices}) > 3


def test_a_decision_holds_until_the_next_event():
    job = spec(policy="zeus")
    events = random_history(job, 3, 80)
    ahead, late = JobState(job), JobState(job)
    for event in events:
        ahead.apply(event)
        decide_ahead([(ahead, (gpu, 0, Setup())) for gpu in (A40, V100)])
        late.apply(event)
        assert ahead.decide(V100) == late.decide(V100)
        assert ahead.decide(A40) == late.decide(A40)

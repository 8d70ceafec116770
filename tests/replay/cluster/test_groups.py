"""Many groups at once: the very events that one group after the other would have."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay.naive import story
from tests.replay.tables import VALLEY, table

from zeus.replay._event_loop import MAX_ATTEMPTS
from zeus.replay.cluster._groups import Groups, Sums, run_groups

POLICIES = ("default", "grid", "paper", "zeus")
TABLES = (
    table(VALLEY, default=256),
    table({16: [5, 7], 64: [4, np.inf], 256: [9]}, default=64),
)


def groups(sizes, *, gap, seed=0, stretch=1.0, tables=2):
    """Jobs with starts and sizes that are drawn; whole seconds, so that many are the same."""
    generator = np.random.default_rng(seed)
    first = np.concatenate(([0], np.cumsum(sizes)))
    number = np.repeat(np.arange(len(sizes)), sizes)
    start = np.round(generator.random(first[-1]) * gap * np.repeat(sizes, sizes))
    weight = np.round(generator.lognormal(0, 0.5, first[-1]), 1) + 0.1
    return Groups(
        table=np.arange(len(sizes)) % tables,
        seed=generator.integers(0, 2**53, len(sizes)),
        first=first,
        start=start[np.lexsort((start, number))],
        weight=weight,
        stretch=stretch * weight,
    )


def trials_of(work, number, policy, **options):
    """Every trial of a group, by the slow way."""
    jobs = slice(work.first[number], work.first[number + 1])
    own, seed = TABLES[work.table[number]], int(work.seed[number])
    return story(
        own.spec(policy, seed, **options), [own] * len(work.start[jobs]), seed,
        start=work.start[jobs], stretch=work.stretch[jobs], measure=False,
    )  # fmt: skip


def added_up(work, number, policy, **options):
    """The figures of `Sums`, by the slow way."""
    weight = work.weight[work.first[number] :]
    sums: dict[str, float]
    sums = {"jobs": int(np.diff(work.first)[number]), "trials": 0, "unreached": 0}
    sums |= {"energy": 0.0, "time": 0.0, "runs": 0.0, "overlapping": 0, "most_at_once": 0}
    for trial in trials_of(work, number, policy, **options):
        ran = trial.ran
        sums["trials"] += 1
        sums["energy"] += float(ran.energy[0]) * weight[trial.recurrence]
        sums["time"] += float(ran.time[0]) * weight[trial.recurrence]
        sums["runs"] += float(ran.cost[0]) / trial.oracle
        sums["unreached"] += trial.attempt + 1 == MAX_ATTEMPTS and not ran.converged[0]
        if not trial.attempt:
            sums["overlapping"] += trial.running > 1
            sums["most_at_once"] = max(sums["most_at_once"], trial.running)
    return sums


def row(sums, number):
    return {field.name: getattr(sums, field.name)[number].item() for field in fields(Sums)}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("gap", [20.0, 3000.0])
def test_all_groups_at_once_are_as_one_after_the_other(policy, gap):
    work = groups([1, 2, 60, 3, 25, 7, 2, 40], gap=gap)
    together = run_groups(work, TABLES, policy, {"beta": 1.5})
    for number in range(len(work.table)):
        assert row(together, number) == added_up(work, number, policy, beta=1.5), number
    assert together.overlapping.sum() > 0
    if policy != "default":
        assert together.trials.sum() > together.jobs.sum()


@settings(max_examples=15)
@given(
    st.sampled_from(POLICIES),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.sampled_from([0.0, 1.0, 100.0, 1000.0]),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_whatever_the_jobs(policy, sizes, gap, seed, stretch):
    work = groups(sizes, gap=gap, seed=seed, stretch=stretch)
    together = run_groups(work, TABLES, policy, {"window": 3})
    for number in range(len(work.table)):
        assert row(together, number) == added_up(work, number, policy, window=3)


def test_a_decision_knows_only_what_has_ended():
    # Alone, the paper's policy goes from the default to the next batch size after one run.
    def batch_sizes(starts):
        work = Groups(
            table=np.zeros(1, dtype=np.int64),
            seed=np.array([7]),
            first=np.array([0, len(starts)]),
            start=np.array(starts, dtype=np.float64),
            weight=np.ones(len(starts)),
            stretch=np.ones(len(starts)),
        )
        assert run_groups(work, TABLES, "paper", {}).trials.sum() >= len(starts)
        trials = trials_of(work, 0, "paper")
        return [TABLES[0].batch_sizes[t.arm] for t in trials if not t.attempt], trials

    alone, trials = batch_sizes([0, 1e6])
    assert alone == [256, 128]
    first_end = trials[0].end
    assert batch_sizes([0, first_end])[0] == [256, 128]
    assert batch_sizes([0, np.nextafter(first_end, 0)])[0] == [256, 256]


def test_a_profile_serves_others_as_soon_as_its_first_epoch_is_over():
    world = table({64: [5]}, default=64)
    first = world.time[0].mean()  # every power limit gets its share
    best, profile = world.epoch_cost[0].min(), world.epoch_cost[0].mean()

    def cost(second_start):
        work = replace(groups([2], gap=0.0, tables=1), start=np.array([0.0, second_start]))
        work = replace(work, stretch=np.ones(2))
        return run_groups(work, [world], "zeus", {}).runs[0] * world.optimum.cost

    assert cost(0.99 * first) == pytest.approx(2 * (4 * best + profile))
    assert cost(1.01 * first) == pytest.approx(4 * best + profile + 5 * best)


def test_sizes_scale_what_is_spent_and_when_it_ends():
    world = table({64: [5]}, default=64)
    work = groups([3], gap=0.0, tables=1)
    sums = run_groups(work, [world], "default", {})
    time = 5 * world.time[0, -1]
    assert sums.time[0] == pytest.approx(time * work.weight.sum())
    assert sums.energy[0] == pytest.approx(time * work.weight.sum() * 0.9 * 200)
    assert sums.runs[0] == pytest.approx(3 * 5 * world.epoch_cost[0, -1] / world.optimum.cost)
    assert (sums.jobs[0], sums.overlapping[0], sums.most_at_once[0]) == (3, 2, 3)


def test_a_job_that_never_converges_is_given_up():
    world = table({32: [4], 64: [np.inf]}, default=64)
    sums = run_groups(groups([2, 2], gap=10.0, tables=1), [world], "default", {})
    assert sums.unreached.tolist() == [2, 2]
    assert sums.trials.tolist() == [2 * MAX_ATTEMPTS] * 2


def test_progress_counts_jobs():
    told: list = []
    run_groups(groups([300, 5], gap=1000.0), TABLES, "default", {}, told.append)
    assert told == sorted(told)
    assert 0 < told[-1] <= 305

"""The engine: what is paid, what counts, and that jobs do not notice each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay.naive import story
from tests.replay.tables import VALLEY, table

from zeus.replay._event_loop import MAX_ATTEMPTS
from zeus.replay._jobs import Job, replay

POLICIES = ("default", "grid", "paper", "zeus")
FIGURES = ("trials", "unreached", "cost", "energy", "time", "regret", "last_arm", "last_power")


def jobs(world, policy, seeds, runs=30, **options):
    return [Job(world.spec(policy, seed, **options), [world], [0] * runs, seed) for seed in seeds]


def test_the_default_pays_for_its_epochs_at_full_power():
    world = table({32: [4], 64: [5]}, default=64)
    result = replay(jobs(world, "default", [0], runs=3))
    time = 5 * world.time[1, -1]
    assert result.time[0] == pytest.approx(3 * time)
    assert result.energy[0] == pytest.approx(3 * time * 0.9 * 200)
    assert (result.trials[0], result.unreached[0], result.last_power[0]) == (3, 0, 1)


def test_profiling_is_paid_once_in_the_first_epoch():
    world = table({64: [5]}, default=64)
    result = replay(jobs(world, "zeus", [0], runs=2), history=True, measure_sizes=False)
    best = world.epoch_cost[0].min()
    first, second = result.history["cost"][0]
    assert first == pytest.approx(4 * best + world.epoch_cost[0].mean())
    assert second == pytest.approx(5 * best)


def test_the_paper_stops_before_the_epoch_that_costs_too_much_and_retries_count():
    # The default takes 4 epochs; the other would take 20, and is stopped at twice that.
    world = table({32: [20], 64: [4]}, default=64, step_cost=0.0, power_limits=(200.0,))
    result = replay(jobs(world, "paper", [0], runs=2), history=True)
    epoch = world.epoch_cost[0, 0]
    assert result.history["trials"][0].tolist() == [1, 2]
    # 8 epochs in vain, then the default again in the next round.
    assert result.history["cost"][0] == pytest.approx([4 * epoch, 8 * epoch + 4 * epoch])
    assert result.regret[0] == pytest.approx(2.0)


def test_without_beta_nothing_is_stopped():
    world = table({32: [20], 64: [4]}, default=64)
    for policy in ("paper", "zeus"):
        result = replay(jobs(world, policy, range(5), beta=None))
        assert (result.trials == 30).all()


def test_a_job_that_cannot_converge_with_the_default_is_given_up_or_saved():
    world = table({32: [4], 64: [np.inf]}, default=64)
    given_up = replay(jobs(world, "default", [0], runs=2))
    assert (given_up.unreached[0], given_up.trials[0]) == (2, 2 * MAX_ATTEMPTS)
    for policy in ("grid", "paper-repaired", "zeus"):
        saved = replay(jobs(world, policy, range(5), runs=20))
        assert (saved.unreached == 0).all()
        assert (np.array(world.batch_sizes)[saved.last_arm] == 32).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [1, 3])
def test_jobs_do_not_notice_each_other(policy, slots):
    small = table({16: [5, 7], 64: [4, 6], 256: [9]}, default=64)
    large = table(VALLEY, default=128)
    mixed = [
        *jobs(small, policy, [3, 4], runs=25, window=4),
        *jobs(large, policy, [3, 9], runs=40),
    ]
    together = replay(mixed, slots=slots)
    for row, job in enumerate(mixed):
        alone = replay([job], slots=slots)
        for figure in FIGURES:
            assert getattr(together, figure)[row] == getattr(alone, figure)[0], figure


def test_every_event_is_as_from_a_queue_of_events():
    small: dict[int, Sequence[float]] = {16: [5, 7], 64: [4, 6], 256: [9, np.inf]}
    worlds = [table(small, default=64, gpu=gpu) for gpu in ("one", "two")]
    worlds.append(table({16: [9, np.inf], 64: [4, 6], 256: [3, 5]}, default=64, gpu="two"))
    schedule = [0] * 12 + [1] * 9 + [2] * 9
    for policy in POLICIES:
        mixed = [
            Job(worlds[0].spec(policy, seed, window=window), worlds, schedule, seed + 7)
            for seed, window in ((0, 0), (1, 5))
        ]
        for slots in (1, 2, 4):
            history = replay(mixed, slots=slots, history=True).history
            for row, job in enumerate(mixed):
                tables = [worlds[turn] for turn in schedule]
                spent = dict.fromkeys(range(len(schedule)), 0.0)
                for trial in story(job.spec, tables, job.seed, slots=slots):
                    spent[trial.recurrence] += trial.cost
                    # The last trial of a recurrence counts for what follows.
                    assert history["trials"][row, trial.recurrence] > trial.attempt
                    if history["trials"][row, trial.recurrence] == trial.attempt + 1:
                        assert history["arm"][row, trial.recurrence] == trial.arm
                        assert history["reached"][row, trial.recurrence] == trial.ran.converged[0]
                assert history["cost"][row].tolist() == list(spent.values())


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15)
@given(st.data())
def test_any_world_is_survived(policy, data):
    sizes = data.draw(st.lists(st.sampled_from([8, 12, 32, 64, 96, 512]), min_size=1, unique=True))
    run = st.one_of(st.integers(1, 60).map(float), st.just(np.inf))
    epochs = {size: data.draw(st.lists(run, min_size=1, max_size=3)) for size in sizes}
    epochs[sizes[0]][0] = 3.0  # something converges
    default = data.draw(st.sampled_from(sizes))
    world = table(epochs, default=default, max_epochs=data.draw(st.integers(3, 60)))
    slots = data.draw(st.integers(1, 4))
    window = data.draw(st.sampled_from([0, 1, 5]))
    result = replay(jobs(world, policy, range(3), runs=12, window=window), slots=slots)
    assert (result.trials >= 12).all()
    assert (result.trials <= 12 * MAX_ATTEMPTS).all()
    assert np.isfinite(result.cost).all()
    assert (result.cost > 0).all()


@pytest.mark.parametrize("policy", ["paper", "zeus"])
def test_it_finds_the_valley(policy):
    world = table(VALLEY, default=256)
    result = replay(jobs(world, policy, range(20), runs=80))
    assert (result.unreached == 0).all()
    expected = world.expected_epochs * world.epoch_cost.min(axis=1)
    assert (expected[result.last_arm] <= 1.05 * expected.min()).mean() >= 0.9


def test_zeus_spends_less_on_the_way_than_the_paper_and_grid_search():
    world = table(VALLEY, default=256)
    regret = {
        policy: replay(jobs(world, policy, range(20), runs=80)).regret.mean() for policy in POLICIES
    }
    assert regret["zeus"] < 0.6 * regret["paper"]
    assert regret["paper"] < regret["grid"]


def test_overlapping_jobs_are_decided_before_the_results_are_in():
    world = table(VALLEY, default=256)
    for policy in ("paper", "zeus"):
        alone = replay(jobs(world, policy, range(5), runs=40), history=True)
        overlapping = replay(jobs(world, policy, range(5), runs=40), slots=4, history=True)
        assert (overlapping.recurrences == alone.recurrences).all()
        # The first jobs start together, with nothing known.
        first = overlapping.history["arm"][:, :2]
        assert (np.array(world.batch_sizes)[first[:, 0].astype(int)] == 256).all()
        assert overlapping.regret.mean() > alone.regret.mean()


def test_progress_ends_at_one():
    shares: list[float] = []
    replay(jobs(table(VALLEY, default=256), "paper", range(3)), progress=shares.append)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)

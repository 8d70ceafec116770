"""What trials are expected to gain and to waste, and that no batch size is ruled out forever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.batch_size.trials import Lane

from zeus.optimizer.batch_size.job._job_batch import ALL, JobBatch
from zeus.optimizer.batch_size.policies._valuation import valued
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy
from zeus.replay._jobs import Job, replay
from zeus.replay._table import JobTable

SIZES = (8, 16, 32, 64, 128, 256)


def play(lane, outcomes, nights):
    """Run nights whose epochs and cost of an epoch are given by batch size; return their sizes."""
    chosen = []
    for _ in range(nights):
        choices = lane.begin()
        size = lane.size(choices)
        epochs, epoch_cost = outcomes[size]
        lane.end(choices, epochs, epoch_cost=epoch_cost)
        chosen.append(size)
    return chosen


def table(epochs, costs, default, *, gpu="V100") -> JobTable:
    """A job whose epochs, one list of runs for each batch size, and costs of an epoch are given."""
    longest = max(len(runs) for runs in epochs)
    time = np.array(costs, dtype=float)[:, None] / 100.0
    return JobTable(
        gpu=gpu,
        workload="made up",
        batch_sizes=tuple(8 * 2**place for place in range(len(costs))),
        power_limits=(100.0,),
        default=default,
        target_metric=0.9,
        higher_is_better=True,
        max_epochs=100,
        max_power=100.0,
        epochs=np.array([[*runs, *[np.nan] * (longest - len(runs))] for runs in epochs]),
        time=time,
        power=np.full_like(time, 100.0),
    )


# --- gain and waste -----------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.integers(1, 60), min_size=6, max_size=6), st.integers(5, 40))
def test_there_is_always_something_to_gain_and_never_more_to_lose_than_a_restart(epochs, nights):
    lane = Lane("zeus", SIZES, 64)
    play(lane, {size: (n, 100.0) for size, n in zip(SIZES, epochs, strict=True)}, nights)
    view = ZeusPolicy().view(lane.state, ALL, np.array([0]))
    others = np.arange(len(SIZES)) != view.reference[0]
    assert (view.gain[0][:, others] > 0).all()
    assert view.gain[0][:, ~others] == pytest.approx(0.0, abs=1e-9)
    # A run of the reference, and the first epoch of the trial; profiling costs nothing here.
    epoch = np.exp(view.price[0] - view.best[0])
    assert (view.waste[0] <= 1 + epoch + 1e-9).all()


def test_what_exploring_is_worth_grows_with_every_night_in_which_nothing_is_learned():
    policy = ZeusPolicy()
    lane = Lane("zeus", SIZES, 64, exploration_budget=None)
    play(lane, {size: (10, 100.0 * size / 8) for size in SIZES}, 30)
    view = ZeusPolicy().view(lane.state, ALL, np.array([0]))
    worth = policy.worth(lane.state, ALL, view)[0]
    lane.state.ended += 1000
    later = policy.worth(lane.state, ALL, view)[0]
    assert (later[view.gain[0, 0] > 0] > worth[view.gain[0, 0] > 0]).all()


def test_more_trials_show_more_and_a_larger_distance_is_more_uncertain():
    lane = Lane("zeus", SIZES, 64)
    lane.run(10)
    view = ZeusPolicy().view(lane.state, ALL, np.array([0]))
    assert (np.diff(view.gain[0], axis=0)[:, np.arange(6) != 3] > 0).all()
    assert (np.diff(view.spread[0, 3:]) > 0).all()
    assert (np.diff(view.spread[0, 3::-1]) > 0).all()


def test_a_view_depends_on_nothing_but_its_own_job():
    policy = ZeusPolicy()
    one, other = Lane("zeus", SIZES, 64), Lane("zeus", SIZES, 8)
    both = policy.begin(JobBatch.of([one.spec, other.spec]), 2)
    view = valued(policy.assume, both, ALL, np.array([0, 0]))
    for row, lane in enumerate((one, other)):
        alone = valued(policy.assume, lane.state, ALL, np.array([0]))
        assert view.deficit[row] == pytest.approx(alone.deficit[0])
        assert view.gain[row] == pytest.approx(alone.gain[0])


# --- no lock-in ---------------------------------------------------------------------------------

# Costs relative to the best, by batch size: two valleys with a hill of 35 % between them.
HILL = ((1.0, 1.1, 1.35, 1.35, 1.2, 1.3), 5)
# Epochs are whole numbers, so the cost has steps: the default's neighbors are all worse.
STEPS = ((1.0, 1.25, 1.3, 1.35, 1.2, 1.6), 4)


@pytest.mark.parametrize(("costs", "default"), [HILL, STEPS])
def test_the_better_valley_is_found_on_the_other_side_of_a_hill(costs, default):
    world = table([[20, 20, 21, 19, 20]] * 6, [1000.0 * each for each in costs], default)
    jobs = [Job(world.spec("zeus", seed), [world], [0] * 400, seed) for seed in range(20)]
    arms = replay(jobs, history=True).history["arm"].astype(int)
    expected = np.array(costs)[arms]
    assert (expected[:, 300:] > 1.05).mean() <= 0.02


@pytest.mark.thorough
def test_probes_get_ever_rarer_but_never_end():
    costs = [3.0, 2.0, 1.4, 1.0, 1.4, 2.0]
    world = table([[20, 21, 19]] * 6, [1000.0 * each for each in costs], 3)
    jobs = [Job(world.spec("zeus", seed), [world], [0] * 6000, seed) for seed in range(10)]
    for measure in (False, True):
        arms = replay(jobs, history=True, measure_sizes=measure).history["arm"].astype(int)
        wrong = (arms != 3).sum(axis=0)
        # Their number grows with the logarithm: with each doubling, others have a trial at most.
        for nights in (750, 1500, 3000):
            assert 0 < wrong[nights : 2 * nights].sum() <= 5 * len(jobs)


# --- more knowledge never costs -----------------------------------------------------------------


def made_up(seed: int) -> JobTable:
    """A job with a smooth curve of epochs and of costs, and a default that is not the best."""
    random = np.random.default_rng(seed)
    place = np.arange(7)
    epochs = 12 * np.exp(0.12 * (place - random.uniform(0, 6)) ** 2 * random.uniform(0.3, 1.2))
    costs = 1000.0 * (1 + random.uniform(0, 3) * 2.0**-place) * 1.05**place
    runs = [np.maximum(np.rint(mean * random.normal(1, 0.07, 5)), 1).tolist() for mean in epochs]
    return table(runs, costs, int(random.integers(0, 7)))


def regret(jobs, **options) -> float:
    return float(replay(jobs, **options).regret.mean())


def test_to_know_what_every_batch_size_costs_does_not_cost():
    worlds = [made_up(seed) for seed in range(40)]
    jobs = [Job(w.spec("zeus", s), [w], [0] * 100, s) for s, w in enumerate(worlds)]
    assert regret(jobs, measure_sizes=True) <= 1.05 * regret(jobs, measure_sizes=False)


def test_to_have_run_on_another_gpu_does_not_cost():
    known, alone = [], []
    for seed in range(40):
        here = made_up(seed)
        random = np.random.default_rng(1000 + seed)
        slope = random.uniform(-0.15, 0.15)
        there = table(
            [runs[~np.isnan(runs)].tolist() for runs in here.epochs],
            here.epoch_cost[:, 0] * np.exp(slope * np.arange(7)) * random.uniform(0.5, 2),
            here.default,
            gpu="A40",
        )
        spec = here.spec("zeus", seed)
        known.append(Job(spec, [here, there], [0] * 60 + [1] * 60, seed))
        alone.append(Job(spec, [there], [0] * 60, seed))
    before = [Job(job.spec, [job.tables[0]], [0] * 60, job.seed) for job in known]
    assert regret(known) - regret(before) <= regret(alone)

"""The exploration budget: what exploring may cost, in units of a default run."""

from __future__ import annotations

import numpy as np
import pytest
from tests.optimizer.batch_size.trials import Lane

from zeus.optimizer.batch_size.job._job_batch import ALL, Role
from zeus.optimizer.batch_size.policies._budget import affordable, left, profiling_cost
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy

SIZES = (8, 16, 32, 64, 128, 256)
# The default is the best: whatever is explored is wasted.
STEEP = {size: (10, 100.0 * 1.4 ** abs(np.log2(size / 64))) for size in SIZES}


def job(**options):
    return Lane("zeus", SIZES, 64, **options)


def play(lane, costs, nights, **outcome):
    """Run nights whose epochs and cost of an epoch are given by batch size; return their sizes."""
    chosen = []
    for _ in range(nights):
        choices = lane.begin()
        size = lane.size(choices)
        epochs, epoch_cost = costs[size]
        lane.end(choices, epochs, epoch_cost=epoch_cost, **outcome)
        chosen.append(size)
    return chosen


def test_a_budget_of_zero_leaves_the_batch_size_alone():
    lane = job(exploration_budget=0.0)
    cheaper = {size: (10, 1000.0 / size) for size in SIZES}
    assert play(lane, cheaper, 60) == [64] * 60
    for attempt in range(4):
        choices = lane.begin(attempt)
        assert lane.size(choices) == 64
        assert choices.role[0] == (Role.RETRY if attempt else Role.DEFAULT)
        # There is no other batch size in whose favor it could be stopped.
        assert choices.threshold[0] == np.inf
        lane.end(choices, 100, converged=False)


def test_the_first_night_is_counted_as_a_default_run():
    lane = job()
    lane.run(10, epoch_cost=100.0)
    assert left(lane.state, ALL)[0] == pytest.approx(0.05 * 2)


def test_what_a_lower_power_limit_saves_may_be_spent():
    lane = job()
    lane.run(10, epoch_cost=100.0, full_power=1.25)
    # One run at 1 / 1.25 of the cost of a default run at full power.
    assert left(lane.state, ALL)[0] == pytest.approx(0.05 * 2 + 0.2)
    lane.end(lane.begin(1), 10, epoch_cost=100.0, full_power=1.25)
    assert left(lane.state, ALL)[0] == pytest.approx(0.05 * 3 + 0.4, rel=0.05)


def test_a_trial_that_fails_is_spent_and_no_night_is_earned():
    lane = job()
    lane.run(10, epoch_cost=100.0)
    before = left(lane.state, ALL)[0]
    lane.end(lane.begin(1), 5, converged=False, epoch_cost=100.0)
    assert left(lane.state, ALL)[0] == pytest.approx(before - 0.5, rel=0.05)


def test_a_run_that_was_killed_is_no_debt():
    lane = job()
    lane.run(10, epoch_cost=100.0)
    before = left(lane.state, ALL)[0]
    lane.end(lane.begin(1), 5, converged=False, void=True, epoch_cost=100.0)
    assert left(lane.state, ALL)[0] == pytest.approx(before)


@pytest.mark.parametrize("budget", [0.02, 0.05, 0.2])
def test_what_exploring_costs_stays_within_the_budget_but_for_one_trial(budget):
    lane = job(exploration_budget=budget)
    spent, worst = 0.0, 0.0
    for night in range(1, 201):
        choices = lane.begin()
        epochs, epoch_cost = STEEP[lane.size(choices)]
        excess = epochs * epoch_cost / 1000.0 - 1
        # Before a trial that costs more than the default, what was spent has been allowed for.
        if excess > 0.2:
            assert spent <= budget * night + worst
        lane.end(choices, epochs, epoch_cost=epoch_cost)
        spent, worst = spent + excess, max(worst, excess)
    assert spent <= budget * 200 + worst


def test_a_larger_budget_affords_more():
    lane = job()
    play(lane, STEEP, 30)
    view = ZeusPolicy().view(lane.state, ALL, np.array([0]))
    found = []
    for budget in (0.001, 0.05, 0.5, np.inf):
        lane.state.lanes.budget[:] = budget
        found.append(int(affordable(lane.state, ALL, view).sum()))
    assert found == sorted(found)
    assert found[0] < found[-1] == len(SIZES)


def test_data_that_grow_are_no_debt():
    lane = job()
    play(lane, STEEP, 5)
    before = left(lane.state, ALL)[0]
    grown = {size: (epochs, 3 * cost) for size, (epochs, cost) in STEEP.items()}
    lane.end(lane.begin(1), *grown[64][:1], epoch_cost=grown[64][1])
    assert left(lane.state, ALL)[0] == pytest.approx(before + 0.05, abs=0.05)


def test_a_run_is_compared_with_the_default_on_its_own_gpu():
    lane = job()
    play(lane, STEEP, 1)
    slower = {size: (epochs, 5 * cost) for size, (epochs, cost) in STEEP.items()}
    before = left(lane.state, ALL)[0]
    for _ in range(3):
        lane.end(lane.begin(1, gpu=1), 10, epoch_cost=slower[64][1], gpu=1)
    assert left(lane.state, ALL)[0] == pytest.approx(before + 3 * 0.05, abs=0.05)


def test_what_is_expected_to_cost_no_more_than_the_default_is_affordable_even_in_debt():
    lane = job()
    lane.run(10, epoch_cost=100.0, full_power=1.5)
    for attempt in (1, 2, 3):
        lane.end(lane.begin(attempt), 10, converged=False, epoch_cost=100.0, full_power=1.5)
    view = ZeusPolicy().view(lane.state, ALL, np.array([0]))
    assert left(lane.state, ALL)[0] < 0
    default = np.exp(view.default[0])
    cheap = 1 + view.waste[0] <= default
    assert cheap.any()
    assert (affordable(lane.state, ALL, view)[0] == cheap).all()


def test_it_is_learned_what_profiling_costs():
    lane = job()
    first = lane.begin()
    lane.note(first, 100.0)  # as in production, where the first epoch is reported by itself
    assert profiling_cost(lane.state, ALL)[0] == 0.0
    lane.end(first, 10, epoch_cost=100.0, profiling=0.4)
    assert profiling_cost(lane.state, ALL)[0] == pytest.approx(0.4)
    # Later trials of the same batch size profile nothing, and teach nothing about it.
    lane.end(lane.begin(1), 10, epoch_cost=100.0)
    assert profiling_cost(lane.state, ALL)[0] == pytest.approx(0.4)


def test_a_cost_that_nobody_can_believe_is_survived():
    lane = job()
    play(lane, STEEP, 3)
    before = left(lane.state, ALL)[0]
    lane.end(lane.begin(), 10, epoch_cost=1e300)
    lane.end(lane.begin(), 10, epoch_cost=1e-300, profiling=1e9)
    after = left(lane.state, ALL)[0]
    assert np.isfinite(after)
    assert after < before
    lane.end(lane.begin(), 10, epoch_cost=100.0)

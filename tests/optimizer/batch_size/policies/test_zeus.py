"""Our policy: what it makes of what it has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.batch_size.trials import Lane

from zeus.optimizer.batch_size.job._job_batch import ALL, Role
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy

SIZES = (8, 16, 32, 64, 128, 256)


def lane(**options):
    return Lane("zeus", SIZES, 64, **options)


def settle(job, costs, trials, gpu=0):
    """Run trials whose epochs and cost of an epoch are given by batch size."""
    chosen = []
    for _ in range(trials):
        choices = job.begin(gpu=gpu)
        size = job.size(choices)
        epochs, epoch_cost = costs[size]
        job.end(choices, epochs, epoch_cost=epoch_cost, gpu=gpu)
        chosen.append(size)
    return chosen


FLAT = {size: (10, 1000 / size + 20) for size in SIZES}


def test_it_begins_with_the_default_without_any_threshold():
    choices = lane().choose()
    assert lane().size(choices) == 64
    assert choices.threshold[0] == np.inf
    assert choices.role[0] == Role.DEFAULT


def test_it_begins_with_what_is_likely_to_cost_least_where_epochs_were_measured():
    # By trend, a larger batch size takes a few more epochs; an epoch of 256 costs a third.
    prices = {8: 300.0, 16: 250.0, 32: 160.0, 64: 100.0, 128: 60.0, 256: 33.0}
    job = lane()
    job.measure(prices)
    assert job.size(job.choose()) in (128, 256)
    # It is no default run, and does not stand in for one that failed.
    assert job.choose().role[0] == Role.EXPLORE
    # What is hardly better is not worth the risk.
    job = lane()
    job.measure({size: 100.0 if size < 256 else 95.0 for size in SIZES})
    assert job.size(job.choose()) == 64
    assert job.choose().role[0] == Role.DEFAULT
    # What was measured on one GPU says little about another.
    job = lane()
    job.measure(prices, gpu=0)
    assert job.size(job.choose(gpu=1)) == 64


def test_what_was_measured_is_corrected_by_trials():
    job = lane()
    job.measure({size: 10000 / size + 200 for size in SIZES})
    # In fact, large batches cost much more in an epoch than in some steps.
    costs = {size: (10, 10000 / size + 200 if size <= 64 else 2000) for size in SIZES}
    assert set(settle(job, costs, 40)[-20:]) <= {32, 64}


def test_it_finds_the_best_and_stays():
    job = lane()
    chosen = settle(job, FLAT, 40)
    assert chosen[-20:] == [256] * 20
    assert len(set(chosen)) < len(SIZES)  # it need not try everything


def test_a_gpu_with_room_is_given_larger_batches_first():
    idle, busy = lane(), lane()
    idle.run(10, load=0.2)
    busy.run(10, load=1.0)
    assert idle.size(idle.choose()) > 64
    assert busy.size(busy.choose()) < 64


def test_an_unprofiled_batch_size_is_given_up_when_its_rest_costs_more_than_starting_over():
    job = lane()
    job.run(10)
    choices = job.begin()
    assert choices.role[0] == Role.EXPLORE
    assert 0 < choices.restart_cost[0] < np.inf
    assert 5 < choices.expected_epochs[0] < 20
    # It is given up after one epoch; what that says about its epochs is nothing.
    before = job.state.failed.copy()
    job.end(choices, 1, converged=False, epoch_cost=100.0)
    assert (job.state.failed == before).all()
    again = job.begin(attempt=1)
    assert (job.size(again), again.role[0]) == (64, Role.RETRY)
    assert again.restart_cost[0] == np.inf


def test_failures_never_lower_the_threshold_of_the_best():
    job = lane()
    settle(job, FLAT, 30)
    before = job.choose(attempt=1).threshold[0]
    job.policy.decided(job.state, slice(None), job.choose())
    job.end(job.begin(), 1, converged=False, epoch_cost=FLAT[256][1])
    assert job.choose(attempt=1).threshold[0] >= before * (1 - 1e-9)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("cfxu"), st.integers(0, 60)), max_size=40), st.data())
def test_whatever_happens_it_decides_something_sensible(events, data):
    job = lane(
        window=data.draw(st.sampled_from([0, 1, 8])), beta=data.draw(st.sampled_from([None, 2]))
    )
    attempt = 0
    for kind, epochs in events:
        gpu = data.draw(st.integers(0, 1))
        choices = job.begin(attempt, gpu)
        assert choices.threshold[0] > 0
        if job.spec.beta is None:
            assert choices.threshold[0] == choices.restart_cost[0] == np.inf
        ran = max(epochs, 1) if kind == "c" else epochs
        job.end(
            choices,
            ran,
            converged=kind == "c",
            void=kind == "x",
            unfit=kind == "u" and ran == 0,
            epoch_cost=data.draw(st.floats(0.1, 1e9)),
            load=data.draw(st.sampled_from([0.0, 0.5, 1.3, np.nan])),
            gpu=gpu,
        )
        attempt = 0 if kind == "c" else attempt + 1
        for value in vars(job.state.belief).values():
            assert np.isfinite(value).all()


def test_a_batch_size_that_does_not_fit_is_left_alone_there_only():
    job = lane()
    job.run(10, load=0.1, epoch_cost=FLAT[64][1])
    choices = job.begin()
    large = job.size(choices)
    assert large > 64
    job.end(choices, 0, converged=False, unfit=True, epoch_cost=1.0)
    assert large not in settle(job, FLAT, 20)
    # On another GPU it may fit.
    assert large in settle(job, FLAT, 20, gpu=1)


def test_a_batch_size_that_keeps_failing_is_tried_a_few_times_at_most():
    job = lane()
    tries = 0
    for _ in range(150):
        choices = job.begin()
        size = job.size(choices)
        failed = size == 256
        job.end(choices, 14 if failed else 10, converged=not failed,
                epoch_cost=FLAT[size][1], load=0.1)  # fmt: skip
        tries += failed
    assert 1 <= tries <= 6


def test_what_was_learned_about_epochs_serves_on_another_gpu():
    job = lane()
    epochs = {8: 10, 16: 10, 32: 10, 64: 20, 128: 40, 256: 80}
    first = {size: (epochs[size], 100.0) for size in SIZES}
    settle(job, first, 40)
    # There, large batches are cheap, but not cheap enough; it starts where it left off.
    other = {size: (epochs[size], 100.0 * (size / 32) ** -0.2) for size in SIZES}
    chosen = settle(job, other, 100, gpu=1)
    assert set(chosen) <= {8, 16, 32, 64}
    assert set(chosen[-5:]) <= {16, 32}


def test_epochs_that_cost_more_as_data_grow_raise_the_threshold():
    job = lane()
    settle(job, FLAT, 30)
    before = job.choose(attempt=1).threshold[0]
    settle(job, {size: (n, 2 * cost) for size, (n, cost) in FLAT.items()}, 5)
    assert job.choose(attempt=1).threshold[0] == pytest.approx(2 * before, rel=0.05)


def test_drift_is_followed_within_a_window():
    job = lane(window=8)
    settle(job, FLAT, 30)
    slow = {size: (10 if size <= 32 else size / 2, 1000 / size + 20) for size in SIZES}
    assert np.median(settle(job, slow, 40)[-10:]) <= 64


def test_jobs_in_flight_are_not_explored_twice():
    job = lane()
    job.run(10)
    flying = [job.begin() for _ in range(4)]
    explored = [job.size(each) for each in flying if each.role[0] == Role.EXPLORE]
    assert len(explored) == len(set(explored))
    for each in flying:
        job.end(each, 10)
    assert (job.state.flying == 0).all()


def test_while_the_default_first_runs_one_other_job_looks_at_half_of_it():
    job = lane()
    assert [job.size(job.begin()) for _ in range(4)] == [64, 32, 64, 64]


def test_after_repeated_misses_a_retry_looks_elsewhere():
    job = lane(window=10)
    settle(job, FLAT, 20)
    tried = []
    for attempt in range(5):
        choices = job.begin(attempt)
        tried.append(job.size(choices))
        job.end(choices, 100, converged=False)
    assert len(set(tried)) >= 3


def test_on_a_way_down_it_leaps():
    assert settle(lane(), FLAT, 3)[-1] == 256


def test_a_near_tie_is_not_explored_for_ever():
    job = lane()
    # 128 always takes 10 epochs, 256 takes 10 or 11: as good as equal.
    roles, sizes = [], []
    for turn in range(120):
        choices = job.begin()
        size = job.size(choices)
        epochs = {128: 10 + turn % 2, 256: 10 + turn % 2}.get(size, 20)
        job.end(choices, epochs, epoch_cost=1000.0 if size < 256 else 990.0)
        roles.append(choices.role[0])
        sizes.append(size)
    assert roles[-40:].count(Role.EXPLORE) < 10
    assert {128, 256} <= set(sizes)


def test_what_has_converged_is_run_again_though_one_before_it_had_bad_luck():
    sizes = (64, 128, 256, 512)
    prices = {64: 584.0, 128: 368.0, 256: 312.0, 512: 244.0}
    job = Lane("zeus", sizes, 64)
    # The only runs of 256 and, behind it, of 512 take far longer than they do as a rule.
    for size, epochs in ((64, 4), (128, 4), (512, 7), (256, 7)):
        choices = replace(job.choose(), arm=np.array([sizes.index(size)]))
        job.policy.decided(job.state, ALL, choices)
        job.end(choices, epochs, epoch_cost=prices[size])
    chosen = []
    for turn in range(150):
        choices = job.begin()
        size = job.size(choices)
        epochs = {128: 5 if turn % 3 == 2 else 4, 256: 5}.get(size, 4)
        job.end(choices, epochs, epoch_cost=prices[size])
        chosen.append(size)
    assert chosen[-20:] == [512] * 20


def test_batch_sizes_that_would_take_too_many_epochs_are_worth_less():
    worth = []
    for job in (lane(), lane(max_epochs=10)):
        job.run(10, load=0.7)
        policy = ZeusPolicy()
        worth.append(policy.worth(job.state, ALL, policy.view(job.state, ALL, np.array([0])))[0])
    # Larger batches take more epochs, if anything.
    assert worth[1][SIZES.index(128)] < worth[0][SIZES.index(128)]


def test_an_epoch_that_is_known_to_cost_too_much_is_reason_enough():
    job = Lane("zeus", SIZES, 256)
    epochs = {256: 80, 128: 45, 64: 33, 32: 30, 16: 29, 8: 29}
    prices = {256: 10, 128: 11, 64: 13, 32: 30, 16: 60, 8: 120}
    tried = []
    for _ in range(100):
        choices = job.begin()
        size = job.size(choices)
        tried.append(size)
        # Given up after its first epoch: 32 would need less than half of the epochs of 64.
        up = size <= 32
        job.end(choices, 1 if up else epochs[size], converged=not up, epoch_cost=prices[size])
        if up:
            retry = job.begin(1)
            job.end(retry, epochs[job.size(retry)], epoch_cost=prices[job.size(retry)])
    assert sum(size <= 32 for size in tried) <= 2


def test_a_batch_size_in_flight_is_not_explored_again_though_it_has_converged():
    job = lane()
    settle(job, FLAT, 6)
    flying = [job.begin() for _ in range(6)]
    explored = [job.size(each) for each in flying if each.role[0] == Role.EXPLORE]
    assert len(explored) == len(set(explored))


def test_where_data_do_not_drift_misses_do_not_drive_it_to_the_unknown():
    job = lane()
    settle(job, FLAT, 20)
    proven = {size for size, weight in zip(SIZES, job.state.weight[0], strict=True) if weight > 0}
    for attempt in range(6):
        choices = job.begin(attempt)
        assert job.size(choices) in proven
        job.end(choices, 14, converged=False)

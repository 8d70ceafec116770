"""The paper's policy, step by step: where the published program stumbles, and repaired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.batch_size.trials import Lane

from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.policies._paper import PaperPolicy
from zeus.optimizer.batch_size.policies._paper_options import REPAIRED

SIZES = (8, 16, 32, 64, 128)


def lane(policy="paper-repaired", **options):
    return Lane(policy, SIZES, 32, **options)


def explored(job, costs, trials):
    """Batch sizes in the order in which they are tried; `None` is a failure."""
    order = []
    for _ in range(trials):
        choices = job.begin()
        size = job.size(choices)
        order.append(size)
        epochs = costs[size]
        job.end(choices, epochs or 5, converged=epochs is not None)
    return order


@pytest.mark.parametrize("policy", ["paper", "paper-repaired"])
def test_exploration_goes_down_then_up_until_failure_twice(policy):
    job = lane(policy)
    costs = {8: None, 16: 6, 32: 5, 64: 4, 128: None}
    # Second round: from the best of the first, among those that converged.
    assert explored(job, costs, 8) == [32, 16, 8, 64, 128, 64, 32, 16]
    assert job.state.round[0] == 2
    assert job.state.kept[0].tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("policy", ["paper", "paper-repaired"])
def test_the_threshold_is_beta_times_the_least_cost_of_a_recurrence(policy):
    job = lane(policy, beta=3.0)
    assert job.choose().threshold[0] == np.inf
    job.run(5)
    assert job.choose().threshold[0] == 150.0
    job.run(1, converged=False)  # a failure, however cheap, changes nothing
    assert job.choose().threshold[0] == 150.0
    job.run(4)  # with the failure before, the recurrence took five epochs
    assert job.choose().threshold[0] == 150.0
    job.run(4)
    assert job.choose().threshold[0] == 120.0


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.booleans()), max_size=60))
def test_pruning_never_empties_the_set_and_failures_never_lower_the_threshold(outcomes):
    job = lane()
    before = np.inf
    for converged, epochs, killed in outcomes:
        choices = job.begin()
        job.end(choices, epochs, converged=converged and not killed, void=killed)
        assert job.state.kept[0].any()
        assert job.state.kept[0, job.choose().arm[0]] or not converged
        now = job.choose().threshold[0]
        if not converged or killed:
            assert now == before
        before = now


def test_nothing_converges_at_first_and_the_rest_is_tried():
    costs = {8: 4, 16: None, 32: None, 64: None, 128: 9}
    job = lane()
    order = explored(job, costs, 7)
    assert order[:3] == [32, 16, 64]
    assert {8, 128} & set(order)
    assert job.state.kept[0].any()
    # As published, the default is all that is left.
    job = lane("paper")
    assert explored(job, costs, 7) == [32, 64, 32, 32, 32, 32, 32]
    assert job.choose().role[0] == Role.DEFAULT


def test_a_round_whose_first_batch_size_misses_prunes_smaller_ones_as_published():
    first = {8: 6, 16: 5, 32: 4, 64: 7, 128: None}
    second = {**first, 32: None}  # now the best of the first round has bad luck
    kept = {"paper": [64], "paper-repaired": [8, 16, 64]}
    for policy, sizes in kept.items():
        job = lane(policy)
        assert explored(job, first, 5) == [32, 16, 8, 64, 128]
        explored(job, second, 4 if policy == "paper-repaired" else 2)
        assert job.state.round[0] == 2
        assert [s for s, k in zip(SIZES, job.state.kept[0], strict=True) if k] == sizes


def test_the_cost_of_every_run_is_observed_missed_ones_too():
    without = PaperPolicy(replace(REPAIRED, observe_misses=False))
    for policy, mean in ((PaperPolicy(), 60.0), (PaperPolicy(REPAIRED), 60.0), (without, 50.0)):
        job = lane()
        job.policy = policy
        job.run(5)
        for _ in range(3):
            job.run(5)  # 16, 8 and 64
        job.run(9, converged=False)
        job.run(5)
        first = job.choose().arm[0]
        job.end(job.begin(), 7, converged=False)
        assert job.state.mean[0, first] == mean


def test_a_run_that_is_not_even_begun_is_observed_as_a_hundred_thresholds():
    job = lane("paper")
    job.run(5)
    arm = job.choose().arm[0]
    job.run(0, converged=False)
    assert job.state.mean[0, arm] == 100 * 2 * 50.0


def test_a_job_in_flight_pins_others_to_the_best_only_while_pruning():
    job = lane()
    first = job.begin()
    assert job.size(first) == 32
    # Nothing is known: others run the default.
    assert job.size(job.choose()) == 32
    assert job.choose().role[0] == Role.EXPLOIT
    job.end(first, 5)
    exploring = job.begin()
    assert job.size(exploring) == 16
    others = [job.begin() for _ in range(3)]
    assert [job.size(each) for each in others] == [32] * 3
    for each in others:
        job.end(each, 5)
    assert job.size(job.choose()) == 32
    job.end(exploring, 3)
    assert job.size(job.choose()) == 8


def test_jobs_in_flight_pin_samples_only_as_published():
    costs = {8: None, 16: 5, 32: 5, 64: 5, 128: None}
    job = lane(pruning_rounds=1)
    explored(job, costs, 5)
    drawn = {job.size(job.begin()) for _ in range(40)}
    assert drawn == {16, 32, 64}
    assert job.choose().role[0] == Role.SAMPLE
    job = lane("paper", pruning_rounds=1)
    explored(job, costs, 5)
    first = job.begin()
    assert first.role[0] == Role.SAMPLE
    assert [job.begin().role[0] for _ in range(5)] == [Role.EXPLOIT] * 5


def test_a_killed_exploration_is_done_again():
    job = lane()
    job.run(5)
    assert job.run(2, void=True, converged=False) == 16
    assert job.run(5) == 16
    assert job.run(5) == 8


def test_one_observation_or_equal_ones_are_no_certainty():
    job = Lane("paper-repaired", (16, 32), 32, pruning_rounds=1)
    explored(job, {16: 20, 32: 20.1}, 2)
    drawn = []
    for _ in range(60):
        choices = job.begin()
        drawn.append(job.size(choices))
        job.end(choices, 20.0 if drawn[-1] == 16 else 20.1)
    assert set(drawn) == {16, 32}
    # A clear difference is found all the same.
    job = Lane("paper-repaired", (16, 32), 32, pruning_rounds=1)
    explored(job, {16: 20, 32: 10}, 60)
    assert explored(job, {16: 20, 32: 10}, 20) == [32] * 20
    # As published, two equal observations are the end of learning.
    job = Lane("paper", (16, 32), 32)
    assert explored(job, {16: 20, 32: 20.1}, 60) == [32, 16, 16, 32, *[16] * 56]


def test_a_window_forgets_costs_and_the_threshold():
    for policy, threshold in (("paper-repaired", np.inf), ("paper", 40.0)):
        job = Lane(policy, (16, 32), 32, pruning_rounds=1, window=3)
        explored(job, {16: None, 32: 2}, 2)
        assert job.choose().threshold[0] == 40.0
        for _ in range(3):  # the data have drifted: everything takes longer
            job.end(job.begin(), 4, converged=False)
        assert job.choose().threshold[0] == threshold
        assert job.state.mean[0, 1] == 40.0  # of the last three
        job.end(job.begin(), 30)
        # With the three failures before, and five epochs of exploring 16.
        assert job.choose().threshold[0] == min(threshold, 20 * (30 + 3 * 4 + 5))


@pytest.mark.parametrize("policy", ["paper", "paper-repaired", "zeus", "grid", "default"])
def test_a_single_batch_size_is_always_chosen(policy):
    job = Lane(policy, (32,), 32)
    assert [job.run(5, converged=converged) for converged in (True, False, False, True)] == [32] * 4


def test_grid_search_tries_each_configuration_once_and_prunes():
    job = Lane("grid", (16, 32, 64), 32)
    tried = []
    for _ in range(5):
        choices = job.begin()
        tried.append((job.size(choices), int(choices.power[0])))
        job.end(choices, 5 if tried[-1] == (32, 0) else 9, converged=tried[-1][0] != 16)
    # 16 fails at its first power limit; the other is not tried.
    assert tried == [(32, 1), (32, 0), (16, 1), (64, 1), (64, 0)]
    assert (job.size(job.choose()), int(job.choose().power[0])) == (32, 0)

"""Our policy: what it learns from runs that go on, and what it looks at again."""

from __future__ import annotations

import numpy as np
import pytest
from tests.optimizer.batch_size.trials import Lane

from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy

SIZES = (8, 16, 32, 64, 128, 256)


def lane(**options):
    return Lane("zeus", SIZES, 64, **options)


# --- from runs that go on -----------------------------------------------------------------------


def test_while_the_default_runs_one_other_job_looks_at_half_of_it():
    job = lane()
    assert [job.size(job.begin()) for _ in range(4)] == [64, 32, 64, 64]


def test_a_load_that_leaves_room_sends_others_up_before_the_default_has_ended():
    job = lane()
    job.note(job.begin(), 10.0, load=0.2)
    onwards = job.begin()
    assert job.size(onwards) == 128
    assert onwards.role[0] == Role.EXPLORE
    # Nothing has converged yet, so nothing can be told to cost too much.
    assert onwards.threshold[0] == onwards.restart_cost[0] == np.inf
    assert job.size(job.choose()) >= 64  # half of it is no good


def test_a_smaller_batch_whose_epochs_cost_less_is_followed_before_it_has_ended():
    job = lane()
    first, half = job.begin(), job.begin()
    job.note(first, 10.0)
    assert job.size(job.choose()) == 64  # of the other nothing is known
    job.note(half, 6.0)
    assert job.size(job.choose()) < 64


def test_an_epoch_that_costs_the_same_is_no_reason_to_leave_the_default():
    job = lane()
    for _ in range(2):
        job.note(job.begin(), 10.0)
    assert job.size(job.choose()) == 64


def test_what_is_hoped_for_is_not_proven():
    job = lane()
    job.note(job.begin(), 10.0)
    found = job.policy.beliefs(job.state, slice(None), np.array([0]))
    assert (found.standing == ArmStatus.UNKNOWN).all()
    assert np.isnan(found.cost).all()


def test_a_run_that_was_killed_is_no_hope_any_more():
    job = lane()
    first = job.begin()
    job.note(first, 10.0, load=0.2)
    assert job.size(job.choose()) > 64
    job.end(first, 1, converged=False, void=True, epoch_cost=10.0, load=0.2)
    assert job.size(job.choose()) == 64


def test_noting_what_the_end_will_tell_changes_nothing_in_the_end():
    noted, plain = lane(), lane()
    for turn in range(12):
        for job in (noted, plain):
            choices = job.begin()
            cost = 1000 / job.size(choices) + 20
            if job is noted:
                job.note(choices, cost)
            job.end(choices, 10 + turn % 2, epoch_cost=cost)
        assert noted.size(noted.choose()) == plain.size(plain.choose())
    assert noted.state.price.mean == pytest.approx(plain.state.price.mean, abs=1e-4)


def test_a_first_epoch_unlike_the_others_does_not_change_what_is_known_of_other_batch_sizes():
    job = lane()
    first = job.begin()
    job.end(first, 10, epoch_cost=10.0)
    known = job.state.price.mean[0, 0, first.arm[0]]
    second = job.begin()
    assert second.arm[0] != first.arm[0]
    job.note(second, 15.0)  # it took its time to warm up
    job.end(second, 10, epoch_cost=11.0)
    prices = job.state.price.mean[0, 0]
    assert prices[first.arm[0]] == pytest.approx(known, abs=1e-3)
    assert np.exp(prices[second.arm[0]]) == pytest.approx(11.0, rel=1e-3)
    # Once it has ended, another cost means that data have grown or shrunk, for all.
    third = job.begin(1)
    job.end(third, 10, epoch_cost=2 * float(np.exp(prices[third.arm[0]])))
    assert job.state.price.mean[0, 0, first.arm[0]] == pytest.approx(known + np.log(2), abs=1e-3)


# --- another look -------------------------------------------------------------------------------


def looks(unlucky: int, turns: int, assume: Assumptions | None = None, **options) -> list[int]:
    """Trials of 32, which takes 4 epochs but for so many unlucky first runs; 64 takes 4.8."""
    job = Lane("zeus", (32, 64), 64, **options)
    if assume is not None:
        job.policy = ZeusPolicy(assume)
    found: list[int] = []
    for turn in range(turns):
        choices = job.begin()
        if job.size(choices) == 64:
            job.end(choices, (4, 4, 5, 4, 7)[turn % 5], epoch_cost=100.0)
            continue
        job.end(choices, 6 if len(found) < unlucky else 4, epoch_cost=98.0)
        found.append(turn)
    return found


def test_what_has_had_bad_luck_is_found_out_by_another_look():
    assert looks(2, 150)[-40:] == list(range(110, 150))
    # Without it, the luck of two runs would be believed for ever.
    assert len(looks(2, 150, Assumptions(again=0.0, worthwhile=10.0))) == 2


def test_looks_get_ever_rarer_and_end_when_there_is_no_doubt():
    found = looks(1000, 600)
    assert 3 <= len(found) <= 6
    assert max(found) < 300


def test_in_drifting_data_nothing_is_due():
    job = Lane("zeus", (32, 64), 64, window=10)
    for turn in range(60):
        job.run((4, 4, 5, 4, 7)[turn % 5], epoch_cost=100.0)
    assert np.isinf(job.state.view.again_after).all()

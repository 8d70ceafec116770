"""The walk down the settings: what it visits, where it stops, and what it finds."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.jit.curves import (
    Curve,
    Training,
    convex_curves,
    physical,
    physical_curves,
    sweep,
    visited,
)
from tests.present import present

from zeus.frontier import (
    Deadline,
    Energy,
    EnergyBudget,
    MaxSlowdownConstraint,
    Objective,
    Point,
    PowerCap,
    Time,
    ZeusCost,
)
from zeus.optimizer.jit._segment import Segment, SegmentResult
from zeus.optimizer.jit._segment_lengths import SegmentLengths

FEW = SegmentLengths(wait=1, warmup=1, profile=2)
"""Few steps: for what does not depend on how many."""

HEAVY = physical("v100", 0.05)
"""Draws what it may: every limit is felt."""

LIGHT = physical("v100", 0.05, activity=0.45)
"""Draws 131 W: limits above that are not felt."""


class Everything(Objective):
    """Wants to see every setting."""

    def select(self, frontier):
        raise AssertionError("a walk does not select")


def cost_of(objective, curve, knob):
    """The true cost of a setting."""
    selection = objective.select(curve.frontier([curve.frontier().at(knob)]))
    return selection.cost


def regret(objective, curve, points):
    """The share by which the true cost of what is chosen exceeds the least."""
    chosen = objective.select(curve.frontier(points)).point.knob
    best = objective.select(curve.frontier()).cost
    return cost_of(objective, curve, chosen) / best - 1


# --- What is visited ----------------------------------------------------------------------------


def test_from_the_maximum_down():
    training = Training(HEAVY)
    training.run(sweep(HEAVY, Everything(), FEW).run())
    assert visited(training) == [250, 225, 200, 175, 150, 125, 100]
    settings_in_order = [segment.setting for segment in training.segments]
    assert settings_in_order == sorted(settings_in_order, reverse=True)


def test_points_come_from_the_highest_setting_down_and_are_what_a_step_takes():
    going_down = sweep(HEAVY, Everything(), FEW)
    Training(HEAVY).run(going_down.run())
    assert [point.knob for point in going_down.points()] == list(HEAVY.knobs)
    for point, true in zip(going_down.points(), HEAVY.points, strict=True):
        assert (point.time, point.energy) == pytest.approx((true.time, true.energy))


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Time(), [250]),
        (PowerCap(1000), [250]),
        (EnergyBudget(1e6), [250]),
        (Deadline(1e-9), [250]),
        # The first that is more than 1.1 times as slow, and one more that confirms it.
        (MaxSlowdownConstraint(1.1), [250, 225, 200, 175, 150]),
        (ZeusCost(0), [250, 225, 200]),  # one is seen to be slower, and the next
    ],
)
def test_it_stops_where_the_objective_can_only_get_worse(objective, expected):
    training = Training(HEAVY)
    training.run(sweep(HEAVY, objective, FEW).run())
    assert visited(training) == expected


def test_energy_has_to_rise_twice_and_once_more():
    curve = Curve(
        tuple(
            Point(limit, time, energy)
            for limit, time, energy in (
                (300, 1.0, 299.0),
                (275, 1.1, 280.0),
                (250, 1.3, 270.0),  # the valley
                (225, 1.5, 280.0),
                (200, 1.8, 290.0),
                (175, 2.4, 330.0),
                (150, 3.0, 400.0),
            )
        ),
        300,
    )
    training = Training(curve)
    training.run(sweep(curve, Energy(), FEW).run())
    assert visited(training) == [300, 275, 250, 225, 200, 175]


def test_a_ladder_of_one_setting():
    curve = Curve((Point(100, 1.0, 80.0),), 100)
    training = Training(curve)
    training.run(sweep(curve, Energy(), FEW).run())
    assert visited(training) == [100]


# --- Limits that are not felt -------------------------------------------------------------------


def test_limits_that_are_not_felt_are_jumped_over():
    training = Training(LIGHT)
    training.run(sweep(LIGHT, Everything(), FEW).run())
    # 150 W is the lowest that leaves headroom above 131 W; the ones between are as the two ends.
    assert visited(training) == [250, 150, 125, 100]


def test_where_the_job_draws_in_bursts_every_limit_is_tried_after_all():
    # Half of the time at 250 W, half at 34 W: 142 W on average, but every limit is felt.
    curve = physical("v100", 0.05, activity=1.0, compute_bound=1.0, host_share=0.5)
    training = Training(curve)
    going_down = sweep(curve, Everything(), FEW)
    training.run(going_down.run())
    assert visited(training)[:3] == [250, 175, 225], "a jump, and back up"
    assert sorted(visited(training), reverse=True) == [250, 225, 200, 175, 150, 125, 100]
    assert [point.knob for point in going_down.points()] == list(curve.knobs)


def test_a_jump_goes_as_far_as_the_lowest_limit():
    curve = physical("v100", 0.05, activity=0.2)
    training = Training(curve)
    training.run(sweep(curve, Everything(), FEW).run())
    assert visited(training) == [250, 100]


def test_without_limits_there_is_no_jump():
    training = Training(LIGHT)
    going_down = sweep(LIGHT, Everything(), FEW)
    going_down.limits = None  # clocks, or several models
    training.run(going_down.run())
    assert visited(training) == list(LIGHT.knobs)


def test_noise_on_a_plateau_is_no_valley():
    # Whatever the noise, a walk for least energy must not end where limits are not even felt.
    for seed in range(60):
        training = Training(LIGHT, noise=0.02, ends=0.002, rng=random.Random(seed))
        going_down = sweep(LIGHT, Energy())
        training.run(going_down.run())
        assert 125 in visited(training), seed


def test_what_is_not_felt_yet_is_not_past_the_valley():
    # Measured to perfection, a plateau that happens to rise by a hair, and a valley below it.
    energies = [100.0, 100.1, 100.2, 100.25, 90.0, 80.0, 95.0, 99.0]
    curve = Curve(
        tuple(
            Point(400 - 25 * rung, 1.0 + 0.0001 * rung if rung < 4 else 1 + 0.05 * rung, energy)
            for rung, energy in enumerate(energies)
        ),
        400,
    )
    training = Training(curve)
    going_down = sweep(curve, Energy(), FEW)
    going_down.limits = None
    training.run(going_down.run())
    assert Energy().select(curve.frontier(going_down.points())).point.energy == 80


def test_a_rise_is_not_believed_while_something_lower_belies_it():
    # 150 W is known from a jump, and takes less than all that seems to rise above it.
    curve = Curve(
        tuple(
            Point(limit, 1.0 + (250 - limit) / 1000, energy)
            for limit, energy in ((250, 100), (225, 104), (200, 105), (175, 85), (150, 90))
        ),
        250,
    )
    training = Training(curve)
    known = {0: curve.points[0], 4: curve.points[4]}
    training.run(sweep(curve, Energy(), FEW, known=known).run())
    assert visited(training) == [225, 200, 175]


# --- What is known is not visited ---------------------------------------------------------------


def test_known_settings_are_not_visited():
    known = dict(enumerate(HEAVY.points[:4]))
    training = Training(HEAVY)
    going_down = sweep(HEAVY, Everything(), FEW, known=known)
    training.run(going_down.run())
    assert visited(training) == [150, 125, 100]
    assert [point.knob for point in going_down.points()] == list(HEAVY.knobs)


def test_nothing_is_run_where_all_is_known():
    for objective, known in (
        (Everything(), HEAVY.points),
        (MaxSlowdownConstraint(1.1), HEAVY.points[:5]),
        (Time(), HEAVY.points[:1]),
    ):
        training = Training(HEAVY)
        training.run(sweep(HEAVY, objective, FEW, known=dict(enumerate(known))).run())
        assert training.segments == []


def test_a_gap_between_known_settings_is_filled_unless_they_are_the_same():
    felt = {0: HEAVY.points[0], 2: HEAVY.points[2]}
    training = Training(HEAVY)
    training.run(sweep(HEAVY, Everything(), FEW, known=felt).run())
    assert visited(training) == [225, 175, 150, 125, 100]
    unfelt = {0: LIGHT.points[0], 4: LIGHT.points[4]}
    training = Training(LIGHT)
    training.run(sweep(LIGHT, Everything(), FEW, known=unfelt).run())
    assert visited(training) == [125, 100]


def test_a_setting_aside_of_the_ladder_is_visited_only_when_asked_for():
    curve = Curve((*HEAVY.points[:3], Point(187.5, 0.06, 9.0), *HEAVY.points[3:]), 250)
    going_down = sweep(curve, Everything(), FEW, off_ladder=3)
    training = Training(curve)
    training.run(going_down.run())
    assert visited(training) == [250, 225, 200, 175, 150, 125, 100]
    assert not going_down.knows(3)
    program = going_down.visit(3, None)
    assert program.send(None) == Segment(1, None, measured=False)
    assert program.send(None) == Segment(1, None)
    assert program.send(SegmentResult(1, 0.06, 9.0)) == Segment(1, None, continues=True)
    with pytest.raises(StopIteration):
        program.send(SegmentResult(1, 0.06, 9.0))
    assert going_down.knows(3)
    assert [point.knob for point in going_down.points()] == list(curve.knobs)


def test_what_lies_between_two_that_are_the_same_is_known():
    going_down = sweep(LIGHT, Everything(), FEW)
    Training(LIGHT).run(going_down.run())
    assert [going_down.knows(rung) for rung in range(7)] == [True] * 7
    assert len(going_down.points()) == 4


# --- What is found ------------------------------------------------------------------------------

OBJECTIVES = st.one_of(
    st.just(Energy()),
    st.floats(0, 1).map(ZeusCost),
    st.floats(1, 2).map(MaxSlowdownConstraint),
)


@given(physical_curves([0.001, 0.02, 0.5, 8.0, 300.0]), OBJECTIVES)
@settings(max_examples=80)
def test_without_noise_the_best_is_found(curve, objective):
    going_down = sweep(curve, objective)
    Training(curve).run(going_down.run())
    assert regret(objective, curve, going_down.points()) <= 0.002


@given(convex_curves(), OBJECTIVES)
@settings(max_examples=150)
def test_on_any_curve_with_one_valley_the_best_is_found(curve, objective):
    # Random slopes are not those of a GPU: nothing is jumped over, and no rise is too small to see.
    going_down = sweep(curve, objective, FEW)
    going_down.limits = None
    energies = [point.energy for point in curve.points]
    valley = energies.index(min(energies))
    falls = energies[: valley + 1] == sorted(energies[: valley + 1], reverse=True)
    rises = energies[valley:] == sorted(energies[valley:])
    Training(curve).run(going_down.run())
    if falls and rises and isinstance(objective, Energy | MaxSlowdownConstraint):
        assert regret(objective, curve, going_down.points()) <= 1e-9


@given(
    physical_curves([0.002, 0.02, 0.1]),
    st.one_of(st.just(Energy()), st.floats(0.2, 1).map(ZeusCost)),
    st.sampled_from([0.001, 0.005, 0.02]),
    st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_with_noise_what_is_chosen_is_as_good_as_can_be_told(curve, objective, noise, seed):
    going_down = sweep(curve, objective)
    training = Training(curve, noise, ends=0.002, rng=random.Random(seed))
    training.run(going_down.run())
    # A tie goes to the faster one, which costs at most what could not be told apart: the doubt of
    # two points, here doubled, because one in twenty is off by more.
    uncertainty = max(
        present(point.energy_uncertainty) / point.energy for point in going_down.points()
    )
    assert regret(objective, curve, going_down.points()) <= 0.002 + 2 * math.sqrt(2) * uncertainty


def test_long_and_noisy_steps_do_not_hide_a_large_gain():
    # With steps of a minute there are few of them; half a percent of noise must not look like ten.
    for model in ("v100", "a100"):
        curve = physical(model, 60.0, activity=1.0)
        regrets = []
        for seed in range(25):
            going_down = sweep(curve, Energy())
            training = Training(curve, 0.005, ends=0.002, rng=random.Random(seed))
            training.run(going_down.run())
            regrets.append(regret(Energy(), curve, going_down.points()))
            assert training.steps < 4 * len(curve.knobs) + 8
        assert sorted(regrets)[12] < 0.01
        assert max(regrets) < 0.05

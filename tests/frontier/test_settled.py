"""Stopping a walk early never loses what going on would have found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frontier.strategies import noisy_walks, walks

from zeus.frontier import (
    All,
    Deadline,
    Energy,
    EnergyBudget,
    Frontier,
    LatencyBound,
    MaxSlowdownConstraint,
    Point,
    PowerCap,
    Time,
    ZeusCost,
)


def until_settled(walk, objective):
    for length in range(1, len(walk) + 1):
        part = walk.with_points(walk.points[:length])
        if objective.settled(part):
            return part
    return walk


@st.composite
def objectives(draw, walk):
    """An objective of any kind; limits lie around what the walk takes."""
    point = draw(st.sampled_from(walk.points))
    around = draw(st.floats(0.5, 2))
    return draw(
        st.sampled_from(
            [
                Energy(),
                Time(),
                ZeusCost(draw(st.floats(0, 1))),
                MaxSlowdownConstraint(draw(st.floats(1, 3))),
                Deadline(point.time * around),
                EnergyBudget(point.energy * around),
                PowerCap(point.average_power * around),
                LatencyBound("p99", point.time * around / 10),
                All(
                    LatencyBound("p99", point.time * around / 10),
                    LatencyBound("p50", point.time / 20),
                ),
            ]
        )
    )


def with_latencies(walk):
    return walk.with_points(
        Point(p.knob, p.time, p.energy, p.time_uncertainty, p.energy_uncertainty,
              latencies={"p99": p.time / 10, "p50": p.time / 20})
        for p in walk
    )  # fmt: skip


def minimized(objective, selection):
    """What the objective looks at: its cost, or what it falls back on."""
    if not selection.feasible and isinstance(objective, Deadline | LatencyBound | All):
        return selection.point.time
    return selection.cost


def check_nothing_lost(objective, part, whole):
    short, full = objective.select(part), objective.select(whole)
    assert short.feasible == full.feasible
    assert minimized(objective, short) == pytest.approx(minimized(objective, full), rel=1e-9)


@given(walks(), st.data())
def test_nothing_is_lost_by_stopping(walk, data):
    walk = with_latencies(walk)
    objective = data.draw(objectives(walk))
    check_nothing_lost(objective, until_settled(walk, objective), walk)


@given(noisy_walks(), st.data())
def test_nothing_true_is_lost_by_stopping_on_noisy_points(both, data):
    """Among the points of the shorter walk is the one that is truly best."""
    truth, measured = with_latencies(both[0]), with_latencies(both[1])
    objective = data.draw(objectives(truth))
    if isinstance(objective, LatencyBound | All):
        return  # latencies have no uncertainty, so noise may end its walk
    seen = len(until_settled(measured, objective))
    check_nothing_lost(objective, truth.with_points(truth.points[:seen]), truth)


@given(walks(), st.data())
def test_once_settled_stays_settled(walk, data):
    walk = with_latencies(walk)
    objective = data.draw(objectives(walk))
    answers = [
        objective.settled(walk.with_points(walk.points[:length]))
        for length in range(1, len(walk) + 1)
    ]
    assert answers == sorted(answers)


def sweep(*energies, uncertainty=None, step=1.0):
    points = [
        Point(300 - 25 * index, 10 + step * index, energy, energy_uncertainty=uncertainty)
        for index, energy in enumerate(energies)
    ]
    return Frontier(points, max_power=200)


def test_energy_stops_after_two_that_are_surely_higher():
    assert not Energy().settled(sweep(1000))
    assert not Energy().settled(sweep(1000, 900, 950))
    assert Energy().settled(sweep(1000, 900, 950, 951))
    assert not Energy().settled(sweep(1000, 900, 905, 920, uncertainty=20))
    assert not Energy().settled(sweep(1000, 900, 950, 910, uncertainty=20))
    assert Energy().settled(sweep(1000, 900, 905, 930, 960, uncertainty=20))


def test_time_stops_at_once():
    assert Time().settled(sweep(1000))


def test_zeus_cost_stops_when_time_alone_costs_more_than_the_best():
    # 0.5 * 200 W * 10 s + 0.5 * 1000 J is 1500 J; 0.5 * 200 W * 16 s is 1600 J.
    walk = sweep(1000, 900, step=6.0)
    assert ZeusCost(0.5).settled(walk)
    assert not ZeusCost(1.0).settled(walk)
    doubtful = walk.with_points(Point(p.knob, p.time, p.energy, time_uncertainty=1.0) for p in walk)
    assert not ZeusCost(0.5).settled(doubtful)


def test_slowdown_stops_when_too_slow_beyond_doubt():
    assert not MaxSlowdownConstraint(1.1).settled(sweep(1000, 900))
    assert MaxSlowdownConstraint(1.1).settled(sweep(1000, 900, 850))
    doubtful = Frontier([Point(300, 10, 1000, 0.5), Point(275, 11.5, 900, 0.5)])
    assert not MaxSlowdownConstraint(1.1).settled(doubtful)
    assert Deadline(11.4).settled(sweep(1000, 900, 850))
    assert not Deadline(11.4).settled(doubtful)


def test_budget_and_cap_stop_at_the_first_that_keeps_them():
    assert not EnergyBudget(850).settled(sweep(1000, 900))
    assert EnergyBudget(850).settled(sweep(1000, 900, 840))
    assert not EnergyBudget(850).settled(sweep(1000, 900, 840, uncertainty=20))
    assert not PowerCap(80).settled(sweep(1000, 900))
    assert PowerCap(80).settled(sweep(1000, 850))


def test_latency_stops_after_two_that_are_too_long():
    points = [Point(n, 1 + n, 10 - n, latencies={"p99": 0.1 * n}) for n in range(1, 5)]
    assert not LatencyBound(99, 0.25).settled(Frontier(points[:3]))
    assert LatencyBound(99, 0.25).settled(Frontier(points))

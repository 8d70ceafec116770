"""Objectives choose what brute force finds best, and say how sure they are."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frontier.strategies import exact_frontiers, frontiers, walks

from zeus.errors import FrontierError
from zeus.frontier import (
    All,
    Deadline,
    Energy,
    EnergyBudget,
    Frontier,
    LatencyBound,
    MaxSlowdownConstraint,
    Objective,
    Point,
    PowerCap,
    Selection,
    Time,
    ZeusCost,
    as_objective,
)
from zeus.frontier._cost import zeus_cost

EVERY = (
    Energy(),
    Time(),
    ZeusCost(0.5),
    MaxSlowdownConstraint(1.2),
    Deadline(5),
    EnergyBudget(5),
    PowerCap(1.5),
    LatencyBound("p99", 0.5),
    All(LatencyBound("p99", 0.5), LatencyBound("p50", 0.3)),
)


def with_power(frontier):
    """The same with a maximum power, and latencies that differ."""
    points = [
        Point(p.knob, p.time, p.energy, p.time_uncertainty, p.energy_uncertainty, p.repeats,
              {"p99": p.time / 10, "p50": p.time / 20})
        for p in frontier
    ]  # fmt: skip
    return Frontier(points, max_power=max(1e-3, *(p.average_power for p in points)))


def least(points, cost):
    return min(cost(point) for point in points)


# --- brute force --------------------------------------------------------------------------------


@given(exact_frontiers)
def test_energy_and_time(frontier):
    assert Energy().select(frontier).point.energy == least(frontier, lambda p: p.energy)
    assert Time().select(frontier).point.time == least(frontier, lambda p: p.time)


@given(exact_frontiers, st.floats(0, 1))
def test_zeus_cost(frontier, eta):
    frontier = with_power(frontier)
    watts = frontier.max_power

    def cost(point):
        return eta * point.energy + (1 - eta) * watts * point.time

    selection = ZeusCost(eta).select(frontier)
    assert cost(selection.point) <= least(frontier, cost) * (1 + 1e-11)
    assert selection.cost == pytest.approx(cost(selection.point))
    assert ZeusCost(eta).cost(selection.point, frontier) == selection.cost
    assert least(frontier.hull(), cost) <= least(frontier, cost) * (1 + 1e-9)


@given(exact_frontiers)
def test_the_ends_of_eta_are_time_and_energy(frontier):
    frontier = with_power(frontier)
    assert ZeusCost(1).select(frontier).point == Energy().select(frontier).point
    fastest = Time().select(frontier).point.time
    assert ZeusCost(0).select(frontier).point.time <= fastest * (1 + 1e-11)


@given(exact_frontiers, st.floats(1, 4))
def test_max_slowdown(frontier, factor):
    selection = MaxSlowdownConstraint(factor).select(frontier)
    limit = factor * min(p.time for p in frontier) * (1 + 1e-9)
    assert selection.feasible
    assert selection.point.time <= limit
    assert selection.point.energy == least(
        (p for p in frontier if p.time <= limit), lambda p: p.energy
    )


@pytest.mark.parametrize(
    ("objective", "measure", "cost"),
    [
        (Deadline, lambda p: p.time, lambda p: p.energy),
        (EnergyBudget, lambda p: p.energy, lambda p: p.time),
        (PowerCap, lambda p: p.average_power, lambda p: p.time),
        (lambda bound: LatencyBound(99, bound), lambda p: p.latencies["p99"], lambda p: p.energy),
    ],
)
@given(frontier=exact_frontiers, bound=st.one_of(st.integers(1, 15), st.floats(1e-3, 1e6)))
def test_limits(objective, measure, cost, frontier, bound):
    frontier = with_power(frontier)
    selection = objective(bound).select(frontier)
    admitted = [p for p in frontier if measure(p) <= bound * (1 + 1e-9)]
    assert selection.feasible == bool(admitted)
    assert selection.cost == cost(selection.point)
    if admitted:
        assert selection.point in admitted
        assert cost(selection.point) == least(admitted, cost)
    else:
        assert measure(selection.point) == least(frontier, measure)
        assert f"{bound:g}" in selection.note


@given(frontiers.map(with_power), st.sampled_from(EVERY))
def test_what_every_selection_is(frontier, objective):
    selection = objective.select(frontier)
    assert selection.point in frontier.points
    assert (selection.runner_up is None) <= (len(frontier) == 1 or selection.feasible)
    assert (selection.note == "") == (selection.feasible and not selection.tie)
    assert objective.select(frontier) == selection
    with pytest.raises(FrozenInstanceError):
        selection.cost = 0


@given(exact_frontiers.map(with_power), st.integers(-8, 8))
def test_more_of_the_same_work_changes_no_choice(frontier, power):
    """What has no limit in absolute terms chooses the same knob for any amount of work."""
    scaled = frontier.scaled(2.0**power)
    for objective in (Energy(), Time(), ZeusCost(0.3), MaxSlowdownConstraint(1.5), PowerCap(1.5)):
        assert objective.select(scaled).point.knob == objective.select(frontier).point.knob


@given(exact_frontiers.map(with_power), st.sampled_from(EVERY))
def test_beaten_points_never_win(frontier, objective):
    """Except under a power cap, which a slow and wasteful point may keep alone."""
    if not isinstance(objective, PowerCap):
        assert objective.select(frontier.pareto()).point == objective.select(frontier).point


# --- ties and noise -----------------------------------------------------------------------------


def test_of_equal_costs_the_faster_wins_then_less_energy_then_the_first():
    same_energy = Frontier([Point("slow", 2, 5), Point("fast", 1, 5), Point("first", 1, 5)])
    selection = Energy().select(same_energy)
    assert (selection.point.knob, selection.tie) == ("fast", True)
    assert selection.note == "the energy of knob='fast' and knob='first' is the same; " + (
        "they are equal, and the first was chosen"
    )
    same_time = Frontier([Point("more", 1, 5), Point("less", 1, 4)])
    assert Time().select(same_time).point.knob == "less"
    # 0.5 * 10 J + 0.5 * 20 W * 2 s and 0.5 * 30 J + 0.5 * 20 W * 1 s are both 25 J.
    same_cost = Frontier([Point("slow", 2, 10), Point("fast", 1, 30)], max_power=20)
    selection = ZeusCost(0.5).select(same_cost)
    assert (selection.point.knob, selection.tie, selection.cost) == ("fast", True, 25)


def test_costs_that_differ_by_rounding_are_equal():
    frontier = Frontier([Point("slow", 2, 0.1 + 0.2), Point("fast", 1, 0.3 + 1e-15)])
    assert Energy().select(frontier).point.knob == "fast"


def test_a_small_gain_that_is_not_proven_is_not_paid_for_with_time():
    fast = Point(250, 10, 1000, energy_uncertainty=30)
    frontier = Frontier([fast, Point(225, 11, 999.5, energy_uncertainty=30)])
    selection = Energy().select(frontier)
    assert selection.point == fast
    assert selection.tie
    assert selection.runner_up is not None
    assert selection.runner_up.knob == 225
    assert selection.cost == 1000
    assert selection.note == (
        "the energy of knob=250 and knob=225 differs by 0.5 J, which is within its uncertainty of "
        "42.4 J; the faster was chosen"
    )
    proven = Frontier([Point(250, 10, 1000, 0, 0.1), Point(225, 11, 999.5, 0, 0.1)])
    assert Energy().select(proven).point.knob == 225


def test_a_large_gain_is_the_better_guess_even_if_it_is_not_proven():
    fast = Point(250, 10, 1000, energy_uncertainty=30)
    likely = Frontier([fast, Point(225, 11, 970, energy_uncertainty=30)])
    assert Energy().select(likely) == Selection(likely.points[1], cost=970, runner_up=fast)


@given(frontiers.map(with_power), st.floats(0, 1))
def test_the_choice_is_never_surely_worse_and_never_slower_than_needed(frontier, eta):
    watts = frontier.max_power

    def cost(p):
        return eta * p.energy + (1 - eta) * watts * p.time

    def off(p):
        return math.hypot(
            eta * (p.energy_uncertainty or 0), (1 - eta) * watts * (p.time_uncertainty or 0)
        )

    best = min(frontier, key=lambda p: (cost(p), p.time, p.energy))
    chosen = ZeusCost(eta).select(frontier).point
    doubt = math.hypot(off(best), off(chosen))
    assert cost(chosen) - cost(best) <= doubt + 1e-9 * cost(best)
    assert cost(chosen) <= cost(best) * (1.001 + 1e-9)
    later = math.hypot(chosen.time_uncertainty or 0, best.time_uncertainty or 0)
    assert chosen.time - best.time <= later + 1e-9 * best.time


def test_a_setting_that_does_nothing_gives_way_to_the_first_given():
    # A job that draws 40 W does not feel a limit of 100 W; what differs is noise.
    felt_by_nobody = Frontier(
        [Point(250, 1.0, 40.0, 0.001, 0.1), Point(100, 0.9999, 39.98, 0.001, 0.1)], max_power=250
    )
    for objective in (Energy(), Time(), ZeusCost(0.5), MaxSlowdownConstraint(1.1)):
        assert objective.select(felt_by_nobody).point.knob == 250


def test_a_limit_is_kept_despite_rounding():
    frontier = Frontier([Point(250, 100, 1000), Point(150, 115, 800)])
    assert 1.15 * 100 < 115
    assert MaxSlowdownConstraint(1.15).select(frontier).point.knob == 150


# --- several GPUs -------------------------------------------------------------------------------

# One GPU at three power limits, with a maximum of 300 W. With eta = 0.5 the best is 250 W:
# 0.5 * (t * P + 300 * t) is 2625, 2585 and 2640 J.
ONE_GPU = ((300, 10.0, 225.0), (250, 11.0, 170.0), (150, 12.0, 140.0))


def gpus(count):
    return [Point(limit, time, count * time * power) for limit, time, power in ONE_GPU]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_limit_does_not_depend_on_how_many_gpus_do_the_same(count):
    """Summing energy over GPUs beside the maximum power of one picks too low a limit."""
    of_all = ZeusCost(0.5).select(Frontier(gpus(count), max_power=count * 300))
    assert of_all.point.knob == 250
    assert of_all.cost == pytest.approx(count * 2585)
    of_each = ZeusCost(0.5, world_size=count).select(Frontier(gpus(count), max_power_per_gpu=300))
    assert of_each == of_all


def test_the_classic_mistake_would_pick_another_limit():
    costs = {p.knob: 0.5 * p.energy + 0.5 * 300 * p.time for p in gpus(2)}
    assert min(costs, key=lambda knob: costs[knob]) == 150


def test_the_classic_mistake_is_noticed():
    with pytest.raises(
        FrontierError,
        match=r"must be that of all GPUs.*but got max_power=300 and 900 W on average at knob=300",
    ):
        ZeusCost(0.5, world_size=4).select(Frontier(gpus(4), max_power=300))
    with pytest.raises(FrontierError, match="got max_power_per_gpu=300, world_size=1 and 900 W"):
        ZeusCost(0.5).select(Frontier(gpus(4), max_power_per_gpu=300))


def test_world_size_does_not_multiply_what_is_of_all_gpus():
    frontier = Frontier(gpus(4), max_power=1200)
    assert ZeusCost(0.5, world_size=4).select(frontier) == ZeusCost(0.5).select(frontier)


def test_zeus_cost_needs_a_maximum_power():
    for ask in (ZeusCost(0.5).select, ZeusCost(0.5).settled):
        with pytest.raises(FrontierError, match="needs the frontier's `max_power`"):
            ask(Frontier(gpus(1)))


@given(walks(gpus=4), st.floats(0, 1))
def test_four_gpus_choose_as_one(walk, eta):
    alone = Frontier(
        [Point(p.knob, p.time, p.energy / 4) for p in walk], max_power=walk.max_power / 4
    )
    assert ZeusCost(eta).select(walk).point.knob == ZeusCost(eta).select(alone).point.knob


# --- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: ZeusCost(1.5), "`0 <= eta_knob <= 1` must hold, but got eta_knob=1.5"),
        (lambda: ZeusCost(-0.1), "`0 <= eta_knob <= 1` must hold, but got eta_knob=-0.1"),
        (lambda: ZeusCost(math.nan), "`eta_knob` must be finite"),
        (
            lambda: ZeusCost("0.5"),  # type: ignore[arg-type]
            "`eta_knob` must be a real number, but got eta_knob='0.5'",
        ),
        (lambda: ZeusCost(0.5, 0), "`world_size >= 1` must hold, but got world_size=0"),
        (
            lambda: ZeusCost(0.5, 1.0),  # type: ignore[arg-type]
            "`world_size` must be a whole number",
        ),
        (lambda: MaxSlowdownConstraint(0.9), "`factor >= 1` must hold, but got factor=0.9"),
        (lambda: MaxSlowdownConstraint(math.inf), "`factor` must be finite"),
        (lambda: Deadline(0), "`seconds > 0` must hold, but got seconds=0"),
        (lambda: EnergyBudget(-1), "`joules > 0` must hold, but got joules=-1"),
        (lambda: PowerCap(0), "`watts > 0` must hold, but got watts=0"),
        (lambda: LatencyBound("p99", 0), "`seconds > 0` must hold"),
        (All, "at least one LatencyBound, each of another percentile, but got none"),
        (lambda: All(LatencyBound(99, 1), LatencyBound("p99", 2)), "but got p99, p99"),
        (lambda: All(Energy()), r"must be LatencyBound objects, but got Energy\(\)"),  # type: ignore[arg-type]
        (lambda: LatencyBound(101, 1), "`0 <= percentile <= 100` must hold"),
        (
            lambda: LatencyBound(None, 1),  # type: ignore[arg-type]
            "`percentile` must be a string like 'p99' or a number",
        ),
    ],
)
def test_errors_name_the_rule_and_the_value(make, rule):
    with pytest.raises(FrontierError, match=rule):
        make()


def test_published_signatures():
    assert ZeusCost(eta_knob=0.5, world_size=2) == ZeusCost(0.5, 2)
    assert MaxSlowdownConstraint(factor=1.1) == MaxSlowdownConstraint(1.1)
    assert repr(MaxSlowdownConstraint(1.1)) == "MaxSlowdownConstraint(factor=1.1)"
    assert Energy() == Energy()


def test_latencies_that_are_not_stated():
    told = Point("told", 1, 5, latencies={"p99": 0.2})
    frontier = Frontier([told, Point("untold", 1, 4), Point("other", 1, 3, latencies={"p50": 0.1})])
    selection = LatencyBound(99, 0.3).select(frontier)
    assert selection.point == told
    assert selection.note == "2 of 3 points state no p99 and were left out"
    with pytest.raises(FrontierError, match=r"points that state 'p99\.9', but got 'p99', 'p50'"):
        LatencyBound(99.9, 0.3).select(frontier)
    with pytest.raises(FrontierError, match="no latencies at all"):
        LatencyBound("p99", 0.3).select(Frontier([Point(1, 1, 1)]))


def test_several_bounds_at_once():
    def point(knob, energy, ttft, tpot):
        return Point(knob, 1, energy, latencies={"ttft p99": ttft, "tpot p99": tpot})

    both = All(LatencyBound("ttft p99", 1.5), LatencyBound("tpot p99", 0.06))
    frontier = Frontier(
        [
            point(1400, 100, 1.0, 0.04),
            point(1200, 80, 1.4, 0.05),
            point(1000, 60, 1.4, 0.07),  # one bound is broken
            point(800, 50, 1.6, 0.05),  # the other one is
            Point(600, 1, 40, latencies={"ttft p99": 1.0}),
        ]
    )
    selection = both.select(frontier)
    assert (selection.point.knob, selection.feasible, selection.cost) == (1200, True, 80)
    assert selection.note == (
        "1 of 5 points state not all of 'ttft p99', 'tpot p99' and were left out"
    )
    tight = All(LatencyBound("ttft p99", 0.7), LatencyBound("tpot p99", 0.02))
    selection = tight.select(frontier)
    assert (selection.point.knob, selection.feasible) == (1400, False)
    assert "exceeds a bound by a factor of 2" in selection.note
    with pytest.raises(FrontierError, match="All needs points that state 'itl p50', but got 'ttft"):
        All(LatencyBound("itl p50", 1)).select(frontier)
    assert both == All(LatencyBound("ttft p99", 1.5), LatencyBound("tpot p99", 0.06))
    assert both != tight


def test_notes_where_nothing_qualifies():
    points = [Point(250, 10, 1000, latencies={"p99": 2}), Point(150, 12, 900, latencies={"p99": 3})]
    frontier = Frontier(points)
    for objective, knob, note in (
        (Deadline(9), 250, "no point takes 9 s or less; the fastest takes 10 s"),
        (EnergyBudget(800), 150, "no point takes 800 J or less; the least is 900 J"),
        (PowerCap(50), 150, "no point takes 50 W or less on average; the least is 75 W"),
        (LatencyBound(99, 1), 250, "no point has a p99 of 1 s or less; the lowest is 2 s"),
    ):
        selection = objective.select(frontier)
        assert (selection.point.knob, selection.feasible, selection.note) == (knob, False, note)
        assert selection.runner_up is not None
        assert selection.runner_up.knob == (250 if knob == 150 else 150)


# --- users' own ---------------------------------------------------------------------------------

FRONTIER = Frontier([Point(250, 10, 1000), Point(150, 12, 800)])


def middle(frontier):
    return frontier.pareto().points[len(frontier.pareto()) // 2]


class Slowest:
    def select(self, frontier):
        return Selection(max(frontier, key=lambda p: p.time), note="mine")


class Own(Objective):
    def select(self, frontier):
        return Selection(frontier.points[0])


def test_functions_and_objects_choose_too():
    assert as_objective(middle).select(FRONTIER) == Selection(FRONTIER.points[1])
    assert as_objective(Slowest()).select(FRONTIER).note == "mine"
    assert as_objective(Own()).select(FRONTIER).point.knob == 250
    for chooser in (middle, Slowest(), Own()):
        assert isinstance(as_objective(chooser), Objective)
        assert as_objective(chooser).settled(FRONTIER) is False
    for objective in EVERY:
        assert isinstance(objective, Objective)
        assert as_objective(objective) is objective


@pytest.mark.parametrize(
    ("chooser", "rule"),
    [
        (Energy, r"got the class Energy; write Energy\(...\)"),
        (3, "must have a `select` method or be a function of a frontier, but got 3"),
    ],
)
def test_what_cannot_choose(chooser, rule):
    with pytest.raises(FrontierError, match=rule):
        as_objective(chooser)


@pytest.mark.parametrize("choice", [None, 250, Point(1, 1, 1), Selection(Point(1, 1, 1))])
def test_only_points_of_the_frontier_can_be_chosen(choice):
    with pytest.raises(FrontierError, match="must return one of the frontier's points"):
        as_objective(lambda frontier: choice).select(FRONTIER)


@given(st.floats(0, 1), st.floats(1, 1e4), exact_frontiers)
def test_the_cost_is_equation_2_for_numbers_and_arrays(eta, watts, frontier):
    numpy = pytest.importorskip("numpy")
    energies = numpy.array([point.energy for point in frontier])
    times = numpy.array([point.time for point in frontier])
    costs = zeus_cost(energies, times, watts, eta)
    for point, cost in zip(frontier, costs, strict=True):
        assert cost == eta * point.energy + (1 - eta) * watts * point.time
        assert cost == zeus_cost(point.energy, point.time, watts, eta)

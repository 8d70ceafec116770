"""Frontiers: which points matter, looking up, interpolating, putting together."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.frontier.strategies import exact_frontiers, fine, frontiers

from zeus.errors import FrontierError
from zeus.frontier import Frontier, Point


def beats(other, point):
    return (
        other.time <= point.time
        and other.energy <= point.energy
        and (other.time < point.time or other.energy < point.energy)
    )


def test_rules_of_a_frontier():
    point = Point(1, 1, 1)
    with pytest.raises(FrontierError, match="at least one point"):
        Frontier([])
    with pytest.raises(FrontierError, match=r"points\[1\] must be a Point, but got 3"):
        Frontier([point, 3])  # type: ignore[list-item]
    with pytest.raises(FrontierError, match="`work` must be a string, but got work=3"):
        Frontier([point], 3)  # type: ignore[arg-type]
    with pytest.raises(FrontierError, match="`max_power > 0` must hold, but got max_power=0"):
        Frontier([point], max_power=0)
    with pytest.raises(FrontierError, match="exclude each other"):
        Frontier([point], max_power=1000, max_power_per_gpu=250)


@given(frontiers)
def test_a_frontier_is_a_value(frontier):
    assert frontier == Frontier(list(frontier))
    assert hash(frontier) == hash(Frontier(iter(frontier)))
    assert len(frontier) == len(list(frontier))
    assert frontier != Frontier(frontier, "other work")


# --- which points matter ------------------------------------------------------------------------


@given(frontiers)
def test_pareto_is_not_beaten_and_complete(frontier):
    kept = frontier.pareto().points
    for point in kept:
        assert not any(beats(other, point) for other in frontier)
    for point in frontier:
        assert any(
            beats(other, point) or (other.time, other.energy) == (point.time, point.energy)
            for other in kept
        )
    times = [point.time for point in kept]
    energies = [point.energy for point in kept]
    assert times == sorted(set(times))
    assert energies == sorted(set(energies), reverse=True)
    assert kept[0] == frontier.fastest
    assert kept[-1] == frontier.least_energy


def test_of_duplicates_the_first_stays():
    frontier = Frontier([Point("b", 1, 1), Point("a", 1, 1), Point("c", 1, 2)])
    for noise_aware in (False, True):
        assert frontier.pareto(noise_aware=noise_aware).points == (Point("b", 1, 1),)


@given(frontiers)
def test_noise_aware_drops_exactly_what_is_surely_beaten(frontier):
    kept = frontier.pareto(noise_aware=True).points
    assert set(frontier.pareto()) <= set(kept)

    def off(name, *both):
        return math.hypot(*(getattr(point, name) or 0.0 for point in both))

    distinct = {(p.time, p.energy): p for p in reversed(frontier.points)}.values()
    for point in distinct:
        surely = any(
            beats(other, point)
            and (
                point.time - other.time > off("time_uncertainty", point, other)
                or point.energy - other.energy > off("energy_uncertainty", point, other)
            )
            for other in distinct
        )
        assert (point in kept) == (not surely)


@given(exact_frontiers)
def test_without_noise_both_are_the_same(frontier):
    assert frontier.pareto(noise_aware=True) == frontier.pareto()


def test_a_disadvantage_within_the_noise_does_not_cost_a_point_its_place():
    best = Point(200, 10.0, 1000, time_uncertainty=0.3, energy_uncertainty=30)
    close = Point(225, 10.4, 1040, time_uncertainty=0.3, energy_uncertainty=30)
    far = Point(250, 10.5, 1040, time_uncertainty=0.3, energy_uncertainty=30)
    frontier = Frontier([best, close, far])
    assert frontier.pareto().points == (best,)
    assert frontier.pareto(noise_aware=True).points == (best, close)


@given(exact_frontiers)
def test_hull_is_convex_and_lies_below(frontier):
    corners = frontier.hull().points
    assert corners[0] == frontier.fastest
    assert corners[-1] == frontier.least_energy
    assert set(corners) <= set(frontier.pareto())
    slopes = []
    for left, right in pairwise(corners):
        slope = (right.energy - left.energy) / (right.time - left.time)
        slopes.append(slope)
        for point in frontier:
            if left.time <= point.time <= right.time:
                line = left.energy + slope * (point.time - left.time)
                assert point.energy >= line - 1e-9 * left.energy
    assert all(a <= b + 1e-9 * abs(a) for a, b in pairwise(slopes))


# --- looking up ---------------------------------------------------------------------------------


@given(frontiers, st.data())
def test_lookups_are_the_best_that_qualify(frontier, data):
    time = data.draw(st.sampled_from(frontier.points)).time
    found = frontier.at_time(time)
    assert found.time <= time
    assert found.energy == min(point.energy for point in frontier if point.time <= time)
    energy = data.draw(st.sampled_from(frontier.points)).energy
    found = frontier.at_energy(energy)
    assert found.energy <= energy
    assert found.time == min(point.time for point in frontier if point.energy <= energy)


def test_lookups_that_find_nothing_say_what_there_is():
    frontier = Frontier([Point(250, 10, 1000), Point(150, 12, 800)])
    with pytest.raises(
        FrontierError, match="no point takes 9 s or less; the best, knob=250, takes 10"
    ):
        frontier.at_time(9)
    with pytest.raises(FrontierError, match="no point takes 700 J or less; the best, knob=150"):
        frontier.at_energy(700)
    with pytest.raises(FrontierError, match="no point has knob=200; there are 250, 150"):
        frontier.at(200)
    with pytest.raises(FrontierError, match="`time` must be finite"):
        frontier.at_time(math.nan)


def test_ties_go_to_the_other_quantity_then_to_the_first():
    frontier = Frontier([Point("a", 1, 5), Point("b", 1, 4), Point("c", 1, 4), Point("d", 2, 4)])
    assert frontier.fastest.knob == "b"
    assert frontier.least_energy.knob == "b"
    assert frontier.at_time(3).knob == "b"
    assert frontier.at_energy(5).knob == "b"


# --- interpolating ------------------------------------------------------------------------------


@given(
    st.lists(st.integers(50, 400), min_size=2, max_size=8, unique=True),
    st.floats(0, 1),
    st.floats(0.001, 0.1),
    st.floats(0.1, 10),
)
def test_interpolation_is_exact_on_lines(knobs, share, slope, rise):
    def on_line(knob):
        return Point(knob, 50 - slope * knob, 10 + rise * knob, latencies={"p99": 1 + knob})

    frontier = Frontier([on_line(knob) for knob in knobs])
    knob = min(knobs) + share * (max(knobs) - min(knobs))
    expected = on_line(knob)
    for found in (
        frontier.between(knob),
        frontier.interpolate(time=min(max(expected.time, frontier.fastest.time), 50)),
        frontier.interpolate(energy=min(expected.energy, frontier.fastest.energy)),
    ):
        assert found.knob == pytest.approx(knob, rel=1e-6)
        assert found.time == pytest.approx(expected.time)
        assert found.energy == pytest.approx(expected.energy)
        assert found.latencies["p99"] == pytest.approx(1 + knob, rel=1e-6)
    assert frontier.between(knob).knob == knob


@given(exact_frontiers, st.data())
def test_a_measured_point_is_found_as_it_is(frontier, data):
    pareto = frontier.pareto()
    point = data.draw(st.sampled_from(pareto.points))
    assert frontier.interpolate(time=point.time) is point
    assert frontier.interpolate(energy=point.energy) is point
    knob = data.draw(st.sampled_from(frontier.points)).knob
    assert frontier.between(knob) == frontier.combine().at(knob)


def test_interpolated_points_say_so_and_carry_the_uncertainty():
    left = Point(200, 10, 1000, 0.3, 30)
    right = Point(100, 20, 500, 0.4, None)
    found = Frontier([left, right]).between(150)
    assert found.repeats == 0
    assert found.time_uncertainty == pytest.approx(0.25)
    assert found.energy_uncertainty is None


@pytest.mark.parametrize("value", [9.99, 20.01])
def test_nothing_is_said_outside(value):
    frontier = Frontier([Point(200, 10, 1000), Point(100, 20, 500)])
    with pytest.raises(FrontierError, match="`10 <= time <= 20` must hold here"):
        frontier.interpolate(time=value)
    with pytest.raises(FrontierError, match="`100 <= knob <= 200` must hold here"):
        frontier.between(value)


def test_only_numbers_have_a_between():
    frontier = Frontier([Point("plan A", 10, 1000), Point("plan B", 20, 500)])
    with pytest.raises(FrontierError, match="knobs that are real numbers, but got knob='plan A'"):
        frontier.interpolate(time=15)
    with pytest.raises(FrontierError, match="knobs that are real numbers, but got knob='plan A'"):
        frontier.between(15)
    with pytest.raises(FrontierError, match="`knob` must be a real number, but got knob='plan C'"):
        frontier.between("plan C")  # type: ignore[arg-type]
    with pytest.raises(FrontierError, match="exactly one of `time` and `energy`"):
        frontier.interpolate()
    with pytest.raises(FrontierError, match="exactly one of `time` and `energy`"):
        frontier.interpolate(time=15, energy=700)


# --- putting together ---------------------------------------------------------------------------


@given(frontiers, frontiers)
def test_merging_combines_what_both_know(first, second):
    merged = first.merged(second)
    assert merged == first.combine(second)
    knobs = [point.knob for point in merged]
    assert len(knobs) == len(set(knobs))
    assert set(knobs) == {point.knob for point in (*first, *second)}


def test_merging_takes_over_what_one_does_not_state():
    first = Frontier([Point(1, 1, 1)], "epoch", knob_name="power limit", max_power=250)
    second = Frontier([Point(2, 1, 1)], knob_unit="W")
    for merged in (first.merged(second), second.merged(first)):
        assert merged.work == "epoch"
        assert (merged.knob_name, merged.knob_unit) == ("power limit", "W")
        assert merged.max_power == 250


@pytest.mark.parametrize(
    ("mine", "other", "rule"),
    [
        ({"work": "a"}, {"work": "b"}, "same `work`, but got 'a' and 'b'"),
        ({"knob_unit": "W"}, {"knob_unit": "MHz"}, "same `knob_unit`"),
        ({"max_power": 250}, {"max_power": 300}, "same maximum power"),
        ({"max_power": 250}, {"max_power_per_gpu": 250}, "same maximum power"),
    ],
)
def test_what_contradicts_is_not_merged(mine, other, rule):
    points = [Point(1, 1, 1)]
    with pytest.raises(FrontierError, match=rule):
        Frontier(points, **mine).merged(Frontier(points, **other))


@given(frontiers, st.floats(0.01, 100))
def test_more_work_takes_more_of_both(frontier, factor):
    scaled = frontier.scaled(factor, "more")
    assert scaled.work == "more"
    for before, after in zip(frontier, scaled, strict=True):
        assert after.time == before.time * factor
        assert after.energy == before.energy * factor
        assert after.average_power == pytest.approx(before.average_power)
        assert after.latencies == before.latencies


def test_scaled_work_has_a_name():
    assert Frontier([Point(1, 1, 1)], "epoch").scaled(90).work == "90 x epoch"
    with pytest.raises(FrontierError, match="`factor > 0` must hold, but got factor=0"):
        Frontier([Point(1, 1, 1)]).scaled(0)


@given(exact_frontiers, st.integers(-8, 8))
def test_scaling_changes_no_shape(frontier, power):
    """Powers of two scale without rounding, so the same knobs stay."""
    scaled = frontier.scaled(2.0**power)
    for name in ("pareto", "hull"):
        before = [point.knob for point in getattr(frontier, name)()]
        assert [point.knob for point in getattr(scaled, name)()] == before


@given(fine, fine)
def test_one_point_is_its_own_frontier(time, energy):
    assume(energy > 0)
    frontier = Frontier([Point("k", time, energy)])
    assert frontier.pareto() == frontier.hull() == frontier
    assert frontier.interpolate(time=time).knob == "k"

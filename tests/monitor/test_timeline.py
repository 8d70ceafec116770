"""A timeline's integral is right at any edges, and stays right when old samples are merged."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.monitor._timeline import Timeline

watts = st.floats(0.0, 800.0)
gaps = st.floats(1e-3, 10.0)
knots = st.lists(st.tuples(gaps, watts), min_size=1, max_size=60)
edge = st.floats(-20.0, 700.0)
capacities = st.integers(2, 40)


def filled(points, capacity=1000, *, level=False):
    timeline = Timeline(capacity, level=level)
    instants = []
    now = 0.0
    for gap, value in points:
        now += gap
        timeline.append(now, value)
        instants.append(now)
    return timeline, instants


def close(value):
    # The running integral is of the order of 1e5 J here; differences of it keep 10 digits.
    return pytest.approx(value, rel=1e-9, abs=1e-6)


def trapezoids(points):
    """Exact integral of the straight lines through (instant, value) points."""
    return sum((b - a) * (v + w) / 2 for (a, v), (b, w) in pairwise(points))


def held_and_cut(samples, start, end):
    """The polygon through samples, held at both ends, between two instants."""
    first, last = samples[0], samples[-1]
    polygon = [(min(start, first[0]) - 1, first[1]), *samples, (max(end, last[0]) + 1, last[1])]

    def at(instant):
        for (a, v), (b, w) in pairwise(polygon):
            if a <= instant < b:
                return v + (w - v) * (instant - a) / (b - a)
        raise AssertionError(instant)

    inside = [(t, v) for t, v in polygon if start < t < end]
    return [(start, at(start)), *inside, (end, at(end))]


@given(knots, edge, edge)
def test_integral_of_straight_lines_is_exact_at_any_edges(points, one, other):
    timeline, _ = filled(points)
    start, end = sorted((one, other))
    expected = trapezoids(held_and_cut(timeline.samples(), start, end))
    assert timeline.integral(start, end) == close(expected)


@given(knots, edge, edge, edge, capacities)
def test_integrals_add_up(points, one, two, three, capacity):
    for level in (False, True):
        timeline, _ = filled(points, capacity, level=level)
        a, b, c = sorted((one, two, three))
        whole = timeline.integral(a, c)
        assert timeline.integral(a, b) + timeline.integral(b, c) == close(whole)
        assert timeline.integral(a, a) == 0


@given(st.lists(gaps, min_size=1, max_size=200), watts, edge, edge, capacities)
def test_constant_power_is_exact_for_any_edges_and_any_thinning(steps, power, one, two, capacity):
    for level in (False, True):
        timeline, _ = filled([(gap, power) for gap in steps], capacity, level=level)
        start, end = sorted((one, two))
        assert timeline.integral(start, end) == close(power * (end - start))
        assert timeline.value_at(start) == pytest.approx(power)


@given(
    st.lists(st.tuples(st.floats(0.05, 5.0), watts), min_size=1, max_size=12),
    st.floats(0.01, 0.3),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_sampled_steps_are_within_the_sampling_bound(phases, period, one, other):
    """Piecewise constant power, sampled regularly: each step costs at most half a period."""
    end = sum(duration for duration, _ in phases)

    def power(instant):
        for duration, value in phases:
            if instant < duration:
                return value
            instant -= duration
        return phases[-1][1]

    def exact(start, stop):
        total = begun = 0.0
        for duration, value in phases:
            total += value * max(0.0, min(stop, begun + duration) - max(start, begun))
            begun += duration
        return total

    timeline = Timeline(100_000)
    samples = int(end / period) + 2  # the last one is beyond the end
    for number in range(samples):
        timeline.append(number * period, power(number * period))
    a, b = sorted((one * end, other * end))
    bound = sum(abs(w - v) for (_, v), (_, w) in pairwise(phases)) * period / 2
    assert abs(timeline.integral(a, b) - exact(a, b)) <= bound * (1 + 1e-6) + 1e-6


@given(knots, capacities)
def test_thinning_keeps_the_integral_and_the_bound(points, capacity):
    for level in (False, True):
        thinned, instants = filled(points, capacity, level=level)
        full, _ = filled(points, level=level)
        assert len(thinned) <= capacity
        kept = [instant for instant, _ in thinned.samples()]
        assert set(kept) <= set(instants)
        assert kept[0] == instants[0]
        assert kept[-1] == instants[-1]
        for instant in kept:
            assert thinned.integral(kept[0], instant) == close(full.integral(kept[0], instant))


@given(knots, capacities)
def test_readings_that_survive_thinning_are_unchanged(points, capacity):
    thinned, _ = filled(points, capacity)
    full, _ = filled(points)
    assert set(thinned.samples()) <= set(full.samples())


@given(knots, capacities)
def test_means_that_survive_thinning_are_those_of_the_longer_stretch(points, capacity):
    thinned, _ = filled(points, capacity, level=True)
    total = sum((b - a) * w for (a, _), (b, w) in pairwise(thinned.samples()))
    first, last = thinned.samples()[0][0], thinned.samples()[-1][0]
    assert total == close(thinned.integral(first, last))


@given(knots, edge, edge, capacities)
def test_no_window_of_positive_power_is_negative(points, one, other, capacity):
    thinned, _ = filled(points, capacity)
    start, end = sorted((one, other))
    assert thinned.integral(start, end) >= -1e-6


def test_the_newer_half_keeps_its_resolution():
    timeline = Timeline(100)
    for second in range(1000):
        timeline.append(float(second), float(second % 7))
    instants = [instant for instant, _ in timeline.samples()]
    assert instants[-40:] == [float(second) for second in range(960, 1000)]
    assert instants[0] == 0.0
    assert timeline.integral(0, 999) == close(
        trapezoids([(float(s), float(s % 7)) for s in range(1000)])
    )


def test_nothing_is_known_without_a_sample():
    timeline = Timeline(10)
    assert timeline.integral(0, 1) is None
    assert timeline.value_at(0) is None
    assert timeline.last() is None
    assert timeline.samples() == []


def test_values_between_before_and_after():
    timeline = Timeline(10)
    timeline.append(1.0, 100.0)
    timeline.append(2.0, 200.0)
    values = [timeline.value_at(t) for t in (0.0, 1.0, 1.25, 2.0, 5.0)]
    assert values == [100.0, 100.0, 125.0, 200.0, 200.0]
    assert timeline.last() == (2.0, 200.0)


def test_a_level_value_holds_since_the_sample_before():
    timeline = Timeline(10, level=True)
    timeline.append(0.0, 50.0)
    timeline.append(1.0, 50.0)
    timeline.append(2.0, 150.0)
    assert timeline.value_at(0.5) == 50.0
    assert timeline.value_at(1.5) == 150.0
    assert timeline.integral(0.5, 1.5) == close(0.5 * 50 + 0.5 * 150)


def test_two_samples_at_one_instant_are_a_step():
    timeline = Timeline(10)
    for instant, value in ((0.0, 100.0), (1.0, 100.0), (1.0, 300.0), (2.0, 300.0)):
        timeline.append(instant, value)
    assert timeline.integral(0, 2) == close(400.0)
    assert timeline.integral(0.5, 1.5) == close(200.0)


def test_a_late_sample_is_left_out():
    timeline = Timeline(10)
    timeline.append(2.0, 100.0)
    timeline.append(1.0, 700.0)
    assert timeline.samples() == [(2.0, 100.0)]


def test_samples_of_a_part_include_both_edges():
    timeline, _ = filled([(1.0, float(v)) for v in range(5)])
    assert timeline.samples(2.0, 4.0) == [(2.0, 1.0), (3.0, 2.0), (4.0, 3.0)]
    assert timeline.samples(2.1, 2.9) == []


@pytest.mark.parametrize("capacity", [1, 0, -3])
def test_capacity_has_a_lower_bound(capacity):
    with pytest.raises(ValueError, match=rf"capacity >= 2.*{capacity}"):
        Timeline(capacity)


def test_reading_while_another_thread_appends():
    timeline = Timeline(50)
    timeline.append(0.0, 100.0)
    stop = threading.Event()

    def write():
        instant = 0.0
        while not stop.is_set():
            instant += 0.5
            timeline.append(instant, 100.0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(2000):
            assert timeline.integral(0.0, float(number)) == close(100.0 * number)
            assert {value for _, value in timeline.samples()} == {100.0}
    finally:
        stop.set()
        writer.join()

"""Points: their rules, their knobs, and what several of them say together."""

from __future__ import annotations

import copy
import math
import pickle
from collections import namedtuple
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frontier.strategies import fine, points, settings_of_a_knob

from zeus.errors import FrontierError, ZeusError
from zeus.frontier import Frontier, Point, Settings


def test_what_a_point_says():
    point = Point(150, 10, 1200, time_uncertainty=0.1, latencies={"p99": 0.12})
    assert (point.time, point.energy, point.average_power) == (10.0, 1200.0, 120.0)
    assert point.energy_uncertainty is None
    assert point.repeats == 1
    assert point.latencies["p99"] == 0.12


def test_other_kinds_of_numbers_are_numbers():
    half: Any = Fraction(1, 2)
    assert Point(1, half, 3).average_power == 6.0


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"time": 0.0}, "`time > 0` must hold, but got time=0.0"),
        ({"time": -1}, "`time > 0` must hold, but got time=-1"),
        ({"time": math.nan}, "`time` must be finite, but got time=nan"),
        ({"time": 10**400}, "`time` must be finite"),
        ({"energy": math.inf}, "`energy` must be finite, but got energy=inf"),
        ({"energy": -0.5}, "`energy >= 0` must hold, but got energy=-0.5"),
        ({"energy": "12"}, "`energy` must be a real number, but got energy='12'"),
        ({"energy": True}, "`energy` must be a real number, but got energy=True"),
        ({"energy": None}, "`energy` must be a real number, but got energy=None"),
        ({"time_uncertainty": -1.0}, "`time_uncertainty >= 0` must hold"),
        ({"energy_uncertainty": math.nan}, "`energy_uncertainty` must be finite"),
        ({"repeats": -1}, "`repeats >= 0` must hold, but got repeats=-1"),
        ({"repeats": 1.5}, "`repeats` must be a whole number, but got repeats=1.5"),
        ({"latencies": {"p99": -1}}, r"`latencies\['p99'\] >= 0` must hold"),
        ({"latencies": {99: 1}}, "a percentile must be a string like 'p99', but got 99"),
        ({"latencies": 3}, "`latencies` must map percentiles to seconds, but got 3"),
        ({"knob": math.nan}, "a knob must be finite, but got knob=nan"),
        ({"knob": [1, [math.inf]]}, "a knob must be finite"),
        ({"knob": {1, 2}}, "a knob must be hashable.*of type set"),
    ],
)
def test_errors_name_the_rule_and_the_value(values, rule):
    with pytest.raises(FrontierError, match=rule) as caught:
        Point(**{"knob": 150, "time": 1.0, "energy": 1.0, **values})
    assert isinstance(caught.value, ZeusError)
    assert isinstance(caught.value, ValueError)
    if "knob" not in values:
        assert "(knob=150)" in str(caught.value)


@given(points)
def test_a_point_cannot_be_changed(point):
    with pytest.raises(FrozenInstanceError):
        point.time = 1.0
    with pytest.raises(TypeError):
        point.latencies["p99"] = 1.0


@given(settings_of_a_knob)
def test_any_setting_is_a_knob_and_stays_what_it_is(knob):
    point = Point(knob, 1, 1)
    assert hash(point) == hash(Point(copy.deepcopy(knob), 1, 1))
    assert pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point) == point
    assert Frontier([point]).at(knob) is point


def test_a_plan_is_taken_over_as_it_was():
    stages = [1410, 1200]
    point = Point({"stages": stages, "batch": 8}, 1, 1)
    stages.append(900)
    assert point.knob == {"stages": (1410, 1200), "batch": 8}
    assert isinstance(point.knob, Settings)
    assert point.knob["stages"] == (1410, 1200)
    assert repr(point.knob) == "{'stages': (1410, 1200), 'batch': 8}"


def test_a_named_tuple_keeps_its_names():
    Plan = namedtuple("Plan", "clock batch")
    assert Point(Plan(1410, 8), 1, 1).knob.clock == 1410


def test_slowdown_and_savings():
    reference, point = Point(250, 10, 1000), Point(150, 12, 750)
    assert point.slowdown(reference) == pytest.approx(1.2)
    assert point.savings(reference) == pytest.approx(0.25)
    assert reference.savings(point) == pytest.approx(-1 / 3)
    frontier = Frontier([point, reference])
    assert frontier.slowdown(point) == point.slowdown(reference)
    assert frontier.savings(point) == point.savings(reference)
    assert frontier.slowdown(reference, point) == pytest.approx(1 / 1.2)


def test_nothing_is_saved_of_nothing():
    with pytest.raises(FrontierError, match="`energy > 0`"):
        Point(1, 1, 1).savings(Point(2, 1, 0))


# --- several measurements of the same setting ---------------------------------------------------


def combined(*several):
    (point,) = Frontier(several).combine()
    return point


@given(st.lists(st.tuples(fine, st.floats(0.01, 10)), min_size=2, max_size=6))
def test_combining_is_the_mean_by_inverse_variance(readings):
    point = combined(*(Point("k", value, 1, time_uncertainty=u) for value, u in readings))
    weights = [1 / u**2 for _, u in readings]
    mean = sum(w * v for w, (v, _) in zip(weights, readings, strict=True)) / sum(weights)
    assert point.time == pytest.approx(mean, rel=1e-9)
    assert point.time_uncertainty >= 1 / math.sqrt(sum(weights)) * (1 - 1e-9)
    assert point.repeats == len(readings)


def test_agreeing_readings_sharpen_and_disagreeing_ones_blur():
    agreeing = combined(*(Point(1, 10 + d, 1, time_uncertainty=1) for d in (-0.2, 0, 0.2, 0)))
    assert agreeing.time_uncertainty == pytest.approx(0.5)
    apart = combined(Point(1, 10, 1, time_uncertainty=0.1), Point(1, 20, 1, time_uncertainty=0.1))
    assert apart.time == pytest.approx(15)
    assert apart.time_uncertainty > 5


@given(st.lists(fine, min_size=2, max_size=30))
def test_without_uncertainties_the_spread_tells(values):
    point = combined(*(Point("k", 1, value) for value in values))
    mean = math.fsum(values) / len(values)
    assert point.energy == pytest.approx(mean)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    if spread < 1e-9 * mean:
        return
    # Student's factor lies between that of one and that of infinitely many degrees of freedom.
    deviation = spread / math.sqrt(len(values))
    assert 1.95 * deviation <= point.energy_uncertainty <= 12.71 * deviation


@pytest.mark.parametrize(("count", "factor"), [(2, 12.706), (5, 2.776), (12, 2.201), (31, 2.042)])
def test_few_readings_are_believed_less(count, factor):
    values = [10 + (-1) ** index for index in range(count)]
    point = combined(*(Point("k", value, 1) for value in values))
    mean = sum(values) / count
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1) / count)
    assert point.time_uncertainty == pytest.approx(factor * deviation, rel=2e-3)


def test_equal_readings_tell_nothing_about_their_noise():
    point = combined(Point(1, 10, 5), Point(1, 10, 5))
    assert (point.time, point.time_uncertainty, point.repeats) == (10, None, 2)


def test_one_reading_stays_what_it_is():
    point = Point(1, 10, 5, 0.1, 0.2, 3, {"p99": 0.5})
    assert combined(point) == point


def test_some_uncertainties_unknown_is_the_plain_mean_over_repeats():
    point = combined(Point(1, 10, 5, time_uncertainty=0.001), Point(1, 13, 5, repeats=2))
    assert point.time == pytest.approx(12)
    assert point.repeats == 3


def test_what_is_exact_outweighs_the_rest():
    exact = Point(1, 10, 5, time_uncertainty=0)
    point = combined(exact, Point(1, 20, 5, time_uncertainty=1), exact)
    assert (point.time, point.time_uncertainty) == (10, 0)


def test_interpolated_points_give_way_to_measured_ones():
    measured = Point(1, 10, 5)
    assert combined(Point(1, 20, 5, repeats=0), measured) == measured
    assert combined(Point(1, 20, 5, repeats=0), Point(1, 10, 5, repeats=0)).time == 15


def test_percentiles_are_averaged_where_stated():
    point = combined(
        Point(1, 1, 1, latencies={"p99": 0.1, "p50": 0.05}), Point(1, 1, 1, latencies={"p99": 0.3})
    )
    assert point.latencies == {"p99": pytest.approx(0.2), "p50": 0.05}


def test_knobs_keep_their_order_and_lists_equal_tuples():
    frontier = Frontier([Point([2, 1], 1, 1), Point(7, 1, 1)])
    result = frontier.combine([Point((2, 1), 3, 1), Point(5, 1, 1)])
    assert [point.knob for point in result] == [(2, 1), 7, 5]
    assert result.at((2, 1)).time == 2

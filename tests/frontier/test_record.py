"""Frontiers as JSON."""

from __future__ import annotations

import json
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frontier.strategies import frontiers, joules, seconds, settings_of_a_knob

from zeus.errors import FrontierError
from zeus.frontier import Frontier, Point


@given(
    st.lists(st.builds(Point, settings_of_a_knob, seconds, joules), min_size=1, max_size=4),
    st.text(max_size=20),
    st.one_of(st.none(), st.floats(1, 1e4)),
)
def test_round_trip_with_any_knob(points, work, watts):
    frontier = Frontier(points, work, knob_name="plan", knob_unit="W", max_power_per_gpu=watts)
    assert Frontier.from_json(frontier.to_json()) == frontier
    assert Frontier.from_json(frontier.to_json(indent=2).encode()) == frontier


@given(frontiers)
def test_round_trip_of_everything_else(frontier):
    assert Frontier.from_dict(json.loads(json.dumps(frontier.to_dict()))) == frontier


def test_what_is_optional_may_be_left_out():
    text = (
        '{"format": "zeus.frontier", "version": 1, "points": [{"knob": 1, "time": 2, "energy": 3}]}'
    )
    assert Frontier.from_json(text) == Frontier([Point(1, 2, 3)])


def record(**changes):
    content = Frontier([Point(250, 10, 1000), Point(150, 12, 800)], "work").to_dict()
    return json.dumps(content | changes)


def with_point(**changes):
    second = {"knob": 150, "time": 12, "energy": 800} | changes
    return record(points=[{"knob": 250, "time": 10, "energy": 1000}, second])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", r"a frontier's record must be a mapping, but got \[\]"),
        ("{}", "`format` must be 'zeus.frontier', but got None"),
        (record(format="other"), "`format` must be 'zeus.frontier', but got 'other'"),
        (record(version=2), "version 2 was written by a newer Zeus; this one reads up to 1"),
        (record(version="1"), "`version` must be a whole number from 1 on, but got '1'"),
        (record(version=0), "`version` must be a whole number from 1 on, but got 0"),
        (record(wrok="typo"), "the record has `wrok`, which is not one of"),
        (record(points=None), "`points` must be a list, but got None"),
        (record(points=[]), "at least one point"),
        (record(points=[3]), r"points\[0\] must be a mapping, but got 3"),
        (record(max_power=-1), "`max_power > 0` must hold, but got max_power=-1"),
        (record(work=3), "`work` must be a string"),
        (with_point(time=0), r"points\[1\]: `time > 0` must hold, but got time=0 \(knob=150\)"),
        (with_point(energy="x"), r"points\[1\]: `energy` must be a real number"),
        (with_point(latencies=[1]), r"points\[1\]: `latencies` must map"),
        (with_point(power=3), r"points\[1\] has `power`, which is not one of"),
        (record(points=[{"knob": 1}]), r"points\[0\] lacks `time`, `energy`"),
        (with_point(time=float("nan")), "not JSON: NaN is not a JSON number"),
    ],
)
def test_a_bad_record_is_refused_with_the_place(text, rule):
    with pytest.raises(FrontierError, match=rule):
        Frontier.from_json(text)


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize("knob", [Colour.RED, frozenset({1}), (1, b"x")])
def test_a_knob_without_a_form_in_json_is_named(knob):
    frontier = Frontier([Point(1, 1, 1), Point(knob, 1, 1)])
    with pytest.raises(FrontierError, match=r"points\[1\]: a knob of type .* cannot be written"):
        frontier.to_json()


def test_json_names_settings_by_text():
    with pytest.raises(FrontierError, match=r"points\[0\]: names in JSON must be strings, but got"):
        Frontier([Point({1: 2}, 1, 1)]).to_json()

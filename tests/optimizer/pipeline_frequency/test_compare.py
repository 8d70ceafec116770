"""Comparing with a frontier that somebody else states."""

from __future__ import annotations

import math

import pytest

from zeus.errors import StageProfileError
from zeus.frontier import Frontier, Point
from zeus.optimizer.pipeline_frequency._compare import compare, read_frontier

OURS = Frontier([Point("fast", 1.0, 100.0), Point("middle", 2.0, 60.0), Point("slow", 3.0, 50.0)])


def test_energy_at_the_same_time():
    theirs = [(0.9, 200.0), (1.0, 100.0), (1.9, 80.0), (2.0, 80.0), (9.0, 100.0)]
    found = compare(OURS, theirs)
    assert found.unreachable == 1
    assert found.ratios == (1.0, 1.25, 0.75, 0.5)
    assert found.mean == pytest.approx(0.875)


def test_nothing_in_reach():
    found = compare(OURS, [(0.5, 1.0)])
    assert found.ratios == ()
    assert math.isnan(found.mean)


def test_reading(tmp_path):
    path = tmp_path / "theirs.csv"
    path.write_text("time,energy\n3.4,57\n\n3.3,58.5\n")
    assert read_frontier(path) == [(3.4, 57.0), (3.3, 58.5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,joules\n1,1\n", ":1: the heading must name time, energy"),
        ("time,energy\n1,1\n0,1\n", ":3: `time > 0` must hold, but got '0'"),
        ("time,energy\n1,much\n", ":2: `energy` must be a number, but got 'much'"),
        ("time,energy\n1\n", ":2: a row has as many values"),
        ("time,energy\n", "a frontier has a heading and rows"),
    ],
)
def test_mistakes_are_told_with_the_line(tmp_path, text, said):
    path = tmp_path / "theirs.csv"
    path.write_text(text)
    with pytest.raises(StageProfileError) as raised:
        read_frontier(path)
    assert said in str(raised.value)

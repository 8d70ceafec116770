"""Points over time in a bounded number."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest

from zeus._thinning import bounded


class Point(NamedTuple):
    begin: float
    end: float
    number: int = 1


def joined(one: Point, other: Point) -> Point:
    return Point(one.begin, max(one.end, other.end), one.number + other.number)


def test_few_points_stay_as_they_are():
    points = [Point(float(n), n + 1.0) for n in range(9)]
    assert bounded(points, 10, joined) == points


def test_the_older_a_point_the_longer_it_lasts_and_nothing_is_lost():
    points: list[Point] = []
    for number in range(5_000):
        points = bounded([*points, Point(5.0 * number, 5.0 * number + 5)], 200, joined)
    assert sum(each.number for each in points) == 5_000
    assert len(points) < 200
    assert points[-1].number == 1
    lengths = [each.end - each.begin for each in points]
    assert lengths[0] > 10 * lengths[-10]
    assert all(one.end == other.begin for one, other in pairwise(points))


@pytest.mark.parametrize(
    "points",
    [
        [Point(7.0, 7.0)] * 50,
        [Point(0.0, 7.0)] * 50,  # all end at the same time, so none has an age
        [Point(50.0 - n, 51.0 - n) for n in range(50)],  # backward
        [Point(0.0, 1e11 if n % 2 else 1.0) for n in range(51)],
    ],
)
def test_it_ends_whatever_the_times_are(points):
    found = bounded(points, 10, joined)
    assert len(found) < 10
    assert sum(each.number for each in found) == len(points)

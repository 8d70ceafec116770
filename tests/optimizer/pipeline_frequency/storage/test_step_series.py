"""Step time and energy over time: bounded, and thinned out without a loss of steps."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

from zeus.optimizer.pipeline_frequency.job._messages import StepSums
from zeus.optimizer.pipeline_frequency.storage._step_series import MAX_POINTS, StepSeries


def sums(steps: int, seconds: float, joules: float | None) -> StepSums:
    total = seconds * steps
    known = 0 if joules is None else steps
    return StepSums(steps, total, seconds * total, total, known, known * (joules or 0.0))


def test_ranks_that_report_within_a_span_are_one_point():
    series = StepSeries()
    for second in range(10):
        for rank, joules in ((0, 300.0), (1, 200.0)):
            # One rank reports a step later than the other, and counts no less for it.
            if rank == 0 or second:
                series.add(rank, 3, sums(1, 1.0 + 0.1 * rank, joules), 1000.0 + second)
    (point,) = series.points()
    assert (point.begin, point.end, point.version, point.ranks) == (1000.0, 1009.0, 3, 2)
    assert point.energy == pytest.approx(500.0)
    assert point.time == pytest.approx((10 * 1.0 + 9 * 1.1) / 19)
    assert point.steps == pytest.approx(9.5)


def test_another_plan_begins_another_point_and_so_does_time():
    series = StepSeries()
    for at, version in ((0.0, 1), (5.0, 1), (6.0, 2), (7.0, 2), (50.0, 2)):
        series.add(0, version, sums(5, 1.0, 100.0), at)
    found = [(each.begin, each.end, each.version) for each in series.points()]
    assert found == [(0.0, 5.0, 1), (6.0, 7.0, 2), (50.0, 50.0, 2)]


def test_long_steps_are_not_cut_into_points_of_some_ranks():
    series = StepSeries()
    for number in range(12):
        for rank in range(4):
            series.add(rank, 1, sums(1, 60.0, 1e4), 60.0 * number + 12.0 * rank)
    assert {each.ranks for each in series.points()} == {4}
    assert [each.energy for each in series.points()] == pytest.approx([4e4] * 4)


def test_energies_of_some_ranks_are_not_shown_as_those_of_all():
    series = StepSeries()
    series.add(0, 1, sums(5, 1.0, 100.0), 0.0)
    series.add(1, 1, sums(5, 1.0, 100.0), 1.0)
    series.add(0, 1, sums(5, 1.0, 100.0), 100.0)
    assert [each.energy for each in series.points()] == [pytest.approx(200.0), None]


def test_days_of_steps_stay_few_points_and_lose_no_step():
    series = StepSeries()
    days, every = 30, 25.0
    count = int(days * 86400 / every)
    for number in range(count):
        joules = 100.0 if number < count // 2 else 80.0
        series.add(0, 1 + 2 * number // count, sums(10, 2.5, joules), number * every)
    found = series.points()
    assert 100 < len(found) <= MAX_POINTS
    assert math.fsum(each.steps for each in found) == pytest.approx(10 * count)
    assert all(one.end <= other.begin for one, other in pairwise(found))
    total = math.fsum(each.steps * (each.energy or 0.0) for each in found)
    assert total == pytest.approx(10 * count * 90.0, rel=1e-3)
    # The latest ones are as they came.
    assert found[-2].end - found[-2].begin == 0.0
    longest = max(each.end - each.begin for each in found)
    assert 3600 < longest <= days * 86400 / 16, "still a curve over all days"
    again = StepSeries.from_list(json.loads(json.dumps(series.to_list())))
    assert again.points() == found

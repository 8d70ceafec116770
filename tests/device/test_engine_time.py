from __future__ import annotations

import pytest

from zeus.device._base import ProcessUsage
from zeus.device._engine_time import EngineTime


def test_the_first_reading_has_nothing_to_compare_with():
    assert EngineTime().usage(3.0, 5.0, {1: 100.0}) == ProcessUsage(5.0, 5.0)


def test_intervals_begin_at_readings():
    time = EngineTime()
    for second in range(4):
        time.usage(0.0, float(second), {1: 0.5 * second})
    used = time.usage(2.5, 4.0, {1: 2.0, 2: 0.4})
    assert (used.begin, used.end) == (2.0, 4.0)
    assert used.shares == {1: pytest.approx(0.5), 2: pytest.approx(0.2)}


def test_processes_that_stood_still_or_ended_are_left_out():
    time = EngineTime()
    time.usage(0.0, 0.0, {1: 1.0, 2: 1.0, 3: 9.0})
    used = time.usage(0.0, 1.0, {1: 1.0, 3: 0.25})
    assert used.shares == {3: pytest.approx(0.25)}  # another process with the same number


def test_no_share_is_more_than_all():
    time = EngineTime()
    time.usage(0.0, 0.0, {1: 0.0})
    assert time.usage(0.0, 1.0, {1: 1.01}).shares == {1: 1.0}

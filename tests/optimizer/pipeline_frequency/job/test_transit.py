"""How long messages take, from the instants of two clocks that do not agree."""

from __future__ import annotations

import pytest

from zeus.optimizer.pipeline_frequency._exchanges import Dependency
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes
from zeus.optimizer.pipeline_frequency.job._transit import message_times

# Two microbatches of two places: the second needs forwards 0 and 1, the first backwards 2 and 3.
NEEDS = [
    [Dependency(2, 1, 1), Dependency(3, 1, 3)],
    [Dependency(0, 0, 0), Dependency(2, 0, 1)],
]
# Forwards take 1 s, backwards 2 s, a message 0.25 s.
FIRST = ((0.0, 1.0, 4.5, 7.5), (1.0, 2.0, 6.5, 9.5))
SECOND = ((1.25, 2.25, 4.25, 5.25), (2.25, 4.25, 5.25, 7.25))


def passage(step, instants, ahead=0.0):
    begins, ends = instants
    return StepTimes(step, tuple(b + ahead for b in begins), tuple(e + ahead for e in ends))


@pytest.mark.parametrize("ahead", [0.0, 1000.0, -1000.0])
def test_clocks_need_not_agree(ahead):
    places = [[passage(5, FIRST)], [passage(5, SECOND, ahead)]]
    assert message_times(NEEDS, {0: places}) == {(0, 1): pytest.approx(0.25)}


def taking(message):
    """Both places in a step whose messages take this long."""
    more = message - 0.25
    first = ((0.0, 1.0, 4.5 + 2 * more, 7.5 + 2 * more), (1.0, 2.0, 6.5 + 2 * more, 9.5 + 2 * more))
    begins, ends = SECOND
    return first, (tuple(b + more for b in begins), tuple(e + more for e in ends))


def steps(*messages):
    taken = [taking(message) for message in messages]
    return [
        [passage(5 + number, both[place]) for number, both in enumerate(taken)]
        for place in range(2)
    ]


def test_the_median_of_steps_counts_and_the_slowest_pipeline():
    places = steps(0.25, 0.45, 0.30, 0.31, 0.29)
    assert message_times(NEEDS, {0: places}) == {(0, 1): pytest.approx(0.30)}
    quick, slow = steps(0.25, 0.26, 0.27), steps(0.5)
    assert message_times(NEEDS, {0: places, 1: quick}) == {(0, 1): pytest.approx(0.30)}
    assert message_times(NEEDS, {0: places, 1: quick, 2: slow}) == {(0, 1): pytest.approx(0.5)}


def test_what_is_not_known_both_ways_in_one_step_is_not_known():
    places = [[passage(5, FIRST)], [passage(6, SECOND)]]
    assert message_times(NEEDS, {0: places}) == {}
    assert message_times([[], NEEDS[1]], {0: [[passage(5, FIRST)], [passage(5, SECOND)]]}) == {}
    assert message_times(NEEDS, {0: [[], []]}) == {}


def test_no_time_at_all_is_no_message():
    at_once = StepTimes(1, (0.0,) * 4, (0.0,) * 4)
    assert message_times(NEEDS, {0: [[at_once], [at_once]]}) == {}

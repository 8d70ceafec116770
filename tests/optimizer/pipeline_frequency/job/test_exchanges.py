"""Graphs in which messages block both ranks, and how well graphs predict steps."""

from __future__ import annotations

import pytest

from zeus.optimizer.pipeline_frequency import Option, Pipeline
from zeus.optimizer.pipeline_frequency.job._exchanges import blocking_order, misfit
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes
from zeus.optimizer.pipeline_frequency.job._transit import Dependency

# 1F1B of two places and two microbatches: F0 F1 B0 B1 and F0 B0 F1 B1.
NEEDS = [
    [Dependency(2, 1, 1), Dependency(3, 1, 3)],
    [Dependency(0, 0, 0), Dependency(2, 0, 1)],
]


@pytest.mark.parametrize("in_turn", [True, False])
def test_both_places_wait_for_a_message_and_opposite_ones_are_one(in_turn):
    order = blocking_order(NEEDS, [4, 4], in_turn=in_turn)
    assert order is not None
    first = frozenset({(0, 1), (1, 0)})  # F0 is sent before F1 of place 0 begins
    merged = frozenset({(0, 2), (1, 2)})  # F1 is sent, and the gradient of B0 received
    assert {first, merged, frozenset({(1, 4), (0, 3)})} == {
        each for each in order if isinstance(each, frozenset)
    }
    assert order[first] == [(0, 0)]
    assert set(order[0, 1]) == {(0, 0), first}
    assert set(order[merged]) == {(0, 1), (1, 1)}
    assert merged in order[0, 2]
    assert merged in order[1, 2]
    places = {each: number for number, each in enumerate(order)}
    assert all(places[other] < places[each] for each, waits in order.items() for other in waits)


def test_a_rank_that_sends_first_receives_later():
    # Three places in a row, two forwards each: the middle one sends its first before its second.
    needs = [
        [],
        [Dependency(0, 0, 0), Dependency(1, 0, 1)],
        [Dependency(0, 1, 0), Dependency(1, 1, 1)],
    ]
    sent, received = frozenset({(1, 1), (2, 0)}), frozenset({(0, 2), (1, 1)})
    in_turn = blocking_order(needs, [2, 2, 2], in_turn=True)
    at_once = blocking_order(needs, [2, 2, 2], in_turn=False)
    assert in_turn is not None
    assert at_once is not None
    assert sent in in_turn[received]
    assert sent not in at_once[received]


def test_ranks_that_would_wait_for_each_other_forever():
    # Both send to the other, and need that only later.
    needs = [[Dependency(2, 1, 0)], [Dependency(2, 0, 0)]]
    assert blocking_order(needs, [3, 3], in_turn=True) is None
    assert blocking_order(needs, [3, 3], in_turn=False) is None


def graph(message: float) -> Pipeline:
    pipeline = Pipeline(2, 0.0)
    first = pipeline.add("forward", [Option(1, 9.0, 1.0)], device=0)
    there = pipeline.add_fixed("communication", message, after=[first])
    second = pipeline.add("forward", [Option(1, 9.0, 1.0)], device=1, after=[there])
    last = pipeline.add("backward", [Option(1, 9.0, 1.0)], device=1, after=[second])
    back = pipeline.add_fixed("communication", message, after=[last])
    pipeline.add("backward", [Option(1, 9.0, 1.0)], device=0, after=[back])
    return pipeline


def test_a_graph_is_compared_with_the_times_of_the_step_itself():
    # Computations of 1, 2, 3 and 4 s, messages of 0.5 s; the second clock is ahead.
    here = StepTimes(7, (0.0, 7.0), (1.0, 11.0))
    there = StepTimes(7, (101.5, 103.5), (103.5, 106.5))
    assert misfit(graph(0.5), {0: [[here], [there]]}) == pytest.approx(0.0)
    assert misfit(graph(0.0), {0: [[here], [there]]}) == pytest.approx(1.0 / 16.0)


def test_without_a_step_that_all_places_saw_nothing_is_known():
    here, there = StepTimes(7, (0.0, 7.0), (1.0, 11.0)), StepTimes(8, (1.5, 3.5), (3.5, 6.5))
    assert misfit(graph(0.5), {0: [[here], [there]]}) is None
    assert misfit(graph(0.5), {0: [[here], []]}) is None
    assert misfit(graph(0.5), {}) is None

"""Graphs in which messages block both ranks."""

from __future__ import annotations

import pytest
from tests.optimizer.pipeline_frequency.running.exchanges import merged_program

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency import Option, Profile, build
from zeus.optimizer.pipeline_frequency._exchanges import Dependency, blocking_order
from zeus.optimizer.pipeline_frequency._schedules import Step

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


TIMES = {
    (stage, instruction): seconds * load
    for stage, load in enumerate((1.0, 1.3, 0.9, 1.1))
    for instruction, seconds in (("forward", 1.0), ("backward", 2.0))
}
PROFILE = Profile({key: [Option(1000, time, time)] for key, time in TIMES.items()})


@pytest.mark.parametrize("links", [(0.0, 0.0, 0.0), (0.1, 2.0, 0.2), (3.0, 0.5, 1.0)])
@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_the_time_is_that_of_an_engine_that_synchronizes(links, microbatches):
    # One clock per stage: an exchange sets both to the later one, plus the time of the message.
    programs = [merged_program(rank, 4, microbatches) for rank in range(4)]
    items = [next(program, None) for program in programs]
    clocks = [0.0] * 4
    while any(item is not None for item in items):
        for rank, item in enumerate(items):
            if isinstance(item, Step):
                clocks[rank] += TIMES[rank, item.instruction]
                items[rank] = next(programs[rank], None)
            elif item == rank and items[rank + 1] == item:
                clocks[rank] = clocks[rank + 1] = max(clocks[rank : rank + 2]) + links[item]
                items[rank : rank + 2] = [next(each, None) for each in programs[rank : rank + 2]]
    blocking = build(
        PROFILE, "1f1b", microbatches, 0.0, communication=links, blocking_messages=True
    )
    assert blocking.at_highest_frequency().time == pytest.approx(max(clocks))
    free = build(PROFILE, "1f1b", microbatches, 0.0, communication=links)
    assert free.at_highest_frequency().time <= max(clocks) * (1 + 1e-9)


def test_an_exchange_takes_as_long_as_its_slower_direction():
    pipeline = build(PROFILE, "1f1b", 8, 0.0, communication=[(1.0, 2.0)], blocking_messages=True)
    sent = [op for op in pipeline.operations if op.instruction == "communication"]
    assert {op.options[0].time for op in sent} == {1.0, 2.0}


def test_data_is_loaded_before_the_first_stage():
    loads = build(PROFILE, "1f1b", 3, 0.0, data_loading=0.5, blocking_messages=True)
    assert sum(op.instruction == "data_loading" for op in loads.operations) == 3


def test_split_backwards_can_be_followed():
    pipeline = build(PROFILE, "zero-bubble", 4, 0.0, communication=0.1, blocking_messages=True)
    free = build(PROFILE, "zero-bubble", 4, 0.0, communication=0.1)
    assert pipeline.at_highest_frequency().time >= free.at_highest_frequency().time - 1e-9


@pytest.mark.parametrize("schedule", ["interleaved", "zbv"])
def test_several_stages_per_rank_need_messages_that_do_not_block(schedule):
    with pytest.raises(PipelineError, match="cannot be followed if messages block"):
        build(PROFILE, schedule, 4, 0.0, chunks=2, blocking_messages=True)


def test_ranks_must_not_wait_for_each_other_forever():
    def crossing(shape):
        # Both ranks send at once what the other needs only later.
        here = [Step("forward", 0, 0), Step("forward", 0, 1), Step("backward", 0, 0)]
        there = [Step("forward", 1, 0), Step("backward", 1, 0), Step("forward", 1, 1)]
        return [[*here, Step("backward", 0, 1)], [*there[:2], there[2], Step("backward", 1, 1)]][
            : shape.devices
        ]

    def backward_first(shape):
        order = crossing(shape)
        return [order[0], order[1][1::-1] + order[1][2:]]

    two = Profile({key: PROFILE[key] for key in PROFILE if key[0] < 2})
    assert build(two, crossing, 2, 0.0, blocking_messages=True).operations
    with pytest.raises(PipelineError, match="rank 1 waits forever before"):
        build(two, backward_first, 2, 0.0, blocking_messages=True)

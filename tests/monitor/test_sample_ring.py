"""The memory that is shared with the helper."""

from __future__ import annotations

import os

import pytest
from tests.present import present

from zeus.errors import CapabilityError, Reason
from zeus.monitor._sample_ring import SampleRing
from zeus.monitor._samples import Poll, Refresh, SensorStatus


class Taken:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.counter: list[Refresh] = []
        self.power: list[Refresh] = []
        self.polls: list[Poll] = []
        self.statuses: list[SensorStatus] = []
        self.take_counter = self.counter.append
        self.take_power = self.power.append
        self.take_poll = self.polls.append
        self.take_status = self.statuses.append


@pytest.fixture
def rings():
    """Both sides of a ring of two GPUs."""
    ring = SampleRing(2)
    other = SampleRing(2, os.dup(ring.descriptor))
    yield ring, other
    ring.close_descriptor()
    other.close_descriptor()


@pytest.mark.parametrize("character", ["x", "ü", "\0", "🔥"])
def test_the_longest_notes_arrive_and_touch_no_sample(rings, character: str) -> None:
    ring, other = rings
    refresh = Refresh(1.0, 2.0, 3.0, 4.0, 5.0)
    for gpu in (0, 1):
        ring.writer(gpu).take_power(refresh)
    long = character * 5_000
    trouble = CapabilityError(Reason.LOST, long, long)
    ring.writer(0).take_status(SensorStatus(counter_note=long, trouble=trouble))
    sinks = [Taken(), Taken()]
    for gpu, sink in enumerate(sinks):
        other.reader(gpu, sink).forward()
        assert sink.power == [refresh]
    (status,) = sinks[0].statuses
    assert sinks[1].statuses == []
    assert long.startswith(status.counter_note)
    assert len(status.counter_note) >= 100
    assert long.startswith(present(status.trouble).detail)


def test_what_is_read_is_what_was_written_and_each_once(rings) -> None:
    ring, other = rings
    writer, sink = ring.writer(1), Taken()
    reader = other.reader(1, sink)
    for number in range(10):
        writer.take_counter(Refresh(number, number, number, number, 100.0 + number))
        writer.take_power(Refresh(number, number, number, number, 200.0 + number))
        writer.take_poll(Poll(number + 0.5, 1.0, 2.0))
        reader.forward()
    assert [refresh.value for refresh in sink.counter] == [100.0 + n for n in range(10)]
    assert [refresh.value for refresh in sink.power] == [200.0 + n for n in range(10)]
    assert sink.polls == [Poll(number + 0.5, 1.0, 2.0) for number in range(10)]


def test_who_comes_too_late_gets_the_latest_whole(rings) -> None:
    ring, other = rings
    writer, sink = ring.writer(0), Taken()
    for number in range(10_000):
        writer.take_power(Refresh(number, number, number, number, float(number)))
    other.reader(0, sink).forward()
    values = [refresh.value for refresh in sink.power]
    assert len(values) > 1000
    assert values == list(map(float, range(10_000 - len(values), 10_000)))

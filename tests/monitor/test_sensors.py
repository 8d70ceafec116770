"""How one sensor is read: when, what is kept of it, and what becomes of one that fails."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.clock import VirtualClock
from zeus.errors import CapabilityError, Reason
from zeus.monitor._sensors import CounterChannel, Pace, SensorChannel
from zeus.monitor._timeline import Timeline


class Sensor:
    """Shows a function of time; fails where it is told to."""

    def __init__(self, clock, value):
        self.clock, self.value = clock, value
        self.error = None
        self.reads = []

    def __call__(self):
        self.reads.append(self.clock.now())
        if self.error is not None:
            raise self.error
        return self.value(self.clock.now())


def channel_of(value, pace=None, kind=SensorChannel):
    """A channel after its first poll, its sensor and clock."""
    clock = VirtualClock()
    sensor = Sensor(clock, value)
    timeline = Timeline(1000, level=True) if kind is CounterChannel else Timeline(1000)
    channel = kind(sensor, clock, pace or Pace(0.1, fixed=True), timeline)
    channel.sample()
    return channel, sensor, clock


def poll_until(channel, clock, end):
    """Poll whenever it is due, as the sampler does."""
    while channel.due <= end:
        clock.sleep(max(channel.due - clock.now(), 0.0))
        channel.poll()
    clock.sleep(end - clock.now())


# --- pace -----------------------------------------------------------------------------------------


def test_backing_off_stretches_a_chosen_period_but_not_one_asked_for():
    assert Pace(0.1).pause(3.0) == pytest.approx(0.3)
    assert Pace(0.1, fixed=True).pause(3.0) == pytest.approx(0.1)
    assert Pace(0.001).period == 0.01
    assert Pace(0.001, fixed=True).period == 0.001


def observed(pace, value):
    """Poll at its own pace; the instants."""
    instants = [0.0]
    while instants[-1] < 5.0:
        pace.observe(instants[-1], value(instants[-1]))
        instants.append(instants[-1] + pace.pause(1.0))
    return instants


@given(st.floats(0.02, 0.12))
def test_a_period_is_learned_from_how_often_the_value_changes(tick):
    pace = Pace(1.0, learns=True)
    observed(pace, lambda now: math.floor(now / tick))
    assert pace.period == pytest.approx(max(tick / 2, 0.01), abs=0.0051)  # polls are 10 ms apart


@pytest.mark.parametrize("value", [lambda now: 60.0, lambda now: now > 0.1], ids=["never", "once"])
def test_a_value_that_hardly_changes_shows_no_period(value):
    pace = Pace(1.0, learns=True)
    instants = observed(pace, value)
    assert pace.period == 1.0
    assert sum(instant <= 1.0 for instant in instants) == pytest.approx(51, abs=1)


def test_who_asked_for_a_period_gets_it():
    pace = Pace(0.25, fixed=True, learns=True)
    instants = observed(pace, lambda now: now)
    assert {later - earlier for earlier, later in pairwise(instants)} == {0.25}


# --- sensors --------------------------------------------------------------------------------------


def test_values_are_kept_at_the_instants_of_their_polls():
    channel, _, clock = channel_of(lambda now: 100.0 + now)
    poll_until(channel, clock, 1.0)
    samples = channel.timeline.samples(-math.inf, math.inf)
    assert [instant for instant, _ in samples] == pytest.approx([n / 10 for n in range(11)])
    assert [value for _, value in samples] == pytest.approx([100 + n / 10 for n in range(11)])
    assert channel.knows(math.inf)


def test_a_poll_for_others_reads_only_what_is_about_due():
    channel, sensor, clock = channel_of(lambda now: 1.0)
    for instant in (0.05, 0.09, 0.0975):
        clock.sleep(instant - clock.now())
        channel.poll()
    assert sensor.reads == [0.0]
    clock.sleep(0.099 - clock.now())
    channel.poll()
    assert sensor.reads == [0.0, pytest.approx(0.099)]
    assert channel.due == pytest.approx(0.199)


def test_a_sensor_that_fails_is_unknown_from_then_on_and_tried_once_a_second():
    channel, sensor, clock = channel_of(lambda now: 100.0)
    poll_until(channel, clock, 1.0)
    sensor.error = CapabilityError(Reason.LOST, "gone")
    sensor.reads.clear()
    poll_until(channel, clock, 4.0)
    assert channel.trouble is sensor.error
    assert len(sensor.reads) == 3
    assert channel.knows(0.95)
    assert not channel.knows(1.5)
    sensor.error = None
    poll_until(channel, clock, 6.0)
    assert channel.trouble is None
    assert channel.knows(5.5)


def test_one_implausible_value_among_good_ones_is_left_out():
    channel, sensor, clock = channel_of(lambda now: 100.0)
    poll_until(channel, clock, 0.5)
    sensor.error = CapabilityError(Reason.IMPLAUSIBLE, "40 kW")
    clock.sleep(channel.due - clock.now())
    channel.poll()
    sensor.error = None
    poll_until(channel, clock, 1.0)
    assert channel.trouble is None
    assert len(channel.timeline) == 10


def test_an_implausible_value_at_first_is_trouble():
    clock = VirtualClock()
    sensor = Sensor(clock, lambda now: 1.0)
    sensor.error = CapabilityError(Reason.IMPLAUSIBLE, "40 kW")
    channel = SensorChannel(sensor, clock, Pace(0.1), Timeline(10))
    channel.sample()
    assert channel.trouble is sensor.error
    assert not channel.knows(0.0)


def test_after_the_last_poll_nothing_is_read():
    channel, sensor, clock = channel_of(lambda now: now)
    clock.sleep(0.05)
    channel.last_poll()
    clock.sleep(10.0)
    channel.poll()
    assert sensor.reads == [0.0, 0.05]
    assert channel.timeline.last() == (0.05, 0.05)


# --- counters -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.0, 500.0)), min_size=2, max_size=20))
def test_the_integral_of_a_counters_timeline_is_the_counter(steps):
    """However power changes between polls."""
    total = 0.0
    channel, _, clock = channel_of(lambda now: total, Pace(0.0, fixed=True), CounterChannel)
    for seconds, watts in steps:
        clock.sleep(seconds)
        total += watts * seconds
        channel.poll()
    assert channel.timeline.integral(0.0, clock.now()) == pytest.approx(total, abs=1e-6)


def test_joules_of_a_very_short_time_count_in_the_next():
    channel, _, clock = channel_of(lambda now: 40.0 * now, Pace(0.0, fixed=True), CounterChannel)
    clock.sleep(0.001)
    channel.poll()
    assert len(channel.timeline) == 0
    clock.sleep(0.009)
    channel.poll()
    assert channel.timeline.samples(-math.inf, math.inf) == [
        (0.0, pytest.approx(40.0)),
        (pytest.approx(0.01), pytest.approx(40.0)),
    ]


def test_a_counter_that_was_reset_costs_one_interval():
    offset = 0.0
    channel, _, clock = channel_of(lambda now: 40.0 * now - offset, kind=CounterChannel)
    poll_until(channel, clock, 1.0)
    offset = 40.0
    poll_until(channel, clock, 2.0)
    watts = [value for _, value in channel.timeline.samples(-math.inf, math.inf)]
    assert watts == pytest.approx([40.0] * len(watts))

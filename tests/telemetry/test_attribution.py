"""Division of a GPU's energy between processes, from given readings and usage."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus.telemetry._attribution import NO_SAMPLE, GpuAttribution
from zeus.telemetry._load_powers import WAITING, LoadPowers


class Feed:
    """Feeds exact readings once per interval, and adds up what is divided."""

    def __init__(self, idle_power: float | None = None) -> None:
        self.attribution = GpuAttribution(idle_power)
        self.time = 0.0
        self.joules = 1e6
        self.processes: dict[int, float] = {}
        self.idle = 0.0
        self.attribution.add_energy(self.time, self.joules)

    def interval(self, seconds, watts, shares, resident=()) -> None:
        self.time += seconds
        self.joules += watts * seconds
        self.attribution.add_usage(self.time, self.time, shares, resident)
        self.attribution.add_energy(self.time, self.joules)
        for divided in self.attribution.divide():
            self.idle += divided.idle
            for pid, joules in divided.processes.items():
                assert joules >= 0
                self.processes[pid] = self.processes.get(pid, 0.0) + joules

    def total(self) -> float:
        return sum(self.processes.values()) + self.idle


def test_with_nothing_on_it_all_is_idle_and_idle_power_is_learned():
    feed = Feed()
    for watts in (50, 60, 50, 60):
        feed.interval(5, watts, {})
    assert feed.idle == pytest.approx(1100)
    assert feed.processes == {}
    assert feed.attribution.idle_power == pytest.approx(55, abs=3)


def test_power_is_still_high_right_after_a_process_ended():
    feed = Feed()
    feed.interval(10, 50, {})
    feed.interval(10, 300, {1: 1.0})
    feed.interval(2, 150, {})
    assert feed.attribution.idle_power == pytest.approx(50)
    feed.interval(2, 50, {})
    assert feed.idle == pytest.approx(500 + 300 + 100)


def test_one_process_has_all_but_idle_power_while_it_waits():
    feed = Feed()
    feed.interval(10, 50, {})
    feed.interval(10, 200, {1: 0.6})
    assert feed.processes == {1: pytest.approx(2000 - 0.4 * 10 * 50)}


def test_resident_processes_share_what_they_cost_while_none_runs():
    feed = Feed(idle_power=50.0)
    feed.interval(10, 80, {}, resident=[1, 2])
    assert feed.processes == {1: pytest.approx(150), 2: pytest.approx(150)}
    assert feed.idle == pytest.approx(500)


def test_idle_power_that_is_not_known_is_that_of_waiting():
    feed = Feed()
    for share in (0.2, 0.9, 0.4, 0.6) * 10:
        feed.interval(1, 80 + 320 * share, {1: share})
    assert feed.attribution.idle_power is None
    true = sum(400 * share for share in (0.2, 0.9, 0.4, 0.6) * 10)
    assert feed.processes[1] == pytest.approx(true, rel=0.03)


def test_processes_at_once_are_given_their_parts_of_the_time():
    feed = Feed(idle_power=50.0)
    feed.interval(10, 400, {1: 0.9, 2: 0.9})
    assert feed.processes == {1: pytest.approx(2000), 2: pytest.approx(2000)}
    assert feed.idle == 0


@pytest.mark.parametrize("drawn", [(400.0, 150.0), (150.0, 400.0), (300.0, 280.0)])
def test_watts_of_processes_are_learned_where_shares_vary(drawn):
    chance, feed = random.Random(3), Feed(idle_power=50.0)
    true = [0.0, 0.0]
    for _ in range(600):
        first = chance.uniform(0.3, 0.7)
        shares = first, 0.9 - first
        for which in (0, 1):
            true[which] += 0.5 * shares[which] * drawn[which]
        watts = sum(s * w for s, w in zip(shares, drawn, strict=True)) + 0.1 * 50
        feed.interval(0.5, watts * chance.gauss(1, 0.01), {1: shares[0], 2: shares[1]})
    assert [feed.processes[1], feed.processes[2]] == pytest.approx(true, rel=0.02)


def test_what_was_divided_before_powers_were_known_is_corrected():
    feed = Feed(idle_power=50.0)
    for _ in range(60):
        feed.interval(0.5, 275, {1: 0.5, 2: 0.5}, [1, 2])  # nothing to learn from
    assert feed.processes[1] == pytest.approx(feed.processes[2])
    for _ in range(60):
        feed.interval(0.5, 400, {1: 1.0}, [1, 2])
        feed.interval(0.5, 150, {2: 1.0}, [1, 2])
    true = {1: 30 * 200 + 30 * 400, 2: 30 * 75 + 30 * 150}
    assert feed.processes == {pid: pytest.approx(joules, rel=0.02) for pid, joules in true.items()}
    assert feed.total() == pytest.approx(feed.joules - 1e6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.05, 30),
            st.floats(0, 800),
            st.dictionaries(st.integers(1, 4), st.floats(0, 1.2), max_size=4),
            st.sets(st.integers(1, 4)),
        ),
        min_size=1,
        max_size=60,
    ),
    st.none() | st.floats(1, 200),
)
def test_parts_always_add_up_to_the_counter(intervals, idle_power):
    feed = Feed(idle_power)
    for seconds, watts, shares, resident in intervals:
        feed.interval(seconds, watts, shares, resident)
    assert feed.total() == pytest.approx(feed.joules - 1e6, rel=1e-6, abs=1e-3)


# The rhythm of readings.


def test_usage_waits_for_energy_and_energy_between_readings_is_even():
    attribution = GpuAttribution(idle_power=10.0)
    attribution.add_energy(0.0, 0.0)
    attribution.add_usage(1.0, 0.5, {1: 1.0})
    assert attribution.divide() == []
    attribution.add_energy(1.0, 100.0)
    (divided,) = attribution.divide()
    assert (divided.begin, divided.end, divided.processes) == (0.0, 0.5, {1: 50.0})
    assert attribution.known_until == 0.5


def test_without_samples_nothing_ran():
    attribution = GpuAttribution()
    attribution.add_energy(0.0, 0.0)
    attribution.add_usage(1.0, 0.0, {})
    assert attribution.known_until == 0.0  # a sample may still come
    attribution.add_usage(4.0, 0.0, {})
    attribution.add_energy(4.0, 400.0)
    (divided,) = attribution.divide()
    assert divided.end == 4.0 - NO_SAMPLE
    assert divided.idle == pytest.approx(100 * divided.end)


def test_a_counter_that_begins_again():
    feed = Feed(idle_power=50.0)
    feed.interval(10, 300, {1: 1.0})
    feed.joules = 5.0
    feed.attribution.add_energy(feed.time + 1, 5.0)
    feed.time += 1
    feed.interval(10, 300, {1: 1.0})
    assert feed.processes[1] == pytest.approx(6000)


# Powers.


def test_powers_follow_a_process_that_does_something_else():
    powers = LoadPowers()
    for second in range(120):
        watts = 400.0 if second < 60 else 200.0
        powers.update(second, second + 1, {1: 1.0, WAITING: 0.0}, watts, 0.0)
        if second >= 70:
            assert powers.watts(1) == pytest.approx(200, rel=0.05)


def test_powers_of_processes_that_have_not_run_for_long_are_forgotten():
    powers = LoadPowers()
    powers.update(0.0, 1.0, {1: 1.0}, 300.0, 0.0)
    powers.update(3600.0, 3601.0, {2: 1.0}, 300.0, 0.0)
    assert powers.watts(1) is None
    assert powers.watts(2) == pytest.approx(300)
    assert powers.uncertainty(1) == 1.0

"""Energy of windows from looks at a counter and a power meter whose truth is known."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus.errors import CapabilityError, Reason
from zeus.monitor.looks import Look, Method, Senses
from zeus.monitor.track import EnergyTrack


class Truth:
    """Piecewise constant power, and a counter that ticks."""

    def __init__(self, changes, period=0.1, phase=0.037, gain=1.0):
        self.instants = [t for t, _ in changes]
        self.watts = [w for _, w in changes]
        self.sums = [0.0]
        for i in range(1, len(changes)):
            self.sums.append(
                self.sums[-1] + self.watts[i - 1] * (self.instants[i] - self.instants[i - 1])
            )
        self.period, self.phase, self.gain = period, phase, gain

    def at(self, t):
        i = bisect_right(self.instants, t) - 1
        return self.sums[i] + self.watts[i] * (t - self.instants[i])

    def power(self, t):
        return self.watts[bisect_right(self.instants, t) - 1]

    def stale_power(self, t):
        """What a meter shows that is refreshed at the counter's ticks only."""
        return self.power(self.phase + math.floor((t - self.phase) / self.period) * self.period)

    def energy(self, a, b):
        return self.at(b) - self.at(a)

    def counter(self, t):
        tick = self.phase + math.floor((t - self.phase) / self.period) * self.period
        return 1000 + self.gain * self.at(tick)


def feed(track, truth, begin, end, *, pause=0.0125, counter=True, power=True, stale=False, seed=0):
    read_power = truth.stale_power if stale else truth.power
    generator = random.Random(seed)
    t = begin
    while t < end:
        track.take(
            Look(
                t,
                t + 1e-5,
                t + 2e-5,
                truth.counter(t) if counter else None,
                read_power(t + 1.5e-5) if power else None,
            )
        )
        t += pause * generator.uniform(0.8, 1.2)


@given(
    watts=st.floats(20, 700),
    begin=st.floats(3.0, 3.5),
    length=st.floats(0.001, 5.0),
    phase=st.floats(0.0, 0.099),
)
@settings(max_examples=80, deadline=None)
def test_constant_power_is_exact_for_any_window_and_phase(watts, begin, length, phase):
    """Neither equal neighbours nor the parts before the first and after the last look are lost."""
    truth = Truth([(0.0, watts)], phase=phase)
    track = EnergyTrack()
    feed(track, truth, 0.5, 10.0)
    energy = track.energy(begin, begin + length)
    # Where in its bracket a tick lies is not known, so a little stays uncertain, and is said to.
    assert energy.joules == pytest.approx(watts * length, rel=0.01)
    assert abs(energy.joules - watts * length) <= energy.uncertainty + 0.003 * watts * length
    assert energy.joules > 0


@given(
    levels=st.lists(st.floats(30, 500), min_size=4, max_size=10),
    lengths=st.lists(st.floats(0.045, 0.7), min_size=10, max_size=10),
    phase=st.floats(0.0, 0.099),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_load_that_changes_at_window_edges(levels, lengths, phase, seed):
    """Windows back to back, each with its own load: the neighbours' load must not leak in."""
    edges = [3.0]
    for length in lengths[: len(levels)]:
        edges.append(edges[-1] + length)
    changes = [(0.0, 60.0), *zip(edges, levels, strict=False), (edges[-1], 60.0)]
    truth = Truth(changes, phase=phase)
    track = EnergyTrack()
    feed(track, truth, 0.5, edges[-1] + 1, seed=seed)
    for begin, end in pairwise(edges):
        energy, used = track.energy(begin, end), truth.energy(begin, end)
        # The worst of many examples: what is stated holds for 19 of 20.
        assert abs(energy.joules - used) <= 0.01 * used + 2 * energy.uncertainty
        assert energy.uncertainty < 0.1 * max(60.0, *levels)  # a tick, at the most


def test_load_that_changes_inside_a_long_window_is_counted():
    """Power jumps between looks; the counter does not miss it."""
    generator = random.Random(4)
    changes, t = [(0.0, 100.0)], 2.0
    while t < 40:
        changes.append((t, generator.choice([60.0, 400.0])))
        t += generator.uniform(0.003, 0.05)
    truth = Truth(changes)
    track = EnergyTrack()
    feed(track, truth, 0.5, 40.0)
    energy = track.energy(10.0, 20.0)
    assert energy.method is Method.COUNTER
    assert energy.joules == pytest.approx(truth.energy(10.0, 20.0), rel=0.003)
    assert abs(energy.joules - truth.energy(10.0, 20.0)) < energy.uncertainty


def test_uncertainty_holds_for_most_windows_under_wild_load():
    generator = random.Random(5)
    changes, t = [(0.0, 100.0)], 1.0
    while t < 60:
        changes.append((t, generator.uniform(60, 400)))
        t += generator.uniform(0.02, 0.3)
    truth = Truth(changes)
    track = EnergyTrack()
    feed(track, truth, 0.5, 60.0)
    outside = 0
    for _ in range(300):
        begin = generator.uniform(35, 50)
        end = begin + generator.uniform(0.03, 3.0)
        energy = track.energy(begin, end)
        outside += abs(energy.joules - truth.energy(begin, end)) > energy.uncertainty
    assert outside / 300 < 0.1


def test_a_window_between_two_looks_is_an_estimate_with_an_uncertainty():
    truth = Truth([(0.0, 100.0), (5.0, 300.0)])
    track = EnergyTrack()
    feed(track, truth, 0.5, 4.999, pause=0.05)
    feed(track, truth, 5.03, 6.0, pause=0.05)
    begin, end = 5.001, 5.02
    energy = track.energy(begin, end)
    assert energy.method is Method.ESTIMATED
    assert energy.joules > 0
    assert abs(energy.joules - truth.energy(begin, end)) <= energy.uncertainty


def test_without_counter_power_is_integrated_and_said_so():
    truth = Truth([(0.0, 250.0)])
    track = EnergyTrack()
    track.senses = Senses(counter=False, counter_note="no energy counter (unsupported)")
    feed(track, truth, 0.0, 5.0, counter=False)
    energy = track.energy(1.0, 4.0)
    assert energy.method is Method.INTEGRATED
    assert energy.joules == pytest.approx(750.0)
    assert "no energy counter" in energy.note
    assert "instantaneous power" in energy.note


def test_averaged_power_is_labelled():
    track = EnergyTrack()
    track.senses = Senses(counter=False, averaged=True, counter_note="no energy counter")
    feed(track, Truth([(0.0, 250.0)]), 0.0, 5.0, counter=False)
    assert "mean power over about a second" in track.energy(1.0, 4.0).note


def test_without_power_meter_the_counter_alone_is_used():
    truth = Truth([(0.0, 250.0)])
    track = EnergyTrack()
    track.senses = Senses(power=False)
    feed(track, truth, 0.0, 6.0, power=False)
    assert track.energy(1.0, 4.0).joules == pytest.approx(750.0, rel=0.005)
    assert track.energy(1.0, 1.05).joules == pytest.approx(12.5, rel=0.05)


@pytest.mark.parametrize("gain", [0.3, 3.0])
def test_a_counter_that_is_wrong_is_found_out(gain):
    truth = Truth([(0.0, 250.0)], gain=gain)
    track = EnergyTrack()
    feed(track, truth, 0.0, 10.0)
    energy = track.energy(7.0, 9.0)
    assert energy.method is Method.INTEGRATED
    assert energy.joules == pytest.approx(500.0, rel=0.01)
    assert "not credible" in energy.note


def test_a_long_rest_between_looks_does_not_discredit_the_counter():
    """Looks come in bursts, hours apart, as in virtual time or after a suspend."""
    truth = Truth([(0.0, 250.0), (2000.0, 60.0), (4000.0, 300.0)])
    track = EnergyTrack()
    for begin in (0.0, 1000.0, 2500.0, 4500.0, 9000.0):
        feed(track, truth, begin, begin + 3.0)
    energy = track.energy(9000.5, 9002.5)
    assert "not credible" not in energy.note
    assert track.energy(2501.0, 9002.0).method is Method.COUNTER


def test_a_slow_power_meter_widens_the_uncertainty():
    """Refreshed every 20 ms, out of step with the counter: a change shows late."""
    truth, windows = bursts(3, 0.05)
    track = EnergyTrack()
    t = 0.2
    while t < 30.0:
        shown = truth.power(math.floor((t - 0.007) / 0.02) * 0.02 + 0.007)
        track.take(Look(t, t, t, truth.counter(t), shown))
        t += 0.009
    outside = 0
    for begin, end in windows[8:]:
        energy = track.energy(begin, end)
        outside += abs(energy.joules - truth.energy(begin, end)) > energy.uncertainty
    assert outside / len(windows[8:]) < 0.1


def test_a_counter_that_restarts_is_survived():
    """The driver was reloaded: the counter begins at zero again, and may pass its old value."""
    truth = Truth([(0.0, 250.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 5.0)
    t = 5.0
    while t < 10.0:
        track.take(Look(t, t, t, truth.counter(t) - truth.counter(5.0), 250.0))
        t += 0.0125
    assert track.energy(2.0, 8.0).joules == pytest.approx(1500.0, rel=0.02)
    assert track.energy(6.0, 9.0).joules == pytest.approx(750.0, rel=0.005)


def test_long_windows_outlive_what_is_remembered():
    truth = Truth([(0.0, 100.0), (3.0, 250.0), (50.0, 120.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 20.0)
    head = track.head(3.0)
    track.forget(15.0)
    feed(track, truth, 20.0, 60.0)
    track.forget(55.0)
    energy = track.energy(3.0, 58.0, head)
    assert energy.joules == pytest.approx(truth.energy(3.0, 58.0), rel=1e-3)


class Failing(Truth):
    """Its counter counts six times as fast from an instant on."""

    fails_at = 20.0

    def counter(self, t):
        return super().counter(t) + 5 * max(
            0.0, super().counter(t) - super().counter(self.fails_at)
        )


def test_a_counter_that_fails_after_a_long_window_began():
    """What the window kept of the counter must not be mixed with the integral of power."""
    truth = Failing([(0.0, 250.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 20.0)
    head = track.head(3.0)
    track.forget(15.0)
    feed(track, truth, 20.0, 40.0)
    energy = track.energy(3.0, 38.0, head)
    assert "not credible" in energy.note
    assert energy.method is Method.INTEGRATED
    assert energy.joules == pytest.approx(250.0 * 35, rel=0.01)


def test_a_counter_that_begins_to_work_after_a_long_window_began():
    truth = Truth([(0.0, 250.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 14.0, counter=False)
    head = track.head(3.0)
    feed(track, truth, 14.0, 40.0)
    assert track.energy(3.0, 38.0, head).joules == pytest.approx(250.0 * 35, rel=0.01)


@pytest.mark.parametrize("counter", [True, False])
def test_a_gpu_that_did_not_answer_when_a_long_window_began(counter):
    """Nothing is known about that time; what is said about it is said to be uncertain."""
    truth = Truth([(0.0, 60.0), (50.0, 250.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 2.0, counter=counter)
    assert track.head(3.0) is None
    feed(track, truth, 100.0, 120.0, counter=counter)
    energy = track.energy(3.0, 118.0, track.head(3.0))
    assert abs(energy.joules - truth.energy(3.0, 118.0)) < energy.uncertainty


@pytest.mark.parametrize("seen_from", [0.0, 2.95])
@pytest.mark.parametrize("phase", [0.01, 0.037, 0.09])
def test_nobody_looked_when_a_window_had_just_begun(seen_from, phase):
    """Where a tick fell in that time is not known: it is not taken for its middle."""
    truth = Truth([(0.0, 250.0)], phase=phase)
    track = EnergyTrack()
    feed(track, truth, seen_from, 3.0)
    feed(track, truth, 4.0, 4.6)
    energy = track.energy(3.0, 4.5)
    assert energy.joules == pytest.approx(375.0, rel=0.02)


def test_what_nobody_saw_is_counted():
    truth = Truth([(0.0, 100.0), (3.2, 400.0), (3.7, 50.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 3.0)
    feed(track, truth, 4.0, 14.6)
    for head in (None, track.head(3.0)):
        energy = track.energy(3.0, 14.5, head)
        assert energy.method is Method.COUNTER
        assert energy.joules == pytest.approx(truth.energy(3.0, 14.5), rel=0.01)
        assert energy.uncertainty < 0.05 * energy.joules


@pytest.mark.parametrize("long_ago", [True, False])
def test_a_gpu_that_did_not_answer_amid_a_window(long_ago):
    """Without a counter nobody knows what it drew meanwhile, and that is said."""
    truth = Truth([(0.0, 250.0), (10.0, 60.0), (30.0, 250.0)])
    track = EnergyTrack()
    feed(track, truth, 0.0, 9.9, counter=False)
    head = track.head(1.0) if long_ago else None
    feed(track, truth, 30.0, 40.0, counter=False)
    energy = track.energy(1.0, 38.0, head)
    assert abs(energy.joules - truth.energy(1.0, 38.0)) < energy.uncertainty
    assert track.energy(31.0, 38.0).uncertainty < 0.01 * truth.energy(31.0, 38.0)


def test_trouble_after_the_last_look_makes_a_window_unavailable():
    track = EnergyTrack()
    feed(track, Truth([(0.0, 100.0)]), 0.0, 5.0)
    track.senses = Senses(trouble=CapabilityError(Reason.LOST, "fell off the bus"))
    assert track.energy(1.0, 4.0).joules == pytest.approx(300.0, rel=0.01)
    energy = track.energy(4.0, 7.0)
    assert energy.joules is None
    assert energy.method is Method.UNAVAILABLE
    assert "fell off the bus" in energy.note


def bursts(seed, length):
    """Load only inside windows, at random phases; returns the truth and the windows."""
    generator = random.Random(seed)
    changes, windows, t = [(0.0, 60.0)], [], 1.0
    while t < 25.0:
        begin, end = t, t + length * generator.uniform(0.8, 1.2)
        windows.append((begin, end))
        changes += [(begin, 300.0), (end, 60.0)]
        t = end + generator.uniform(0.15, 0.4)
    return Truth(changes), windows


@pytest.mark.parametrize("length", [0.02, 0.05, 0.5])
def test_a_meter_that_is_refreshed_with_the_counter_only(length):
    """Power between ticks cannot be seen, but what the tick as a whole used can."""
    truth, windows = bursts(7, length)
    track = EnergyTrack()
    feed(track, truth, 0.2, 30.0, stale=True)
    assert track.stale
    for begin, end in windows[5:]:
        energy = track.energy(begin, end)
        assert energy.joules == pytest.approx(truth.energy(begin, end), rel=0.05)
        assert energy.method is Method.COUNTER


def test_a_live_meter_is_not_taken_for_a_stale_one():
    truth, _ = bursts(8, 0.05)
    track = EnergyTrack()
    feed(track, truth, 0.2, 30.0)
    assert not track.stale
    assert not track.lacks_tick(29.0, 29.01)


@pytest.mark.parametrize("stale", [True, False])
def test_ticks_between_the_two_readings_of_a_look_do_not_hide_how_the_meter_is_refreshed(stale):
    """The counter is read before the tick, power after it: the change seems to come alone."""
    truth, _ = bursts(11, 0.05)
    read_power = truth.stale_power if stale else truth.power
    track = EnergyTrack()
    for step in range(8 * 299):
        t = truth.phase + truth.period + step * truth.period / 8 - 1e-3
        counted, ended = t + 0.5e-3, t + 2e-3
        track.take(Look(t, counted, ended, truth.counter(t), read_power(t + 1.5e-3)))
    assert track.stale == stale


def test_a_short_window_on_a_stale_meter_asks_for_the_next_tick():
    truth, windows = bursts(9, 0.03)
    track = EnergyTrack()
    feed(track, truth, 0.2, windows[-1][0] + 0.035, stale=True)
    tick = truth.phase + math.ceil((windows[-1][1] - truth.phase) / truth.period) * truth.period
    begin, end = tick - 0.04, tick - 0.01
    track.forget(0.0)
    feed(track, truth, windows[-1][0] + 0.036, end, stale=True)
    assert track.lacks_tick(begin, end)
    early = track.energy(begin, end)
    assert early.method is Method.ESTIMATED
    assert early.uncertainty >= early.joules
    feed(track, truth, end, end + 0.05, stale=True)
    assert not track.lacks_tick(begin, end)


def test_nothing_seen_is_not_zero():
    energy = EnergyTrack().energy(1.0, 2.0)
    assert energy.joules is None
    assert energy.method is Method.UNAVAILABLE

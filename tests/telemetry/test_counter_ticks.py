"""Refreshes of a counter, dated from polls."""

from __future__ import annotations

import math
import random

import pytest

from zeus.telemetry._counter_ticks import CounterTicks


def polled(ticks: CounterTicks, period: float, phase: float, until: float, late: float = 0.0):
    """Poll as asked, and every 0.3 s; yields pairs of true and dated instants."""
    chance, now, regular = random.Random(2), 0.0, 0.0
    while now < until:
        true = (math.floor((now - phase) / period)) * period + phase if period else now
        yield now, true, ticks.add(now, 1000.0 + true)
        regular = regular if regular > now else now + 0.3
        search = ticks.next_poll(now)
        now = min(poll for poll in (regular, search) if poll is not None)
        now += late * chance.random()


@pytest.mark.parametrize("period", [0.02, 0.1, 0.1003])
@pytest.mark.parametrize("late", [0.0, 0.0015])
def test_refreshes_are_dated(period, late):
    ticks = CounterTicks()
    polls = [poll for poll in polled(ticks, period, 0.0137, 200, late) if poll[0] > 2]
    apart = [abs(dated - true) for _, true, dated in polls if dated is not None]
    assert max(apart) < 0.004  # half of the longest time between two dense polls, twice
    assert len(apart) > 0.5 * len(polls)
    assert ticks.period == pytest.approx(period, rel=1e-3)


def test_searches_are_rare_once_it_is_known():
    polls = [now for now, *_ in polled(CounterTicks(), 0.1, 0.03, 600) if now > 100]
    assert len(polls) < 2 * 500 / 0.3


def test_a_counter_that_is_always_fresh_is_dated_now():
    for now, _, dated in polled(CounterTicks(), 0.0, 0.0, 5):
        assert dated <= now
        if now > 1:
            assert dated == now


def test_an_unknown_phase_is_half_a_period():
    assert CounterTicks(0.1).add(5.0, 1.0) == pytest.approx(4.95)
    assert CounterTicks().next_tick(5.0) is None

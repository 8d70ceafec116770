"""The time from a request for a clock until it is in force, from instructions in between."""

from __future__ import annotations

import random
import statistics

import pytest
from tests.optimizer.pipeline_frequency.running.curves import (
    BACKWARD,
    FORWARD,
    HIGHEST,
    VISITED,
    computing,
)

from zeus.optimizer.pipeline_frequency.running._clock_lag import MAX_LAG, Changed, ClockLag
from zeus.optimizer.pipeline_frequency.running._time_curves import TimeCurves


def known(each: int = 30, variation: float = 0.0) -> TimeCurves:
    draws, times = random.Random(1), TimeCurves([FORWARD], HIGHEST)
    for clock in VISITED:
        for _ in range(each):
            seconds = computing(clock / HIGHEST) * (1 + variation * draws.gauss(0, 1))
            times.add(FORWARD, clock, seconds)
    return times


def seconds(asked: float, lag: float, before: float, after: float) -> float:
    """Of an instruction, in truth, whose clock was requested so long before its begin."""
    old, new = computing(before / HIGHEST), computing(after / HIGHEST)
    until = min(max(lag - asked, 0.0), old)  # it runs so long at the clock before
    return until + (1 - until / old) * new


def changes(lag: float, count: int, variation: float, seed: int) -> ClockLag:
    """Clocks that are requested up to 20 ms before an instruction, or after it began."""
    draws, found = random.Random(seed), ClockLag()
    for _ in range(count):
        before, after = draws.sample(VISITED, 2)
        asked = draws.uniform(-0.02, 0.02)
        took = seconds(asked, lag, before, after) * (1 + variation * draws.gauss(0, 1))
        found.add(Changed(FORWARD, took, asked, before, after))
    return found


@pytest.mark.parametrize("lag", [0.0, 0.003, 0.008, 0.015, 0.025])
def test_the_lag_is_found_exactly_where_work_does_not_vary(lag):
    assert changes(lag, 60, 0.0, 1).estimate(known()) == pytest.approx(lag, abs=6e-4)


@pytest.mark.parametrize("lag", [0.003, 0.008, 0.015])
def test_the_lag_is_found_where_work_varies_by_5_percent(lag):
    """From 200 changes, as some twenty steps have them."""
    times = known(variation=0.05)
    found = [changes(lag, 200, 0.05, seed).estimate(times) for seed in range(20)]
    errors = [abs((each if each is not None else 1.0) - lag) for each in found]
    assert statistics.median(errors) <= 0.002
    assert max(errors) <= 0.005


def test_few_changes_are_no_evidence():
    assert ClockLag().estimate(known()) is None
    assert changes(0.015, 4, 0.0, 1).estimate(known()) is None


def test_small_changes_of_the_clock_are_no_evidence():
    """30 MHz are 2 % of the time: less than what an instruction varies by."""
    found = ClockLag()
    for _ in range(300):
        found.add(Changed(FORWARD, computing(1.0), 0.0, HIGHEST, HIGHEST - 30))
    assert found.estimate(known()) is None


def test_instructions_of_unknown_time_are_no_evidence():
    assert changes(0.015, 60, 0.0, 1).estimate(TimeCurves([FORWARD], HIGHEST)) is None


def test_instructions_that_were_held_up_do_not_move_it():
    found = changes(0.008, 100, 0.0, 1)
    draws = random.Random(2)
    for _ in range(20):
        found.add(Changed(FORWARD, 0.5, draws.uniform(-0.02, 0.02), HIGHEST, 990))
    assert found.estimate(known()) == pytest.approx(0.008, abs=6e-4)


def test_it_follows_a_lag_that_changes():
    found = changes(0.004, 100, 0.0, 1)
    for each in changes(0.015, 300, 0.0, 2)._seen:
        found.add(each)
    assert found.estimate(known()) == pytest.approx(0.015, abs=6e-4)


def test_instructions_of_before_a_drift_are_forgotten():
    """They took less time at all clocks, as if the lower clock had come later."""
    found, times = changes(0.008, 100, 0.0, 1), known()
    times.scale(FORWARD, 1.2)
    assert found.estimate(times) != pytest.approx(0.008, abs=6e-4)
    found.forget(BACKWARD)
    assert len(found._seen) == 100
    found.forget(FORWARD)
    assert found.estimate(times) is None


def test_a_lag_is_never_longer_than_what_is_tried():
    assert changes(0.2, 100, 0.0, 1).estimate(known()) == pytest.approx(MAX_LAG)

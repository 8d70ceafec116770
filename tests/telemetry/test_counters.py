"""Totals that never go backwards without a reset, and means and integrals between readings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.clock import VirtualClock
from zeus.errors import CapabilityError, Reason
from zeus.telemetry._counters import DeviceCounter, MeanPower, PowerIntegral, SinceStart


def increase(values: list[float]) -> float:
    """What a database finds: a decrease is a reset to 0."""
    total = 0.0
    for before, after in pairwise(values):
        total += after - before if after >= before else after
    return total


def test_a_reset_of_the_driver_is_passed_on():
    counter = DeviceCounter()
    shown = [counter.update(10.0 * at, value) for at, value in enumerate((1e6, 1.001e6, 900, 3900))]
    assert shown == [1e6, 1.001e6, 900, 3900]
    assert increase(shown) == pytest.approx(1000 + 3900)


def test_a_decrease_that_is_no_reset_adds_nothing():
    counter = DeviceCounter()
    shown = [counter.update(at, value) for at, value in enumerate((1e6, 1e6 - 1, 1e6 + 300))]
    assert shown == [1e6, 1e6, 1e6 + 300]
    assert increase(shown) == 300


@given(st.lists(st.floats(1.0, 4000.0), min_size=1, max_size=30), st.integers(0, 29))
def test_what_a_database_sums_is_never_more_than_was_consumed(watts, reset):
    counter, raw, consumed, shown = DeviceCounter(), 5e7, 0.0, []
    shown.append(counter.update(0.0, raw))
    for at, power in enumerate(watts, 1):
        raw = power if at == reset + 1 else raw + power  # reset at the beginning of that second
        consumed += power
        shown.append(counter.update(float(at), raw))
    assert increase(shown) <= consumed * (1 + 1e-9) + 1e-6


def test_totals_begin_at_the_start_of_the_collector():
    total = SinceStart()
    assert [total.update(value) for value in (500.0, 510.0, 530.0)] == [0, 10, 30]


def test_mean_power_needs_two_readings_that_are_apart():
    power = MeanPower()
    assert power.update(0.0, 100.0) is None
    assert power.update(0.01, 101.0) is None, "one tick of the counter more or less would show"
    assert power.update(2.0, 300.0) == 100.0
    assert power.update(2.1, 305.0) == 100.0
    assert power.update(4.0, 500.0) == 100.0
    assert power.update(6.0, 3.0) is None, "the counter began again"


def test_power_is_integrated_and_gaps_are_not_guessed():
    clock = VirtualClock()
    clock.virtual = False  # a gap is a gap in real time only
    answers = iter([100.0, 200.0, None, 400.0, 400.0])

    def read() -> dict[str, float]:
        watts = next(answers)
        if watts is None:
            raise CapabilityError(Reason.LOST, "gone")
        return {"": watts}

    integral = PowerIntegral(read, clock, 1.0)
    for _ in range(5):
        integral.poll()
        clock.sleep(1.0)
    assert integral.joules[""] == 150.0 + 400.0

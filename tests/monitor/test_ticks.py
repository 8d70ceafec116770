"""The tick model against counters whose ticks are known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus.monitor.ticks import TickModel


def watch(period: float, phase: float, looks: list[float], jitter=lambda k: 0.0):
    """Feed a model the brackets that looks at a ticking counter give; yield (truth, bracket)."""
    model = TickModel()

    def tick(instant: float) -> int:
        k = math.floor((instant - phase) / period)
        return k if phase + k * period + jitter(k) <= instant else k - 1

    last, last_count, longest = looks[0], tick(looks[0]), 0.0
    for look in looks[1:]:
        longest = max(longest, look - last)
        count = tick(look)
        if count != last_count and look - last < 0.9 * period:
            bracket = model.observe(last, look, longest)
            yield model, phase + count * period + jitter(count), bracket
            longest = 0.0
        last, last_count = look, count


@given(
    period=st.floats(0.02, 0.2),
    phase=st.floats(0, 0.2),
    share=st.floats(0.05, 0.4),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_every_bracket_holds_its_tick(period, phase, share, seed):
    generator = random.Random(seed)
    looks, now = [], 100.0
    for _ in range(400):
        looks.append(now)
        now += period * share * generator.uniform(0.5, 1.5)
    for _, truth, (low, high) in watch(period, phase, looks):
        assert low - 1e-9 <= truth <= high + 1e-9


def test_period_and_phase_sharpen_with_every_tick():
    generator = random.Random(1)
    looks, now = [], 5.0
    for _ in range(2000):
        looks.append(now)
        now += generator.uniform(0.008, 0.017)
    seen = list(watch(0.1, 0.033, looks))
    model, _, (low, high) = seen[-1]
    assert model.period == pytest.approx(0.1, rel=1e-3)
    assert high - low < 0.002  # looks alone leave 8 to 17 ms


def test_irregular_ticks_fall_back_to_what_was_seen():
    shift = {k: (0.02 if k % 7 == 0 else 0.0) for k in range(200)}
    looks = [i * 0.01 for i in range(1500)]
    for _, truth, (low, high) in watch(0.1, 0.05, looks, lambda k: shift.get(k, 0.0)):
        # The truth may be outside a bracket that regularity alone has narrowed, but never by
        # more than the irregularity.
        assert low - 0.021 <= truth <= high + 0.021


def test_sparse_looks_teach_no_period():
    """After a rest of many ticks, two ticks seen far apart are not neighbours."""
    model = TickModel()
    model.observe(0.0, 0.01, 0.01)
    model.observe(1.0, 1.01, 0.99)
    assert model.period is None
    model.observe(1.1, 1.11, 0.01)
    assert model.period == pytest.approx(0.1, abs=0.011)


def test_prediction():
    model = TickModel()
    for k in range(20):
        model.observe(k * 0.1 - 0.001, k * 0.1 + 0.001, 0.01)
    low, high = model.next_after(1.95)
    assert low <= 2.0 <= high
    low, high = model.last_before(7.36)
    assert low <= 7.3 <= high
    assert TickModel().next_after(1.0) is None

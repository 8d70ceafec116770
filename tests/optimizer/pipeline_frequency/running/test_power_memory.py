"""Powers of clocks that were explored stay known while a plan uses others for long."""

from __future__ import annotations

import pytest

from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._power_curves import Load, PowerCurves

FORWARD = InstructionKind("forward", 0)
LADDER = range(1410, 800, -60)


def watts(clock: float) -> float:
    return 100 + 200 * (clock / 1410) ** 3


def test_explored_clocks_are_not_forgotten():
    curves = PowerCurves([FORWARD], 1410)
    for clock in [*LADDER, *LADDER, *[1410] * 2_000]:
        curves.add({Load(FORWARD, True, clock): 0.1}, 0.1 * watts(clock), 1e-4)
    for clock in LADDER:
        assert curves.power(FORWARD, clock) == pytest.approx(watts(clock), rel=0.01)
    assert len(curves) <= 600


def test_what_changes_at_the_planned_clock_is_followed():
    curves = PowerCurves([FORWARD], 1410)
    for clock in [*LADDER, *LADDER]:
        curves.add({Load(FORWARD, True, clock): 0.1}, 0.1 * watts(clock), 1e-4)
    for _ in range(2_000):
        curves.add({Load(FORWARD, True, 1410): 0.1}, 0.1 * 1.05 * watts(1410), 1e-4)
    assert curves.power(FORWARD, 1410) == pytest.approx(1.05 * watts(1410), rel=0.01)

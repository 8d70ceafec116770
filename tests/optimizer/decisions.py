"""Optimizers that have decided in virtual time, and what they must have found."""

from __future__ import annotations

import pytest
from tests.optimizer.support import Loop, monitor, work

from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.testing import SimulatedNode

MEMORY_BOUND = work(0.1, activity=1.0, compute_bound=0.3)
"""Hardly slower at a lower limit, so the best one is far down."""


def decided(spec, workload, objective=None, *, epoch=100, between=0.0, sensors=None, **options):
    """An optimizer that has chosen for this job, and its node."""
    node = SimulatedNode(spec, sensors=sensors)
    optimizer = GlobalPowerLimitOptimizer(monitor(node), objective, **options)
    Loop(node, optimizer, workload, epoch=epoch, between=between).until_decided()
    assert optimizer.trouble == ""
    return optimizer, node


def check_points(optimizer, true):
    """What was measured is near the truth, and no further off than stated."""
    assert optimizer.frontier.max_power == true.max_power
    counts = all(gpu.driver.sensors.counter for gpu in optimizer.monitor.gpus)
    for point in optimizer.frontier:
        real = true.at(point.knob)
        assert point.time == pytest.approx(real.time, rel=0.002), point.knob
        # What is surely worse than another setting needs to be known roughly only; and without a
        # counter, nothing shows how late the power meter is.
        well = counts and point.knob == optimizer.selection.point.knob
        assert point.energy == pytest.approx(real.energy, rel=0.01 if well else 0.04), point.knob
        off = abs(point.energy - real.energy)
        assert off <= 1.5 * point.energy_uncertainty + 1e-9 * real.energy, point.knob
        assert point.energy_uncertainty <= (0.03 if well else 0.1) * point.energy, point.knob

"""Work under a roofline: what a tuner would choose on it, and what it would choose without."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.testing import Roofline, SimulatedNode, Workload

DECODE = Workload("decode", gpu_time=0.025, activity=0.6, roofline=Roofline(0.02))
PREFILL = Workload("prefill", gpu_time=1.3, activity=0.95, roofline=Roofline(50))


def energies(work):
    node = SimulatedNode("v100")
    (gpu,) = node.gpus
    found = {}
    for clock in range(1380, 500, -45):
        with gpu.hold(graphics_clock=clock):
            found[clock] = work.step_time(gpu) * work.average_power(gpu)
    return found


def test_decode_keeps_its_time_until_memory_slows_down_and_has_its_least_energy_there():
    node = SimulatedNode("v100")
    (gpu,) = node.gpus
    with gpu.hold(graphics_clock=840):
        assert DECODE.step_time(gpu) == pytest.approx(0.025, rel=0.01)
    with gpu.hold(graphics_clock=600):
        assert DECODE.step_time(gpu) > 1.4 * 0.025
    found = energies(DECODE)
    best = min(found, key=found.__getitem__)
    assert 650 < best < 850
    # Far below the knee energy rises again, which `a + b / clock` cannot show.
    assert found[525] > 1.05 * found[best]


def test_prefill_goes_with_the_inverse_of_the_clock():
    node = SimulatedNode("v100")
    (gpu,) = node.gpus
    with gpu.hold(graphics_clock=690):
        assert PREFILL.step_time(gpu) == pytest.approx(2.6, rel=0.01)


def test_a_run_takes_the_time_and_energy_that_are_stated():
    node = SimulatedNode("v100")
    (gpu,) = node.gpus
    with gpu.hold(graphics_clock=840):
        before = node.exact_energy()
        elapsed = DECODE.run(gpu, 100)
        assert elapsed == pytest.approx(100 * DECODE.step_time(gpu))
        joules = node.exact_energy() - before
        assert joules == pytest.approx(elapsed * DECODE.average_power(gpu))


@given(st.floats(0, 1e9), st.floats(1, 100), st.floats(0, 1), st.floats(1, 100))
def test_a_lower_clock_is_never_faster(intensity, sharpness, knee, steepness):
    roofline = Roofline(intensity, sharpness, knee, steepness)
    times = [roofline.slowdown(clock / 20) for clock in range(20, 0, -1)]
    assert all(math.isfinite(each) for each in times)
    assert times[0] == pytest.approx(1)
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(times))


@pytest.mark.parametrize("values", [(-1,), (math.nan,), (1, 0.5), (1, 3, 2), (1, 3, 0.4, 0)])
def test_impossible_rooflines_are_refused(values):
    with pytest.raises(ValueError, match="must"):
        Roofline(*values)

"""Work on simulated GPUs takes the time and the energy that the knobs in force make it take."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.present import present

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device import Gpu
from zeus.device._base import GpuDriver, GpuIdentity
from zeus.device._simulated_state import IDLE
from zeus.monitor import ZeusMonitor
from zeus.testing import SimulatedNode, Workload
from zeus.testing._workload import simulated_driver

workloads = st.builds(
    Workload,
    name=st.just("job"),
    gpu_time=st.floats(0.01, 10.0),
    host_time=st.floats(0.0, 5.0),
    activity=st.floats(0.05, 1.6),
    compute_bound=st.floats(0.0, 1.0),
)
limits = st.floats(100, 250)


def energy_of(node, index, action):
    before = node.exact_energy(index)
    action()
    return node.exact_energy(index) - before


def test_at_the_highest_clock_a_step_takes_its_own_time():
    gpu = SimulatedNode("v100").gpus[0]
    work = Workload("job", gpu_time=2.0, host_time=0.5, activity=0.8)
    assert work.step_time(gpu) == pytest.approx(2.5)
    model = simulated_driver(gpu).model
    busy = model.static_power + 0.8 * (250 - model.static_power)
    assert work.average_power(gpu) == pytest.approx((2 * busy + 0.5 * model.static_power) / 2.5)


def test_only_the_compute_bound_part_feels_the_clock():
    gpu = SimulatedNode("v100").gpus[0]
    with gpu.hold(graphics_clock=690):  # half of 1380 MHz
        for share, expected in ((0.0, 1.0), (0.5, 1.5), (1.0, 2.0)):
            work = Workload("job", gpu_time=1.0, compute_bound=share, activity=0.5)
            assert work.step_time(gpu) == pytest.approx(expected)


@given(workloads, limits, st.integers(1, 8))
@settings(max_examples=50)
def test_steps_take_the_time_and_energy_they_say(work, limit, steps):
    node = SimulatedNode("v100")
    gpu = node.gpus[0]
    gpu.driver.set_power_limit(limit)
    elapsed = []
    energy = energy_of(node, 0, lambda: elapsed.append(work.run(gpu, steps)))
    assert elapsed[0] == pytest.approx(steps * work.step_time(gpu))
    assert node.clock.now() == pytest.approx(elapsed[0])
    assert energy == pytest.approx(steps * work.step_time(gpu) * work.average_power(gpu))


@given(workloads, limits, limits)
@settings(max_examples=50)
def test_a_stretch_is_its_steps(work, limit, other_limit):
    """Many steps, played as one stretch, take the time and energy of as many single steps."""
    totals = []
    for steps, times in ((1, 16), (16, 1)):
        node = SimulatedNode("v100x2")
        node.drivers[0].set_power_limit(limit)
        node.drivers[1].set_power_limit(other_limit)
        elapsed = sum(work.run(node.gpus, steps) for _ in range(times))
        totals.append((elapsed, node.exact_energy(0), node.exact_energy(1)))
    assert totals[0] == pytest.approx(totals[1])


def test_the_slowest_gpu_sets_the_pace_and_the_others_wait():
    node = SimulatedNode("v100x2")
    slow, fast = node.gpus
    slow.driver.set_power_limit(125)
    work = Workload("job", gpu_time=1.0, host_time=0.1)
    times, powers = work.step_time(slow), work.average_power(fast)
    energy = energy_of(node, 1, lambda: work.run(node.gpus))
    assert node.clock.now() == pytest.approx(times)
    waiting = (times - work.step_time(fast)) * simulated_driver(fast).model.static_power
    assert energy == pytest.approx(work.step_time(fast) * powers + waiting)


@pytest.mark.parametrize("steps", [1, 100])
@pytest.mark.parametrize("load", [None, 0.0, 0.6])
def test_the_load_from_before_comes_back(steps, load):
    node = SimulatedNode("v100", load=load)
    before = node.gpus[0].instant_power()
    Workload("job", gpu_time=1.0).run(node.gpus, steps)
    node.sleep(0.1)  # the meter is late
    assert node.gpus[0].instant_power() == pytest.approx(before, abs=1e-3)
    assert (node.gpus[0].processes() == ()) == (load in (None, IDLE))


def test_the_load_comes_back_after_an_error(monkeypatch):
    node = SimulatedNode("v100")

    def interrupted(seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(node.clock, "sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Workload("job", gpu_time=1.0).run(node.gpus)
    node.sleep(0.1)  # the meter is late
    assert node.gpus[0].instant_power() == node.drivers[0].model.idle_power


def test_a_day_of_steps_at_once():
    node = SimulatedNode("v100x4")
    monitor = ZeusMonitor(node=node)
    work = Workload("job", gpu_time=0.09, host_time=0.01)
    before = node.exact_energy()
    with monitor.window("day") as window:
        elapsed = work.run(node.gpus, 864_000)
    assert elapsed == pytest.approx(864_000 * work.step_time(node.gpus[0]))
    exact = node.exact_energy() - before
    assert present(window.measurement).gpu_energy[0] == pytest.approx(exact, rel=1e-4)


def test_a_step_shows_its_two_phases_to_a_monitor(monkeypatch):
    node = SimulatedNode("v100")
    seen = []
    sleep = node.clock.sleep

    def watching(seconds):
        sleep(seconds)
        seen.append(node.gpus[0].instant_power())

    monkeypatch.setattr(node.clock, "sleep", watching)
    Workload("job", gpu_time=1.0, host_time=0.5, activity=0.5).run(node.gpus)
    model = node.drivers[0].model
    assert seen == [
        pytest.approx(model.busy_power(1.0, 0.5), abs=1e-3),
        pytest.approx(model.static_power, abs=1e-3),
    ]


def test_in_real_time_it_takes_its_time():
    node = SimulatedNode("v100", clock=MonotonicClock())
    work = Workload("job", gpu_time=0.01, host_time=0.005, activity=0.5)
    assert work.run(node.gpus) >= 0.0149


def test_scaled():
    epoch = Workload("epoch", gpu_time=90.0, host_time=10.0, activity=0.7, compute_bound=0.6)
    iteration = epoch.scaled(1 / 1000, name="iteration")
    assert (iteration.name, iteration.activity, iteration.compute_bound) == ("iteration", 0.7, 0.6)
    assert (iteration.gpu_time, iteration.host_time) == pytest.approx((0.09, 0.01))
    assert epoch.scaled(2).name == "epoch"
    for factor in (0, -1, math.nan):
        with pytest.raises(ValueError, match="must"):
            epoch.scaled(factor)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_time", -1),
        ("gpu_time", math.inf),
        ("gpu_time", math.nan),
        ("gpu_time", 0),
        ("host_time", -0.1),
        ("activity", -0.1),
        ("activity", 1.7),
        ("compute_bound", -0.1),
        ("compute_bound", 1.1),
    ],
)
def test_values_out_of_range_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        Workload(**{"name": "job", "gpu_time": 1.0, field: value})


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        Workload("job", gpu_time=1.0).gpu_time = 2.0  # type: ignore[misc]


def test_where_and_how_often_it_can_run():
    work = Workload("job", gpu_time=1.0)
    one, other = SimulatedNode("v100"), SimulatedNode("v100", clock=VirtualClock())
    with pytest.raises(ValueError, match=r"steps >= 1.*0"):
        work.run(one.gpus, 0)
    with pytest.raises(ValueError, match="0 GPUs"):
        work.run([])
    with pytest.raises(ValueError, match="one node"):
        work.run([one.gpus[0], other.gpus[0]])
    real = GpuDriver()
    real.identity = GpuIdentity("GPU-real", "Real", "NVIDIA")
    with pytest.raises(ValueError, match="not simulated"):
        work.run(Gpu(0, real))

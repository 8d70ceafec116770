"""Temperature over time, on the machinery that power uses."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._base import DeviceSet, GpuDriver, GpuIdentity
from zeus.device._node import Node
from zeus.errors import Reason
from zeus.monitor._temperature import TemperatureMonitor
from zeus.testing import SimulatedNode


def test_a_loaded_gpu_warms_up():
    node = SimulatedNode("v100x2")
    monitor = TemperatureMonitor(node=node)
    cold = present(monitor.get_temperature())
    node.drivers[0].set_load(1.0)
    for _ in range(20):
        node.sleep(10)
    warm = present(monitor.get_temperature())
    assert warm[0] > cold[0] + 20
    assert warm[1] == cold[1]
    assert cold[0] < present(monitor.get_temperature(30.0))[0] < warm[0]
    values = [value for _, value in monitor.get_temperature_timeline(gpu_index=0)[0]]
    assert values == sorted(values)


def test_the_period():
    node = SimulatedNode("v100")
    default, quick = TemperatureMonitor(node=node), TemperatureMonitor(None, 0.25, node=node)
    node.sleep(10)
    assert [instant for instant, _ in default.get_temperature_timeline()[0]][-3:] == [8, 9, 10]
    cut = quick.get_all_temperature_timelines(1.9, 2.6)[0]
    assert [instant for instant, _ in cut] == [2.0, 2.25, 2.5]


def test_memory_is_bounded():
    node = SimulatedNode("v100")
    monitor = TemperatureMonitor(update_period=0.1, max_samples_per_gpu=16, node=node)
    for _ in range(100):
        node.sleep(1)
    assert len(monitor.get_temperature_timeline()[0]) <= 16


def test_a_gpu_without_a_thermometer_is_absent_with_a_reason():
    clock = VirtualClock()
    driver = GpuDriver()
    driver.identity = GpuIdentity("GPU-bare", "Bare", "NVIDIA")
    monitor = TemperatureMonitor(node=Node(clock, [driver], DeviceSet([Gpu(0, driver)])))
    clock.sleep(5)
    assert monitor.get_temperature() is None
    assert monitor.get_temperature_timeline() == {}
    assert monitor.unavailable["temperature", 0].reason is Reason.UNSUPPORTED


def test_stop():
    node = SimulatedNode("v100", load=1.0)
    with TemperatureMonitor([0], node=node) as monitor:
        node.sleep(5.5)
    samples = monitor.get_temperature_timeline()[0]
    assert samples[-1][0] == 5.5
    node.sleep(100)
    monitor.stop()
    assert monitor.get_temperature_timeline()[0] == samples


def test_mistakes():
    node = SimulatedNode("v100")
    with pytest.raises(ValueError, match="update_period > 0"):
        TemperatureMonitor(update_period=0, node=node)
    with pytest.raises(ValueError, match="max_samples_per_gpu >= 2"):
        TemperatureMonitor(max_samples_per_gpu=1, node=node)
    with pytest.raises(ValueError, match="among"):
        TemperatureMonitor([4], node=node)
    with pytest.raises(ValueError, match="start_time=3, end_time=1"):
        TemperatureMonitor(node=node).get_temperature_timeline(start_time=3, end_time=1)

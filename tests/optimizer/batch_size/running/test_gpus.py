"""Which GPUs a recurring run has: of one process, or of all processes of its job together."""

from __future__ import annotations

import logging

import pytest
from tests.device.clients import stand_in

from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._base import DeviceSet, GpuDriver, GpuIdentity
from zeus.device._node import Node
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size.running._gpus import NO_GPU, GpuInfo, Gpus, gpu_infos
from zeus.testing import SimulatedNode


def monitor_of(node):
    return ZeusMonitor(None, [], node=node, sync_execution_with=None)


def test_gpus_of_one_model():
    found = Gpus.of(monitor_of(SimulatedNode("v100x4")))
    assert found == Gpus("Tesla V100-PCIE-32GB (simulated)", 4, 1000.0, True, memory=32 * 2**30)


def test_gpus_of_several_models():
    found = Gpus.of(monitor_of(SimulatedNode("a40,v100x2")))
    assert found.name == "1 x NVIDIA A40 (simulated) + 2 x Tesla V100-PCIE-32GB (simulated)"
    assert (found.number, found.max_power) == (3, 800.0)
    # In whichever order they are numbered.
    assert Gpus.of(monitor_of(SimulatedNode("v100,a40,v100"))).name == found.name


def test_a_real_gpu_is_not_called_simulated():
    gpu, _ = stand_in()
    node = Node(VirtualClock(), [gpu.driver], DeviceSet([gpu]))
    assert Gpus.of(monitor_of(node)) == Gpus("Stand-in", 1, 300.0, known=True)


def test_without_a_gpu_only_time_counts():
    assert Gpus.of(monitor_of(Node(VirtualClock()))) == Gpus(NO_GPU, 1, 1.0, known=False)


def test_a_gpu_that_does_not_tell_its_power_makes_only_time_count(caplog):
    driver = GpuDriver()
    driver.identity = GpuIdentity("GPU-bare", "Bare", "NVIDIA")
    node = Node(VirtualClock(), [driver], DeviceSet([Gpu(0, driver)]))
    with caplog.at_level(logging.WARNING):
        assert Gpus.of(monitor_of(node)) == Gpus("Bare", 1, 1.0, known=False)
    assert "includes only time, not energy: unsupported: power limit" in caplog.text


def test_processes_together_count_each_gpu_once():
    both = gpu_infos(monitor_of(SimulatedNode("v100x2")))
    (first, info), (second, other) = both.items()
    assert Gpus.together([{first: info}, {second: other}]).number == 2
    assert Gpus.together([both, both]) == Gpus.together([both])
    assert Gpus.together([{}, both]).max_power == 500.0
    silent = {"another": GpuInfo("Tesla V100-PCIE-32GB (simulated)", None)}
    together = Gpus.together([both, silent])
    assert (together.number, together.max_power, together.known) == (3, 1.0, False)
    assert together.memory is None  # of one of them it is unknown


def test_the_least_memory_of_any_gpu_counts():
    assert Gpus.of(monitor_of(SimulatedNode("a40,v100"))).memory == 32 * 2**30
    assert Gpus.of(monitor_of(SimulatedNode("a40x2"))).memory == 48 * 2**30


def test_the_memory_of_a_board_is_not_that_of_the_part_a_process_sees():
    assert Gpus.of(monitor_of(SimulatedNode("mi250x"))).memory is None


@pytest.mark.parametrize("told", [[], [{}], [{}, {}]])
def test_processes_without_gpus(told):
    assert Gpus.together(told).name == NO_GPU

"""Snapshots of a node: quick whatever its drivers do, and nothing made up where they are silent."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest
from tests.present import present

from zeus.cli._snapshot import NodeReader
from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._base import (
    Cpu,
    CpuDriver,
    DeviceSet,
    GpuDriver,
    GpuIdentity,
    GpuProcess,
    Soc,
    unsupported,
)
from zeus.device._node import Node
from zeus.errors import CapabilityError, Reason, UnknownDeviceError
from zeus.testing import SimulatedNode

LONG_ENOUGH = 120.0


class Driver(GpuDriver):
    """Answers by functions that a test puts in place."""

    may_hang = False

    def __init__(self, **answers: Any) -> None:
        self.identity = GpuIdentity("GPU-test", "Test", "NVIDIA")
        self.answers = answers
        self.asked: list[str] = []

    def _answer(self, name):
        self.asked.append(name)
        if name not in self.answers:
            raise unsupported(name)
        return self.answers[name]()

    def instant_power(self):
        return self._answer("instant_power")

    def average_power(self):
        return self._answer("average_power")

    def energy(self):
        return self._answer("energy")

    def utilization(self):
        return self._answer("utilization")

    def processes(self):
        return self._answer("processes")


def node_of(*drivers, **parts) -> tuple[Node, VirtualClock]:
    clock = VirtualClock()
    gpus = DeviceSet([Gpu(index, driver) for index, driver in enumerate(drivers)])
    return Node(clock, list(drivers), gpus, **parts), clock


# --- GPUs -----------------------------------------------------------------------------------------


def test_everything_that_a_gpu_tells():
    node = SimulatedNode("v100x2", load=1.0)
    reader = NodeReader(node)
    first = reader.snapshot(LONG_ENOUGH)
    node.sleep(10.0)
    second = reader.snapshot(LONG_ENOUGH)
    assert (first.elapsed, second.elapsed) == (0.0, 10.0)
    assert [gpu.index for gpu in second.gpus] == [0, 1]
    assert first.gpus[0].energy is None, "known between two looks only"
    for gpu in second.gpus:
        assert gpu.problem is None
        assert (gpu.power, gpu.power_limit, gpu.utilization) == (pytest.approx(250), 250, 1)
        assert gpu.energy == pytest.approx(2500, abs=10)
        assert not gpu.power_is_average
        assert not gpu.energy_is_integrated
        memory, clocks = present(gpu.memory), present(gpu.clocks)
        assert memory.total > memory.used >= 0
        assert clocks.graphics > 1000
    assert not reader.needs_two_snapshots


def test_chosen_gpus_only():
    node = SimulatedNode("v100x3")
    assert [gpu.index for gpu in NodeReader(node, [2, 0]).snapshot(LONG_ENOUGH).gpus] == [2, 0]
    with pytest.raises(UnknownDeviceError, match="7"):
        NodeReader(node, [7])


def test_without_a_counter_power_is_integrated():
    driver = Driver()
    node, clock = node_of(driver)
    driver.answers["instant_power"] = lambda: 100.0 + clock.now()
    reader = NodeReader(node)
    for _ in range(11):
        (gpu,) = reader.snapshot(LONG_ENOUGH).gpus
        clock.sleep(1.0)
    assert gpu.energy_is_integrated
    assert gpu.energy == pytest.approx(100.0 * 10 + 10**2 / 2)


def test_a_mean_stands_in_for_power_and_is_marked():
    node, _ = node_of(Driver(average_power=lambda: 123.0))
    (gpu,) = NodeReader(node).snapshot(LONG_ENOUGH).gpus
    assert (gpu.power, gpu.power_is_average) == (123.0, True)
    assert (gpu.energy, gpu.temperature, gpu.problem) == (None, None, None)


def test_a_counter_that_starts_again_does_not_count_backwards():
    joules = iter([1000.0, 1100.0, 50.0, 150.0])
    node, clock = node_of(Driver(energy=lambda: next(joules)))
    reader = NodeReader(node)
    energies = []
    for _ in range(4):
        energies.append(reader.snapshot(LONG_ENOUGH).gpus[0].energy)
        clock.sleep(1.0)
    assert energies == [None, 100.0, 100.0, 200.0]


@pytest.mark.parametrize("reason", [Reason.LOST, Reason.HANGS])
def test_a_gpu_that_is_lost_is_asked_nothing_else(reason):
    def lost():
        raise CapabilityError(reason, "gone")

    driver = Driver(instant_power=lost, utilization=lambda: 0.5)
    node, _ = node_of(driver, Driver(instant_power=lambda: 60.0))
    first, second = NodeReader(node).snapshot(LONG_ENOUGH).gpus
    assert first.problem == f"{reason}: gone"
    assert first.power is first.utilization is None
    assert driver.asked == ["instant_power"]
    assert (second.power, second.problem) == (60.0, None)


def test_a_gpu_that_tells_nothing_says_why():
    node, _ = node_of(Driver())
    (gpu,) = NodeReader(node).snapshot(LONG_ENOUGH).gpus
    assert gpu.problem == "unsupported: instant_power"


def test_a_mistake_of_a_driver_is_shown_and_costs_only_its_gpu():
    node, _ = node_of(Driver(instant_power=lambda: 1 / 0), Driver(instant_power=lambda: 60.0))
    first, second = NodeReader(node).snapshot(LONG_ENOUGH).gpus
    reason = "the driver raised ZeroDivisionError: division by zero"
    assert first.problem == f"{Reason.IMPLAUSIBLE}: {reason}"
    assert second.power == 60.0


def test_a_driver_that_hangs_keeps_nobody_waiting():
    go_on = threading.Event()
    hanging = False

    def power():
        if hanging:
            go_on.wait(LONG_ENOUGH)
        return 100.0

    node, clock = node_of(Driver(instant_power=power), Driver(instant_power=lambda: 60.0))
    reader = NodeReader(node)
    assert reader.snapshot(LONG_ENOUGH).gpus[0].power == 100.0
    hanging = True
    # What it said last is shown for a moment, and then that it does not answer.
    seen = []
    for _ in range(4):
        seen.append(reader.snapshot(0.0).gpus[0])
        quick = reader._gpus[1]
        quick.wait(LONG_ENOUGH)  # time is virtual, its thread is not
        assert quick.latest().power == 60.0
        clock.sleep(1.0)
    assert [gpu.power for gpu in seen] == [100.0, 100.0, None, None]
    assert [gpu.problem for gpu in seen[2:]] == ["no response for 2.0 s", "no response for 3.0 s"]
    hanging = False
    go_on.set()
    deadline = time.monotonic() + LONG_ENOUGH
    while reader.snapshot(LONG_ENOUGH).gpus[0].power is None:
        assert time.monotonic() < deadline


def test_processes_have_the_names_and_users_that_the_system_knows():
    mine, gone = GpuProcess(os.getpid(), 2**30), GpuProcess(2**22 + 1, None, "\x1b[31mevil")
    node, _ = node_of(Driver(processes=lambda: (mine, gone)))
    (gpu,) = NodeReader(node).snapshot(LONG_ENOUGH).gpus
    first, second = gpu.processes
    assert (first.pid, first.memory) == (os.getpid(), 2**30)
    assert first.name
    assert first.user
    assert "\x1b" not in present(second.name)
    assert (second.user, second.memory) == (None, None)


# --- CPUs and chips -------------------------------------------------------------------------------


class Package(CpuDriver):
    def __init__(self, clock, watts):
        self.clock, self.watts = clock, watts

    def energy(self):
        return 1000.0 + self.watts * self.clock.now()


def test_the_power_of_a_package_is_the_mean_since_the_last_look():
    node, clock = node_of()
    driver = Package(clock, 40.0)
    node.cpus = DeviceSet([Cpu(0, "package-0", driver)])
    reader = NodeReader(node)
    assert reader.needs_two_snapshots
    (first,) = reader.snapshot(0.0).cpus
    clock.sleep(5.0)
    (second,) = reader.snapshot(0.0).cpus
    assert (first.power, first.energy) == (None, None)
    assert (second.power, second.energy) == (pytest.approx(40.0), pytest.approx(200.0))
    assert second.dram_power is second.problem is None


class Chip(Soc):
    name = "Chip"

    def __init__(self, energies=None, powers=None):
        self._energies, self._powers = energies, powers

    def energies(self):
        return self._energies and self._energies()

    def powers(self):
        return self._powers and self._powers()


def test_a_chip_tells_power_or_energy():
    node, clock = node_of()
    node.soc = Chip(powers=lambda: {"gpu": 8.0})
    assert present(NodeReader(node).snapshot(0.0).soc).powers == {"gpu": 8.0}
    node.soc = Chip(energies=lambda: {"gpu": 8.0 * clock.now(), "cpu": 5.0 * clock.now()})
    reader = NodeReader(node)
    assert present(reader.snapshot(0.0).soc).powers == {}
    clock.sleep(2.0)
    assert present(reader.snapshot(0.0).soc).powers == pytest.approx({"gpu": 8.0, "cpu": 5.0})


def test_a_chip_that_does_not_answer_says_so():
    def lost():
        raise CapabilityError(Reason.LOST, "busy")

    node, _ = node_of(soc=Chip(powers=lost))
    found = present(NodeReader(node).snapshot(0.0).soc)
    assert (found.powers, found.problem) == ({}, "device lost: busy")

"""Readings of a node: nothing made up, nothing delayed by a device that hangs, no joule lost."""

from __future__ import annotations

import os
import pwd
import threading
from typing import Any

import pytest
from tests.device.trees import RANGE, Powercap
from tests.present import present

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device import Gpu
from zeus.device import _rapl as rapl
from zeus.device._base import (
    CurrentClocks,
    DeviceSet,
    GpuDriver,
    GpuIdentity,
    MemoryUse,
    PowerLimits,
    Problem,
    Soc,
    unsupported,
)
from zeus.device._node import Node
from zeus.errors import CapabilityError, Reason
from zeus.telemetry._readings import NodeReader, NodeReading
from zeus.testing import SimulatedNode

LONG_ENOUGH = 120.0


class Driver(GpuDriver):
    """Answers by functions that a test puts in place."""

    def __init__(self, key: str = "GPU-test", *, may_hang: bool = False, **answers: Any) -> None:
        self.identity = GpuIdentity(key, "Test", "NVIDIA")
        self.may_hang = may_hang
        self.shared = False
        self.answers = answers
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in ANSWERS:
            return super().__getattribute__(name)

        def answer() -> Any:
            self.asked.append(name)
            if name not in self.answers:
                raise unsupported(name)
            return self.answers[name]()

        return answer


ANSWERS = {
    "energy", "instant_power", "average_power", "memory_power", "temperature", "utilization",
    "memory", "power_limit", "power_limits", "current_clocks",
}  # fmt: skip


def node_of(*drivers: GpuDriver, clock: Any = None, **parts: Any) -> Node:
    gpus = DeviceSet([Gpu(index, driver) for index, driver in enumerate(drivers)])
    return Node(clock or VirtualClock(), list(drivers), gpus, **parts)


def statuses(reading: NodeReading) -> dict[str, tuple[bool, str]]:
    return {each.name: (each.success, each.error) for each in reading.collectors}


def test_everything_that_a_gpu_has():
    node = SimulatedNode("v100x2", load=1.0)
    reader = NodeReader(node)
    first = reader.read()
    node.sleep(10.0)
    second = reader.read()
    assert second.at - first.at == 10.0
    for before, gpu in zip(first.gpus, second.gpus, strict=True):
        assert gpu.identity.name.startswith("Tesla V100")
        gained = present(gpu.energy) - present(before.energy)
        assert gained == pytest.approx(2500, abs=10)
        assert gpu.energy == pytest.approx(node.exact_energy(gpu.index), abs=10)
        assert (gpu.energy_method, gpu.power_method) == ("counter", "instant")
        assert (gpu.power, gpu.power_limit, gpu.utilization) == (pytest.approx(250), 250, 1)
        assert gpu.power_limits == PowerLimits(100, 250, 250)
        assert present(gpu.clocks).graphics > 1000
        assert present(gpu.memory).total > present(gpu.memory).used
        assert present(gpu.temperature) > 20
        assert gpu.holders == ()
    assert all(success for success, _ in statuses(second).values())
    assert set(statuses(second)) == {"discovery", "holds", "gpu0", "gpu1"}


def test_what_a_gpu_does_not_support_is_absent_and_no_failure():
    reading = NodeReader(node_of(Driver())).read()
    (gpu,) = reading.gpus
    values: list[object] = [
        gpu.energy,
        gpu.power,
        gpu.memory_power,
        gpu.power_limit,
        gpu.power_limits,
    ]
    values += [gpu.clocks, gpu.temperature, gpu.utilization, gpu.memory]
    assert values == [None] * 9
    assert statuses(reading)["gpu0"] == (True, "")


def test_what_is_not_supported_is_not_asked_each_time_but_again_later():
    driver = Driver(power_limit=lambda: 100.0)
    reader = NodeReader(node_of(driver))
    driver.asked.clear()
    for _ in range(50):
        reader.read()
    assert driver.asked.count("temperature") == 1
    driver.answers["temperature"] = lambda: 40.0
    for _ in range(100):
        reading = reader.read()
    assert reading.gpus[0].temperature == 40.0


def test_a_refused_reading_is_a_failure_and_costs_only_itself():
    def refused() -> float:
        raise CapabilityError(Reason.NO_PERMISSION, "power limit", "ask root")

    reading = NodeReader(node_of(Driver(power_limit=refused, temperature=lambda: 50.0))).read()
    (gpu,) = reading.gpus
    assert (gpu.power_limit, gpu.temperature) == (None, 50.0)
    success, error = statuses(reading)["gpu0"]
    assert not success
    assert "ask root" in error


@pytest.mark.parametrize("sentinel", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_absent(sentinel):
    driver = Driver(temperature=lambda: sentinel, energy=lambda: sentinel, utilization=lambda: 0.5)
    (gpu,) = NodeReader(node_of(driver)).read().gpus
    assert (gpu.temperature, gpu.energy, gpu.utilization) == (None, None, 0.5)


def test_a_lost_gpu_is_asked_nothing_else():
    def lost() -> Any:
        raise CapabilityError(Reason.LOST, "fell off the bus")

    driver = Driver(energy=lost, instant_power=lost, temperature=lambda: 30.0)
    other = Driver("GPU-other", temperature=lambda: 31.0)
    reading = NodeReader(node_of(driver, other)).read()
    assert "temperature" not in driver.asked
    assert [gpu.temperature for gpu in reading.gpus] == [None, 31.0]
    assert statuses(reading)["gpu0"][0] is False
    assert statuses(reading)["gpu1"] == (True, "")


def test_an_unexpected_error_costs_one_device():
    def wrong() -> Any:
        raise ZeroDivisionError("oops")

    reading = NodeReader(
        node_of(Driver(temperature=wrong), Driver("GPU-other", temperature=lambda: 31.0))
    ).read()
    assert [gpu.temperature for gpu in reading.gpus] == [31.0]
    assert statuses(reading)["gpu0"] == (False, "ZeroDivisionError: oops")


def test_a_mean_stands_in_for_instant_power_and_is_marked():
    (gpu,) = NodeReader(node_of(Driver(average_power=lambda: 123.0))).read().gpus
    assert (gpu.power, gpu.power_method) == (123.0, "average")


def test_without_a_counter_power_is_integrated_since_the_start():
    clock = VirtualClock()
    driver = Driver(instant_power=lambda: 150.0)
    reader = NodeReader(node_of(driver, clock=clock))
    energies = []
    for _ in range(5):
        clock.sleep(10.0)
        (gpu,) = reader.read().gpus
        energies.append(present(gpu.energy))
        assert gpu.energy_method == "integrated"
    assert energies[-1] == pytest.approx(150.0 * 50, rel=0.03)
    assert energies == sorted(energies)
    reader.close()
    reader.close()


def test_once_nothing_is_integrated():
    (gpu,) = NodeReader(node_of(Driver(instant_power=lambda: 9.0)), continuous=False).read().gpus
    assert (gpu.energy, gpu.power) == (None, 9.0)


def test_a_device_that_hangs_delays_no_other_and_comes_back():
    released = threading.Event()

    def hang() -> float:
        released.wait(LONG_ENOUGH)
        return 77.0

    def healthy(key: str) -> Driver:
        return Driver(key, may_hang=True, temperature=lambda: 30.0)

    stuck = Driver("GPU-stuck", may_hang=True, temperature=hang)
    node = node_of(healthy("GPU-a"), stuck, healthy("GPU-b"), clock=MonotonicClock())
    reader = NodeReader(node)
    try:
        for _ in range(3):
            reading = reader.read()
            assert [gpu.identity.key for gpu in reading.gpus] == ["GPU-a", "GPU-b"]
            assert [gpu.temperature for gpu in reading.gpus] == [30.0, 30.0]
            success, error = statuses(reading)["gpu1"]
            assert not success
            assert "did not answer" in error
            assert statuses(reading)["gpu2"] == (True, "")
        # The first reading waited for the device; the next ones know that it is stuck.
        assert next(each for each in reading.collectors if each.name == "gpu1").seconds < 1.0
    finally:
        released.set()
    for _ in range(1000):
        reading = reader.read()
        if len(reading.gpus) == 3:
            break
        threading.Event().wait(0.01)
    assert [gpu.temperature for gpu in reading.gpus] == [30.0, 77.0, 30.0]
    assert reader.read().gpus[1].temperature == 77.0
    assert reader._slow == set(), "it is read with the others again"


def test_wraparound_of_cpu_counters_is_corrected(tmp_path):
    powercap = Powercap(tmp_path)
    powercap.add("0", "package-0", RANGE - 5_000_000)
    powercap.add("0:0", "dram", 1_000_000)
    clock = VirtualClock()
    cpus, _ = rapl.discover(powercap.root)
    reader = NodeReader(Node(clock, cpus=DeviceSet(cpus)))
    first = reader.read().cpus[0]
    assert (first.energy, first.power, first.dram_energy) == (0.0, None, 0.0)
    powercap.set("0", 5_000_000 - 1)
    powercap.set("0:0", 3_000_000)
    clock.sleep(10.0)
    cpu = reader.read().cpus[0]
    assert (cpu.energy, cpu.dram_energy) == (pytest.approx(10.0), pytest.approx(2.0))
    assert (cpu.power, cpu.dram_power) == (pytest.approx(1.0), pytest.approx(0.2))


def test_wraparound_between_scrapes_that_are_far_apart(tmp_path):
    """The sampler polls counters that nobody scrapes."""
    powercap = Powercap(tmp_path)
    powercap.add("0", "package-0", 0)
    clock = VirtualClock()
    cpus, _ = rapl.discover(powercap.root)
    reader = NodeReader(Node(clock, cpus=DeviceSet(cpus)))
    true = 0
    for _ in range(60):  # an hour in steps of a minute, at 900 W: several wraps
        true += 900 * 60 * 1_000_000
        powercap.set("0", true % (RANGE + 1))
        clock.sleep(60.0)
    assert reader.read().cpus[0].energy == pytest.approx(900 * 3600, rel=0.02)


def test_a_restart_of_the_collector_is_a_reset_to_zero(tmp_path):
    powercap = Powercap(tmp_path)
    powercap.add("0", "package-0", RANGE - 1_000_000)
    shown = []
    for joules in (RANGE - 1_000_000, 2_000_000, 9_000_000):
        cpus, _ = rapl.discover(powercap.root)  # a new process knows of no wrap
        powercap.set("0", joules)
        reader = NodeReader(Node(VirtualClock(), cpus=DeviceSet(cpus)))
        shown.append(reader.read().cpus[0].energy)
    assert shown == [0.0, 0.0, 0.0], "else a database would add all that the counter shows"
    cpus, _ = rapl.discover(powercap.root)
    once = NodeReader(Node(VirtualClock(), cpus=DeviceSet(cpus)), continuous=False)
    assert once.read().cpus[0].energy == 9.0, "as the kernel shows it"


class Chip(Soc):
    name = "Board"

    def __init__(self, *, powers: Any = None, energies: Any = None) -> None:
        self._powers, self._energies = powers, energies

    def powers(self) -> Any:
        return self._powers

    def energies(self) -> Any:
        return self._energies


def test_rails_of_a_board_are_integrated():
    clock = VirtualClock()
    reader = NodeReader(Node(clock, soc=Chip(powers={"VDD_IN": 12.0, "VDD_GPU": 5.0})))
    clock.sleep(100.0)
    soc = present(reader.read().soc)
    assert soc.powers == {"VDD_IN": 12.0, "VDD_GPU": 5.0}
    assert soc.energies == pytest.approx({"VDD_IN": 1200, "VDD_GPU": 500}, rel=0.02)
    assert (soc.energy_method, soc.power_method) == ("integrated", "instant")


def test_counters_of_a_chip_give_mean_power():
    clock, chip = VirtualClock(), Chip(energies={"cpu": 10.0})
    reader = NodeReader(Node(clock, soc=chip))
    assert present(reader.read().soc).powers == {}
    chip._energies = {"cpu": 30.0}
    clock.sleep(4.0)
    soc = present(reader.read().soc)
    assert (soc.energies, soc.powers) == ({"cpu": 30.0}, {"cpu": 5.0})
    assert (soc.energy_method, soc.power_method) == ("counter", "mean")


def test_devices_that_an_operator_could_make_usable_are_a_failure():
    refused = Problem("CPU energy", CapabilityError(Reason.NO_PERMISSION, "energy_uj", "chmod"))
    absent = Problem("CPU energy", CapabilityError(Reason.UNSUPPORTED, "no RAPL"))
    failed = statuses(NodeReader(node_of(problems=[refused, absent])).read())["discovery"]
    assert failed == (False, str(refused))
    assert statuses(NodeReader(node_of(problems=[absent])).read())["discovery"] == (True, "")


@pytest.mark.parametrize("virtual", [True, False], ids=["in memory", "recorded"])
def test_holders_with_value_process_and_user(virtual):
    node = SimulatedNode("v100x2", clock=VirtualClock() if virtual else MonotonicClock())
    reader = NodeReader(node)
    assert [gpu.holders for gpu in reader.read().gpus] == [(), ()]
    with node.gpus[1].hold(power_limit=150, graphics_clock=(1000, 1200)) as hold:
        first, second = reader.read().gpus
        assert first.holders == ()
        found = {each.knob: (each.value, each.pid, each.owner.user) for each in second.holders}
        me = (os.getpid(), pwd.getpwuid(os.getuid()).pw_name)
        assert found == {"power_limit": (150, *me), "graphics_clock": (1200, *me)}
        hold.change(power_limit=175)
        values = {each.knob: each.value for each in reader.read().gpus[1].holders}
        assert values["power_limit"] == 175
    assert [gpu.holders for gpu in reader.read().gpus] == [(), ()]


def test_slices_of_a_gpu_count_once():
    first, second = (Driver("GPU-same", energy=lambda: 5.0) for _ in range(2))
    reading = NodeReader(node_of(first, second, Driver("GPU-other"))).read()
    assert [gpu.identity.key for gpu in reading.gpus] == ["GPU-same", "GPU-other"]


def test_a_gpu_of_many_values():
    driver = Driver(
        memory_power=lambda: 20.0,
        power_limits=lambda: PowerLimits(100, 300, 250),
        current_clocks=lambda: CurrentClocks(1400, None),
        memory=lambda: MemoryUse(1, 2),
    )
    (gpu,) = NodeReader(node_of(driver)).read().gpus
    assert (gpu.memory_power, present(gpu.clocks).memory) == (20.0, None)
    assert driver.asked.count("power_limits") == 1

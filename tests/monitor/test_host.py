"""CPU, DRAM and systems on a chip in windows, on directory trees written by the test."""

from __future__ import annotations

import json

import pytest
from tests.device.trees import Jetson
from tests.present import present

from zeus.clock import VirtualClock
from zeus.device._base import Cpu, CpuDriver, DeviceSet, Soc
from zeus.device._jetson import discover as discover_jetson
from zeus.device._node import Node
from zeus.errors import CapabilityError, Reason
from zeus.monitor import Measurement, Method, ZeusMonitor
from zeus.state._files import boot_id


class CountingCpu(CpuDriver):
    """A package whose counter wraps and must be asked often enough, as RAPL's."""

    def __init__(self, clock, watts, wrap=1000.0, dram=None):
        self.clock, self.watts, self.wrap, self.dram = clock, watts, wrap, dram
        self.wrap_period = wrap / 1000.0
        self.last = self._raw()
        self.total = 0.0
        self.broken = None

    def _raw(self):
        return self.clock.now() * self.watts % self.wrap

    def energy(self):
        if self.broken:
            raise self.broken
        raw = self._raw()
        self.total += (raw - self.last) % self.wrap
        self.last = raw
        return self.total

    def dram_energy(self):
        if self.dram is None:
            raise CapabilityError(Reason.UNSUPPORTED, "no DRAM counter")
        return self.clock.now() * self.dram


@pytest.fixture
def clock():
    return VirtualClock(10.0)


def node_with(clock, *drivers, soc=None):
    cpus = [Cpu(i, f"package-{i}", driver) for i, driver in enumerate(drivers)]
    return Node(clock, cpus=DeviceSet(cpus), soc=soc)


def test_cpu_and_dram_in_a_window(clock):
    monitor = ZeusMonitor(
        node=node_with(clock, CountingCpu(clock, 100.0, dram=20.0), CountingCpu(clock, 50.0))
    )
    monitor.begin_window("w")
    clock.sleep(3.0)
    measurement = monitor.end_window("w")
    assert measurement.cpu_energy == {0: pytest.approx(300.0), 1: pytest.approx(150.0)}
    assert measurement.dram_energy == {0: pytest.approx(60.0)}
    assert measurement.total_energy == 0.0
    assert measurement.energy == pytest.approx(510.0)
    assert measurement.complete


def test_packages_of_two_machines_are_two_and_those_of_one_machine_one(clock):
    monitor = ZeusMonitor(node=node_with(clock, CountingCpu(clock, 100.0, dram=20.0)))
    monitor.begin_window("w")
    clock.sleep(3.0)
    here = monitor.end_window("w")
    there = Measurement.from_dict(json.loads(here.to_json().replace(boot_id(), "another boot")))
    assert Measurement.combined([here, here]).energy == pytest.approx(360.0)
    together = Measurement.combined([here, here, there])
    assert together.cpu_energy == {0: pytest.approx(300.0), 1: pytest.approx(300.0)}
    assert together.energy == pytest.approx(720.0)


def test_a_counter_that_wraps_many_times_in_one_window(clock):
    """The sampler looks often enough on the way; three hours of 100 W wrap 1,080 times."""
    monitor = ZeusMonitor(node=node_with(clock, CountingCpu(clock, 100.0)))
    monitor.begin_window("w")
    for _ in range(108):
        for _ in range(40):
            clock.sleep(2.5)
    assert monitor.end_window("w").cpu_energy == {0: pytest.approx(1.08e6)}


def test_one_package_that_fails_costs_only_itself(clock):
    broken = CountingCpu(clock, 100.0)
    monitor = ZeusMonitor(node=node_with(clock, broken, CountingCpu(clock, 50.0)))
    monitor.begin_window("w")
    clock.sleep(2.0)
    broken.broken = CapabilityError(Reason.LOST, "energy_uj vanished")
    measurement = monitor.end_window("w")
    assert measurement.cpu_energy == {1: pytest.approx(100.0)}
    assert [(r.index, r.method) for r in measurement.unavailable] == [(0, Method.UNAVAILABLE)]
    assert "energy_uj vanished" in measurement.unavailable[0].note


def test_chosen_packages_only(clock):
    monitor = ZeusMonitor(
        cpu_indices=[1],
        node=node_with(clock, CountingCpu(clock, 100.0), CountingCpu(clock, 50.0)),
    )
    monitor.begin_window("w")
    clock.sleep(2.0)
    assert monitor.end_window("w").cpu_energy == {1: pytest.approx(100.0)}


class AppleLike(Soc):
    name = "Apple M2"

    def __init__(self, clock):
        self.clock = clock
        self.broken = None

    def energies(self):
        if self.broken:
            raise self.broken
        return {"cpu": 5.0 * self.clock.now(), "gpu": 8.0 * self.clock.now()}


def test_system_on_a_chip_with_counters(clock):
    monitor = ZeusMonitor(node=node_with(clock, soc=AppleLike(clock)))
    monitor.begin_window("w")
    clock.sleep(4.0)
    measurement = monitor.end_window("w")
    assert measurement.soc_energy == {"cpu": pytest.approx(20.0), "gpu": pytest.approx(32.0)}
    assert measurement.energy == pytest.approx(52.0)


def test_a_chip_that_fails_costs_only_itself(clock):
    chip = AppleLike(clock)
    monitor = ZeusMonitor(node=node_with(clock, CountingCpu(clock, 50.0), soc=chip))
    monitor.begin_window("whole")
    chip.broken = CapabilityError(Reason.LOST, "energy counters of macOS: busy")
    monitor.begin_window("first half")
    clock.sleep(2.0)
    first_half = monitor.end_window("first half")
    assert first_half.cpu_energy == {0: pytest.approx(100.0)}
    assert first_half.soc_energy is None
    assert {r.index: r.note for r in first_half.unavailable} == {
        "cpu": str(chip.broken),
        "gpu": str(chip.broken),
    }
    chip.broken = None
    clock.sleep(2.0)
    assert present(monitor.end_window("whole").soc_energy)["gpu"] == pytest.approx(32.0)


def test_a_chip_that_does_not_answer_at_first_is_not_left_out(clock):
    chip = AppleLike(clock)
    chip.broken = CapabilityError(Reason.LOST, "energy counters of macOS: busy")
    monitor = ZeusMonitor(node=node_with(clock, soc=chip))
    monitor.begin_window("w")
    clock.sleep(1.0)
    assert not monitor.end_window("w").complete


def test_what_a_chip_only_estimates_is_marked(clock):
    chip = AppleLike(clock)
    chip.estimated = True
    monitor = ZeusMonitor(node=node_with(clock, soc=chip))
    monitor.begin_window("w")
    clock.sleep(4.0)
    measurement = monitor.end_window("w")
    assert measurement.energy == pytest.approx(52.0)
    assert {reading.method for reading in measurement.readings} == {Method.ESTIMATED}


class Rails(Soc):
    """A board with two rails, of which each may fail."""

    name = "Jetson"

    def __init__(self):
        self.watts = {"vdd_gpu": 20.0, "vdd_cpu": 5.0}

    def powers(self):
        if not self.watts:
            raise CapabilityError(Reason.LOST, "no rail answers")
        return dict(self.watts)


def test_a_rail_that_fails_for_a_moment_keeps_its_place(clock):
    board = Rails()
    monitor = ZeusMonitor(node=node_with(clock, soc=board))
    monitor.begin_window("w")
    for missing in (False, True, False):
        board.watts = {"vdd_gpu": 20.0} if missing else {"vdd_gpu": 20.0, "vdd_cpu": 5.0}
        for _ in range(10):
            clock.sleep(0.1)
    assert monitor.end_window("w").soc_energy == {
        "vdd_gpu": pytest.approx(60.0),
        "vdd_cpu": pytest.approx(15.0),
    }


def test_a_rail_that_fails_for_good_is_not_guessed(clock):
    board = Rails()
    monitor = ZeusMonitor(node=node_with(clock, soc=board))
    monitor.begin_window("w")
    clock.sleep(1.0)
    board.watts.pop("vdd_cpu")
    for _ in range(20):
        clock.sleep(0.1)
    measurement = monitor.end_window("w")
    assert measurement.soc_energy == {"vdd_gpu": pytest.approx(60.0)}
    assert [reading.index for reading in measurement.unavailable] == ["vdd_cpu"]


def test_a_board_that_never_answers_says_so(clock):
    board = Rails()
    board.watts.clear()
    monitor = ZeusMonitor(node=node_with(clock, soc=board))
    monitor.begin_window("w")
    clock.sleep(1.0)
    (reading,) = monitor.end_window("w").unavailable
    assert "no rail answers" in reading.note


def test_jetson_rails_are_integrated_and_the_board_not_added_to_its_parts(clock, tmp_path):
    tree = Jetson(tmp_path)
    device = tree.hwmon("1-0040", {1: ("VDD_IN", 5000, 2000), 2: ("VDD_CPU", 5000, 400)})
    assert device is not None
    soc, problems = discover_jetson(tmp_path)
    assert not problems
    monitor = ZeusMonitor(node=node_with(clock, soc=soc))
    monitor.begin_window("w")
    clock.sleep(3.0)
    measurement = monitor.end_window("w")
    assert measurement.soc_energy == {
        "vdd_in": pytest.approx(30.0),
        "vdd_cpu": pytest.approx(6.0),
    }
    assert measurement.energy == pytest.approx(30.0)
    assert all(r.method is Method.INTEGRATED for r in measurement.readings)

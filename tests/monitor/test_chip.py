"""Power over time of the parts of a system on a chip."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.clock import VirtualClock
from zeus.device._base import Soc
from zeus.device._node import Node
from zeus.errors import CapabilityError, Reason
from zeus.monitor import PowerMonitor


class Chip(Soc):
    """Draws 10 W on its CPU, and on its GPU 20 W for a second, then 40 W; counts what it reads."""

    def __init__(self, clock):
        self.clock = clock
        self.reads = 0
        self.error = None
        self.missing = set()

    def _told(self, figures):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return {part: value for part, value in figures.items() if part not in self.missing}


class Metered(Chip):
    """As a Jetson."""

    def powers(self):
        return self._told({"cpu": 10.0, "gpu": 20.0 if self.clock.now() < 1.0 else 40.0})


class Counted(Chip):
    """As Apple's."""

    def energies(self):
        now = self.clock.now()
        return self._told({"cpu": 10.0 * now, "gpu": 20.0 * min(now, 1.0) + 40.0 * max(now - 1, 0)})


@pytest.fixture(params=[Metered, Counted])
def chip(request):
    return request.param(VirtualClock())


def let_pass(chip, seconds):
    for _ in range(round(seconds * 10)):
        chip.clock.sleep(0.1)


def test_all_parts_over_time(chip):
    monitor = PowerMonitor(node=Node(chip.clock, soc=chip))
    before = chip.reads
    let_pass(chip, 3.0)
    assert monitor.soc_parts == ["cpu", "gpu"]
    assert monitor.get_soc_energy(0.0, 3.0) == {
        "cpu": pytest.approx(30.0, rel=0.01),
        "gpu": pytest.approx(100.0, rel=0.03),
    }
    timelines = monitor.get_soc_timeline()
    assert all(watts == pytest.approx(10.0) for _, watts in timelines["cpu"])
    assert timelines["gpu"][-1][1] == pytest.approx(40.0)
    assert len(timelines["gpu"]) > 20
    assert monitor.get_soc_timeline("cpu", 1.0, 2.0).keys() == {"cpu"}
    # Once for both parts.
    assert chip.reads - before < 1.5 * len(timelines["gpu"])


def test_a_part_that_falls_silent_costs_only_itself(chip):
    monitor = PowerMonitor(node=Node(chip.clock, soc=chip))
    let_pass(chip, 1.0)
    chip.missing.add("gpu")
    let_pass(chip, 2.0)
    assert monitor.get_soc_energy(0.0, 3.0) == {"cpu": pytest.approx(30.0, rel=0.01)}
    assert "gpu does not answer" in str(monitor.unavailable["soc gpu", 0])
    chip.missing.clear()
    let_pass(chip, 2.0)
    assert present(monitor.get_soc_energy(0.0, 5.0)).keys() == {"cpu", "gpu"}
    assert monitor.unavailable == {}


def test_a_chip_that_does_not_answer_is_told(chip):
    chip.error = CapabilityError(Reason.LOST, "busy")
    monitor = PowerMonitor(node=Node(chip.clock, soc=chip))
    assert monitor.soc_parts == []
    assert monitor.unavailable["soc", 0] is chip.error
    assert monitor.get_soc_energy(0.0, 1.0) is None


def test_wrong_questions_name_the_rule_and_the_value(chip):
    monitor = PowerMonitor(node=Node(chip.clock, soc=chip))
    with pytest.raises(ValueError, match=r"among \['cpu', 'gpu'\], but got 'npu'"):
        monitor.get_soc_timeline("npu")
    with pytest.raises(ValueError, match="start_time=2, end_time=1"):
        monitor.get_soc_energy(2, 1)


def test_only_the_first_rank_of_a_node_follows_it(chip, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert PowerMonitor(node=Node(chip.clock, soc=chip)).soc_parts == []
    assert chip.reads == 0

"""Energy by job on simulated GPUs, beside what processes have really consumed."""

from __future__ import annotations

import json
import logging
import os
import random

import pytest
from tests.device.nvml_rig import WITH_SIMULATION, rigs

from simulated_drivers import GpuSpec
from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._base import ProcessUsage, unsupported
from zeus.device._process_owner import ProcessOwner
from zeus.device._simulated_state import IDLE
from zeus.errors import CapabilityError, Reason
from zeus.telemetry._job_energy import IDLE_LABELS, JOB_LABELS, JobEnergyMeter
from zeus.telemetry._job_totals import Job, JobTotals
from zeus.testing import SimulatedNode

OWNERS = {
    1: ProcessOwner(1, 1000, "ada", slurm_job="17"),
    2: ProcessOwner(2, 1001, "", pod="74c13223-5a00-11e9-b385-42010a80018d"),
    3: ProcessOwner(3, 1000, "ada", slurm_job="17"),
}


class Machine:
    """A simulated GPU with a meter."""

    def __init__(self, part: str, file=None) -> None:
        self.node = SimulatedNode(part, clock=VirtualClock())
        (self.driver,) = self.node.drivers
        self.begin = self.driver.energy()
        self.meter = JobEnergyMeter(self.node, file, OWNERS.get)

    def sleep(self, seconds: float) -> None:
        # A virtual clock skips alarms in the middle of a long sleep.
        end = self.node.clock.now() + seconds
        while (left := end - self.node.clock.now()) > 0:
            self.node.sleep(min(0.05, left))

    def load(self, *loads: tuple[int, float, float]) -> None:
        for pid, activity, share in loads:
            self.driver.set_process_load(pid, activity, share)

    def jobs(self) -> dict[str, float]:
        return {labels[JOB_LABELS.index("user")]: joules for labels, joules in self.energies()}

    def energies(self):
        return self.meter.job_energy()

    def idle(self) -> float:
        ((_, joules),) = self.meter.idle_energy()
        return joules

    def gained(self) -> float:
        return self.driver.energy() - self.begin


@pytest.fixture(params=["v100", "a100", "h100", "mi300x"])
def machine(request) -> Machine:
    return Machine(request.param)


def start(machine: Machine) -> None:
    machine.sleep(10)
    machine.load((1, 0.0, 1.0), (2, 0.0, 1.0))
    machine.sleep(5)


def end(machine: Machine) -> None:
    machine.load((1, IDLE, 1.0), (2, IDLE, 1.0))
    machine.sleep(6)
    divided = sum(machine.jobs().values()) + machine.idle()
    assert divided == pytest.approx(machine.gained(), rel=0.005)
    for pid, user in ((1, "ada"), (2, "1001")):
        assert machine.jobs()[user] == pytest.approx(machine.driver.process_energy(pid), rel=0.03)


@pytest.mark.parametrize("length", [1.0, 7.0])
def test_jobs_that_take_turns(machine, length):
    start(machine)
    for turn in range(int(120 / length)):
        first = turn % 2 == 0
        machine.load((1, 0.9 if first else 0.0, 1.0), (2, 0.0 if first else 0.4, 1.0))
        machine.sleep(length if first else 1.3 * length)
    end(machine)


def test_jobs_that_share(machine):
    chance = random.Random(8)
    start(machine)
    for _ in range(60):
        machine.load((1, 0.9, chance.uniform(0.3, 0.6)), (2, 0.4, chance.uniform(0.1, 0.4)))
        machine.sleep(chance.uniform(0.5, 4))
    end(machine)


def test_a_job_alone_is_polled_rarely_and_exact(machine):
    machine.sleep(10)
    machine.load((1, 0.8, 0.6), (3, 0.8, 0.3))  # two processes of one job
    polls = 0
    fire = machine.meter.fire

    def counted() -> None:
        nonlocal polls
        polls += 1
        fire()

    machine.meter.fire = counted
    machine.sleep(60)
    assert polls <= 62
    machine.sleep(30)
    polls = 0
    machine.sleep(60)
    assert polls <= 32
    machine.load((1, IDLE, 1.0), (3, IDLE, 1.0))
    machine.sleep(6)
    true = machine.driver.process_energy(1) + machine.driver.process_energy(3)
    assert machine.jobs() == {"ada": pytest.approx(true, rel=0.01)}


def test_labels():
    machine = Machine("v100")
    machine.load((1, 1.0, 0.5), (2, 1.0, 0.5), (99, 0.0, 1.0))
    machine.sleep(5)
    (gpu,) = machine.node.gpus
    rows = {labels for labels, _ in machine.energies()}
    assert rows == {
        ("0", gpu.key, "ada", "17", "", "usage"),
        ("0", gpu.key, "1001", "", OWNERS[2].pod, "usage"),
        ("0", gpu.key, "", "", "", "usage"),  # a process of which nothing is known
    }
    assert all(len(labels) == len(JOB_LABELS) for labels in rows)
    assert machine.meter.idle_energy()[0][0] == ("0", gpu.key)
    assert len(IDLE_LABELS) == 2
    assert machine.meter.errors() == {}


def test_a_number_that_is_used_again_is_another_process(monkeypatch):
    machine = Machine("v100")
    machine.load((1, 1.0, 1.0))
    machine.sleep(5)
    machine.load((1, IDLE, 1.0))
    machine.sleep(5)
    before = machine.jobs()["ada"]
    monkeypatch.setitem(OWNERS, 1, ProcessOwner(1, 5, "bob"))
    machine.load((1, 1.0, 1.0))
    machine.sleep(5)
    assert machine.jobs()["ada"] == before
    assert machine.jobs()["bob"] > 0


def test_where_usage_is_not_reported_all_processes_count_alike(monkeypatch):
    def refused(self, since: float) -> ProcessUsage:
        raise unsupported("usage by process")

    monkeypatch.setattr(type(SimulatedNode("v100").drivers[0]), "process_usage", refused)
    machine = Machine("v100")
    machine.sleep(10)
    machine.load((1, 0.9, 0.5), (2, 0.3, 0.5))
    machine.sleep(30)
    jobs = machine.jobs()
    assert {labels[-1] for labels, _ in machine.energies()} == {"equal"}
    assert jobs["ada"] == pytest.approx(jobs["1001"])
    assert sum(jobs.values()) + machine.idle() == pytest.approx(machine.gained(), rel=0.06)


# Restarts.


def test_totals_outlive_processes_and_the_exporter(tmp_path):
    file = tmp_path / "state" / "jobs.json"
    machine = Machine("v100", file)
    machine.sleep(10)
    machine.load((1, 1.0, 1.0))
    machine.sleep(40)
    machine.load((1, IDLE, 1.0))
    machine.sleep(5)
    before, idle = machine.jobs(), machine.idle()
    machine.meter.close()
    machine.sleep(20)
    assert machine.jobs() == before, "closed"
    machine.meter = JobEnergyMeter(machine.node, file, OWNERS.get)
    assert machine.jobs() == before
    assert machine.idle() == idle
    assert machine.meter.totals.idle_power == {
        machine.node.gpus[0].key: pytest.approx(25, rel=0.02)
    }
    machine.load((1, 1.0, 1.0))
    machine.sleep(10)
    assert machine.jobs()["ada"] > before["ada"]


def test_totals_are_kept_all_the_time(tmp_path):
    machine = Machine("v100", tmp_path / "jobs.json")
    machine.load((1, 1.0, 1.0))
    machine.sleep(65)
    kept = JobTotals(tmp_path / "jobs.json").jobs
    assert sum(kept.values()) > 0.4 * sum(machine.jobs().values())


def record(version: int = 1, jobs: str = "[]", idle: str = "{}") -> str:
    return f'{{"version": {version}, "jobs": {jobs}, "idle": {idle}, "idle_power": {{}}}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        record(2),
        record(jobs='[["g", "", "", "ada", "usage", -1.0, 0]]'),
        record(jobs='[["g", "", "", 7, "usage", 1.0, 0]]'),
        record(idle='{"g": NaN}'),
    ],
)
def test_totals_that_cannot_be_read_are_kept_and_named(tmp_path, caplog, text):
    file = tmp_path / "jobs.json"
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        totals = JobTotals(file)
    assert (totals.jobs, totals.idle) == ({}, {})
    assert (tmp_path / "jobs.json.unreadable").read_text() == text
    assert "jobs.json.unreadable" in caplog.text
    totals.add(Job("g", user="ada"), 3.0)
    totals.save()
    assert JobTotals(file).jobs == {Job("g", user="ada"): 3.0}


def test_jobs_that_ended_long_ago_are_forgotten(tmp_path):
    file = tmp_path / "jobs.json"
    rows = [["g", "1", "", "ada", "usage", 1.0, 0.0]]
    file.write_text(json.dumps({"version": 1, "jobs": rows, "idle": {}, "idle_power": {}}))
    totals = JobTotals(file)
    assert len(totals.jobs) == 1
    totals.save()
    assert JobTotals(file).jobs == {}


def test_a_directory_that_cannot_be_written_is_named_once_per_attempt(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    totals = JobTotals()
    totals._file = tmp_path / "file" / "jobs.json"
    totals.save()
    assert "not kept" in caplog.text


# A real driver library.


def test_a_process_of_this_machine_through_nvml(tmp_path, nvml_library):
    with rigs(tmp_path, nvml_library, WITH_SIMULATION) as make:
        machine = make(GpuSpec(watts=300.0, compute_processes=[(os.getpid(), 2**30)]))
        machine.simulation.set_process_usage(0, {os.getpid(): 1.0})
        rows = machine.ask(
            """
from zeus.device import current_node
from zeus.telemetry._job_energy import JobEnergyMeter
meter = JobEnergyMeter(current_node())
deadline = time.monotonic() + 120
while not meter.job_energy() or meter.job_energy()[0][1] < 300:
    assert time.monotonic() < deadline, meter.errors()
    time.sleep(0.1)
say(meter.job_energy())
"""
        )
    ((labels, joules),) = rows
    import pwd

    assert labels[JOB_LABELS.index("user")] == pwd.getpwuid(os.getuid()).pw_name
    assert labels[5] == "usage"
    assert joules >= 300


def test_a_lost_gpu_is_an_error_and_comes_back(monkeypatch):
    machine = Machine("v100")
    machine.load((1, 1.0, 1.0))
    machine.sleep(5)
    before = machine.jobs()["ada"]

    def lost(_: Gpu) -> float:
        raise CapabilityError(Reason.LOST, "it fell off the bus")

    monkeypatch.setattr(Gpu, "energy", lost)
    machine.sleep(5)
    assert list(machine.meter.errors()) == [machine.node.gpus[0].key]
    monkeypatch.undo()
    machine.sleep(5)
    assert machine.meter.errors() == {}
    assert machine.jobs()["ada"] == pytest.approx(before + 5 * 250, rel=0.4)

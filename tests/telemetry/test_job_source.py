"""The energy of jobs as metrics of an exporter, across its restarts."""

from __future__ import annotations

import os
import pwd

import pytest

from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._base import unsupported
from zeus.errors import CapabilityError, Reason
from zeus.telemetry._collection import Telemetry
from zeus.testing import SimulatedNode

USER = pwd.getpwuid(os.getuid()).pw_name
JOBS, IDLE = "zeus_job_energy_joules_total", "zeus_gpu_idle_energy_joules_total"


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path))


class Node:
    """A simulated GPU on which this process runs."""

    def __init__(self) -> None:
        self.node = SimulatedNode("v100", clock=VirtualClock())
        (self.driver,) = self.node.drivers

    def run(self, seconds: float) -> None:
        self.driver.set_process_load(os.getpid(), 1.0)
        for _ in range(int(20 * seconds)):
            self.node.sleep(0.05)


def joules(telemetry: Telemetry, metric: str) -> float:
    """The joules of the only sample; 0 if there is none."""
    samples = [
        (dict(zip(family.metric.labels, labels, strict=True)), value)
        for family in telemetry.collect()
        for labels, value in family.samples
        if family.metric.name == metric
    ]
    assert all(labels.get("user", USER) == USER for labels, _ in samples)
    return sum(value for _, value in samples)


def success(telemetry: Telemetry) -> dict[str, float]:
    (family,) = (f for f in telemetry.collect() if f.metric.name == "zeus_collector_success")
    return {name: value for (name,), value in family.samples}


def test_energy_goes_on_after_a_restart_of_the_exporter():
    node = Node()
    first = Telemetry(node.node)
    node.run(20)
    before = joules(first, JOBS)
    assert before > 3000
    first.close()
    second = Telemetry(node.node)
    assert joules(second, JOBS) == before
    node.run(20)
    assert joules(second, JOBS) > before + 3000
    second.close()


def test_two_exporters_do_not_write_one_file(caplog):
    node = Node()
    first, second = Telemetry(node.node), Telemetry(node.node)
    assert "another exporter" in caplog.text
    node.run(20)
    before = joules(first, JOBS)
    first.close()
    node.run(20)
    assert joules(second, JOBS) > 1.5 * before
    second.close()
    third = Telemetry(node.node)
    assert joules(third, JOBS) == before
    third.close()


def test_a_directory_that_cannot_be_written_costs_only_what_was_before(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "file"))
    node = Node()
    telemetry = Telemetry(node.node)
    node.run(20)
    assert joules(telemetry, JOBS) > 3000
    assert "not kept" in caplog.text
    telemetry.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(unsupported("energy"), 1), (CapabilityError(Reason.LOST, "gone"), 0)],
    ids=["no counter", "lost"],
)
def test_a_gpu_without_a_counter_is_no_failure_and_one_that_is_lost_is(
    monkeypatch, error, expected
):
    def refused(_: Gpu) -> float:
        raise error

    monkeypatch.setattr(Gpu, "energy", refused)
    node = Node()
    telemetry = Telemetry(node.node)
    node.run(5)
    assert success(telemetry)["jobs"] == expected
    telemetry.close()


def test_a_single_reading_measures_nothing():
    telemetry = Telemetry(SimulatedNode("v100"), continuous=False)
    assert "jobs" not in success(telemetry)
    telemetry.close()

"""All metrics of a node together: sources, their errors, and what is logged."""

from __future__ import annotations

from collections.abc import Iterable

from zeus.telemetry._collection import Telemetry
from zeus.telemetry._metrics import Family, Metric
from zeus.telemetry._readings import NodeReading
from zeus.testing import SimulatedNode

JOB_ENERGY = Metric("zeus_job_energy_joules_total", "Energy by job.", ("user",))


class JobEnergy:
    name = "jobs"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.problem = ""
        self.closed = False

    def families(self, reading: NodeReading) -> Iterable[Family]:
        if self.error is not None:
            raise self.error
        return [Family(JOB_ENERGY, [(("ada",), sum(gpu.energy or 0.0 for gpu in reading.gpus))])]

    def close(self) -> None:
        self.closed = True


def values(telemetry: Telemetry) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (family.metric.name, labels): value
        for family in telemetry.collect()
        for labels, value in family.samples
    }


def test_a_source_adds_metrics_and_its_success(caplog):
    source = JobEnergy()
    telemetry = Telemetry(SimulatedNode("v100", load=1.0), sources=[lambda _: source])
    assert values(telemetry)["zeus_job_energy_joules_total", ("ada",)] >= 0
    assert values(telemetry)["zeus_collector_success", ("jobs",)] == 1
    source.error = ZeroDivisionError("oops")
    for _ in range(3):
        found = values(telemetry)
    assert found["zeus_collector_success", ("jobs",)] == 0
    assert ("zeus_job_energy_joules_total", ("ada",)) not in found
    assert ("zeus_collector_duration_seconds", ("jobs",)) in found
    assert found["zeus_collector_success", ("gpu0",)] == 1, "the others are not affected"
    source.error = None
    values(telemetry)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "collector jobs: ZeroDivisionError: oops",
        "collector jobs: works again",
    ]
    telemetry.close()
    assert source.closed

"""Every panel of the dashboard has data in a real Prometheus that scraped a node for an hour.

The hour passes in virtual time on a simulated node that trains with two optimizers; its scrapes are
given to Prometheus as what it scraped then. A second node is scraped for real.
"""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.support import end_all, start
from tests.device.trees import RANGE, Powercap
from tests.prometheus import Prometheus

from zeus.cli.export import dashboard
from zeus.device import _rapl as rapl
from zeus.device._base import DeviceSet, Soc
from zeus.device._node import Node, override
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalFrequencyOptimizer, GlobalPowerLimitOptimizer
from zeus.telemetry import TrainingTelemetry
from zeus.telemetry._collection import Telemetry, all_metrics
from zeus.telemetry._metrics import Family, Kind
from zeus.telemetry._text_format import TextFormat
from zeus.testing import SimulatedNode, Workload

HOUR, EVERY = 3600.0, 15.0
STEP = Workload("step", gpu_time=13.5, host_time=1.5)
CPU_WATTS, DRAM_WATTS = 180.0, 20.0


def panels() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for panel in json.loads(dashboard())["panels"]:
        for target in panel.get("targets", ()):
            found.append((f"{panel['title']} {target['refId']}", target))
    return found


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bzeus_[a-z_]+", text))


PUBLISHED = {metric.name for metric in all_metrics()}
TARGETS = dict(panels())


def test_the_dashboard_shows_all_metrics_and_no_others():
    shown = set().union(*(metrics_in(target["expr"]) for _, target in panels()))
    assert shown == PUBLISHED


def test_the_dashboard_is_well_formed():
    page = json.loads(dashboard())
    numbers = [panel["id"] for panel in page["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for name, target in panels():
        legend = re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
        known = {"instance", "name"}
        for metric in all_metrics():
            if metric.name in target["expr"]:
                known |= set(metric.labels)
        assert set(legend) <= known, name


class Board(Soc):
    """A chip that meters one rail."""

    name = "Board"
    total_rail = "VDD_IN"

    def powers(self) -> dict[str, float]:
        return {"VDD_IN": 12.0}


@dataclass
class Hour:
    """An hour of a simulated node in a Prometheus.

    Attributes:
        begin: First scrape, in Unix time.
        end: Last scrape.
        energies: Joules of each GPU between them, exactly.
    """

    begin: float
    end: float
    energies: list[float]


class Node1:
    """A simulated node in virtual time with GPUs, CPUs and a chip, which trains."""

    def __init__(self, folder: Path) -> None:
        self.simulated = SimulatedNode("h100x2")
        self._powercap = Powercap(folder)
        self._powercap.add("0", "package-0", RANGE - 1_000_000_000)
        self._powercap.add("0:0", "dram", 0)
        cpus, _ = rapl.discover(self._powercap.root)
        self.node = Node(
            self.simulated.clock,
            self.simulated.drivers,
            self.simulated.gpus,
            DeviceSet(cpus),
            Board(),
        )

    def host_consumes(self) -> None:
        at = self.simulated.clock.now()
        cpu = RANGE - 1_000_000_000 + round(CPU_WATTS * at * 1e6)
        self._powercap.set("0", cpu % (RANGE + 1))
        self._powercap.set("0:0", round(DRAM_WATTS * at * 1e6))

    def memory_clock(self) -> int:
        return self.node.gpus[1].supported_clocks().memory[0]

    def energies(self) -> list[float]:
        return [self.simulated.exact_energy(gpu) for gpu in range(2)]


def simulated_hour(prometheus: Prometheus, folder: Path) -> Hour:
    """Give Prometheus the scrapes of an hour in which a simulated node trained."""
    one = Node1(folder)
    end = time.time() - 120.0
    begin = end - HOUR
    scrapes: list[tuple[float, list[Family]]] = []
    energies: list[list[float]] = []
    with override(one.node), one.node.gpus[1].hold(memory_clock=one.memory_clock()):
        telemetry = Telemetry(one.node, version="test")
        callbacks: list[Any] = []
        for gpu, kind in enumerate((GlobalPowerLimitOptimizer, GlobalFrequencyOptimizer)):
            monitor = ZeusMonitor(gpu_indices=[gpu])
            optimizer = kind(monitor, None, 1, 0, 2)
            named = TrainingTelemetry(monitor, optimizer, job=f"job {gpu}", batch_size=32)
            callbacks += [optimizer, named]
        clock, due = one.node.clock, 0.0
        while clock.now() <= HOUR + EVERY:
            one.host_consumes()
            if clock.now() >= due:
                scrapes.append((begin + clock.now(), telemetry.collect()))
                energies.append(one.energies())
                due += EVERY
            for callback in callbacks:
                callback.on_step_begin()
            STEP.run(one.node.gpus)
            for callback in callbacks:
                callback.on_step_end()
        for callback in callbacks:
            callback.close()
        telemetry.close()
    prometheus.backfill(openmetrics(scrapes))
    gained = [last - first for first, last in zip(energies[0], energies[-1], strict=True)]
    return Hour(scrapes[0][0], scrapes[-1][0], gained)


def openmetrics(scrapes: list[tuple[float, list[Family]]]) -> str:
    lines: dict[str, list[str]] = {}
    for at, families in scrapes:
        for family in families:
            metric = family.metric
            counter = metric.kind is Kind.COUNTER
            name = metric.name.removesuffix("_total") if counter else metric.name
            own = lines.setdefault(metric.name, [f"# TYPE {name} {metric.kind}"])
            for values, value in family.samples:
                labels = {"job": "zeus", "instance": "node1"}
                labels |= zip(metric.labels, values, strict=True)
                text = ",".join(f"{key}={json.dumps(each)}" for key, each in labels.items())
                own.append(f"{metric.name}{{{text}}} {value!r} {at:.3f}")
    # Within a series in order of time, and one series after the other.
    return "\n".join([*(line for own in lines.values() for line in own), "# EOF", ""])


def expression(target: dict[str, Any], instance: str = "node1") -> str:
    text = str(target["expr"])
    for variable, value in (("$instance", instance), ("$__rate_interval", "1m")):
        text = text.replace(variable, value)
    return text.replace("$__range", f"{HOUR:.0f}s")


@pytest.mark.slow
def test_every_panel_has_data_and_energies_are_right(prometheus: Prometheus, tmp_path: Path):
    """One test, because the hour takes half a minute to simulate."""
    hour = simulated_hour(prometheus, tmp_path)
    prometheus.start()
    empty = [name for name, target in TARGETS.items() if not has_data(prometheus, hour, target)]
    assert empty == []
    check_energies(prometheus, hour)


def has_data(prometheus: Prometheus, hour: Hour, target: dict[str, Any]) -> bool:
    query = expression(target)
    if target.get("instant"):
        series = [[each["value"]] for each in prometheus.query(query, hour.end)]
    else:
        found = prometheus.query_range(query, hour.begin + 60.0, hour.end)
        series = [each["values"] for each in found]
    values = [float(value) for points in series for _, value in points]
    assert not any(math.isinf(value) for value in values), query
    return any(math.isfinite(value) for value in values)


def check_energies(prometheus: Prometheus, hour: Hour) -> None:
    window = hour.end - hour.begin
    for metric, truths in (
        ("zeus_gpu_energy_joules_total", hour.energies),
        ("zeus_cpu_energy_joules_total", [CPU_WATTS * window]),
        ("zeus_dram_energy_joules_total", [DRAM_WATTS * window]),
        ("zeus_soc_energy_joules_total", [12.0 * window]),
    ):
        query = f'increase({metric}{{instance="node1"}}[{HOUR:.0f}s])'
        joules = [float(each["value"][1]) for each in prometheus.query(query, hour.end)]
        # It extrapolates from the samples to the ends of the hour.
        truth = [each * HOUR / window for each in truths]
        assert joules == pytest.approx(truth, rel=0.01), metric
    divided = [
        float(each["value"][1])
        for metric in ("zeus_job_energy_joules_total", "zeus_gpu_idle_energy_joules_total")
        for each in prometheus.query(f"sum by (gpu) (increase({metric}[{HOUR:.0f}s]))", hour.end)
    ]
    assert len(divided) == 4
    assert sum(divided) == pytest.approx(sum(hour.energies) * HOUR / window, rel=0.02)


def test_a_live_exporter_is_scraped(prometheus: Prometheus):
    exporter = start("export", "--listen", "127.0.0.1:0", variables={"ZEUS_SIMULATE": "v100x2"})
    assert exporter.stdout is not None
    prometheus.start([exporter.stdout.readline().split("/")[2]])

    def rising() -> bool:
        found = prometheus.query("rate(zeus_gpu_energy_joules_total[30s])")
        return len(found) == 2 and all(float(each["value"][1]) > 0 for each in found)

    prometheus.wait_for(rising)
    (up,) = prometheus.query("up")
    assert up["value"][1] == "1"
    query = expression(TARGETS["Power now and limit A"], up["metric"]["instance"])
    assert [each["value"][1] for each in prometheus.query(query)] == ["250", "250"]
    end_all()


def test_a_query_of_nothing_has_no_data(prometheus: Prometheus):
    prometheus.start()
    hour = Hour(time.time() - HOUR, time.time(), [])
    for instant in (True, False):
        assert not has_data(prometheus, hour, {"expr": "zeus_no_such_metric", "instant": instant})


def test_prometheus_finds_no_fault_with_names_and_documented_files(
    prometheus: Prometheus, tmp_path: Path
):
    page = TextFormat().text(Telemetry(SimulatedNode("h100x2", load=0.5)).collect())
    prometheus.promtool("check", "metrics", stdin=page)
    document = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    scraping, alerts = re.findall(r"```yaml\n(.*?)```", document, re.DOTALL)
    (tmp_path / "prometheus.yml").write_text(scraping)
    prometheus.promtool("check", "config", tmp_path / "prometheus.yml")
    (tmp_path / "rules.yml").write_text(alerts)
    prometheus.promtool("check", "rules", tmp_path / "rules.yml")

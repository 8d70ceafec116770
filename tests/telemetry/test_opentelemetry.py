"""Metrics through the OpenTelemetry API, read by the SDK's reader in memory."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.device.trees import Powercap
from tests.present import present

from zeus.device import _rapl as rapl
from zeus.device._base import DeviceSet
from zeus.device._node import Node
from zeus.monitor import ZeusMonitor
from zeus.telemetry import TrainingTelemetry, observe_node
from zeus.testing import SimulatedNode, Workload

if not os.environ.get("CI"):
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum


@pytest.fixture
def sdk():
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    yield reader, provider.get_meter("test")
    provider.shutdown()


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    scopes = [scope for each in data.resource_metrics for scope in each.scope_metrics]
    return {metric.name: metric for scope in scopes for metric in scope.metrics}


def points(metric: Any) -> dict[str, float]:
    return {point.attributes["hw.id"]: point.value for point in metric.data.data_points}


def test_energy_and_power_by_the_semantic_conventions(sdk, tmp_path):
    reader, meter = sdk
    powercap = Powercap(tmp_path)
    powercap.add("0", "package-0", 1_000_000)
    powercap.add("0:0", "dram", 1_000_000)
    cpus, _ = rapl.discover(powercap.root)
    simulated = SimulatedNode("v100x2", load=1.0)
    node = Node(simulated.clock, simulated.drivers, simulated.gpus, DeviceSet(cpus))
    observer = observe_node(meter, node)
    simulated.sleep(100.0)
    powercap.set("0", 6_000_000)
    powercap.set("0:0", 2_000_000)
    found = collected(reader)
    units = {name: metric.unit for name, metric in found.items()}
    assert units == {
        "hw.energy": "J",
        "hw.power": "W",
        "hw.temperature": "Cel",
        "hw.gpu.utilization": "1",
        "hw.gpu.memory.usage": "By",
        "hw.gpu.memory.limit": "By",
        "zeus.gpu.power.limit": "W",
        "zeus.gpu.clock": "Hz",
    }
    keys = [gpu.key for gpu in node.gpus]
    energies = points(found["hw.energy"])
    for index, key in enumerate(keys):
        assert energies[key] == pytest.approx(simulated.exact_energy(index), abs=10)
    assert energies["cpu0"] == pytest.approx(5.0)
    assert energies["dram0"] == pytest.approx(1.0)
    assert isinstance(found["hw.energy"].data, Sum)
    assert found["hw.energy"].data.is_monotonic
    powers = points(found["hw.power"])
    assert [powers[key] for key in keys] == [pytest.approx(250)] * 2
    attributes = dict(found["hw.power"].data.data_points[0].attributes)
    assert attributes["hw.type"] == "gpu"
    assert attributes["hw.vendor"] == "NVIDIA"
    assert points(found["zeus.gpu.power.limit"])[keys[0]] == 250
    observer.close()
    assert collected(reader) == {}


def test_what_is_unknown_is_absent(sdk):
    reader, meter = sdk
    observe_node(meter, Node(SimulatedNode("v100").clock))
    assert collected(reader) == {}


def test_training_through_a_meter_of_the_application(sdk):
    reader, meter = sdk
    step = Workload("step", gpu_time=0.2)
    with SimulatedNode("v100") as node:
        telemetry = TrainingTelemetry(ZeusMonitor(), job="resnet", batch_size=8, meter=meter)
        for _ in range(200):
            telemetry.on_step_begin()
            step.run(node.gpus)
            telemetry.on_step_end()
        found = collected(reader)
        telemetry.close()
    (point,) = found["zeus.training.sample.energy"].data.data_points
    assert point.value == present(telemetry.state.step_energy) / 8
    assert dict(point.attributes) == {"zeus.job": "resnet", "zeus.rank": 0}
    assert found["zeus.training.steps"].data.data_points[0].value == telemetry.state.steps > 0
    assert "zeus.training.power.limit" not in found

"""GPUs whose sensors nobody published, hosts that pause, and what is found of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from zeus.clock import VirtualClock
from zeus.device._sensors import Sensor, Sensors
from zeus.device._simulated_models import MODELS
from zeus.testing import SimulatedNode
from zeus.verify._checks import Check, Verdict
from zeus.verify._loads import find_load
from zeus.verify._presets import preset_of
from zeus.verify._report import DeviceReport, verify
from zeus.verify._sensor_checks import Lengths, SensorsFound, check_sensors

QUICK = Lengths(windows=5.0, knob=0.3, host=0.3)


class PausingClock(VirtualClock):
    """A host that comes back late from one sleep in five, by up to 20 ms."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def sleep(self, seconds: float) -> None:
        if self._rng.random() < 0.2:
            seconds += self._rng.uniform(0, 0.02)
        super().sleep(seconds)


def unpublished(seed: int) -> Sensors:
    """Sensors as no GPU in our list has them."""
    rng = random.Random(seed)

    def period() -> float:
        return rng.choice((0.012, 0.02, 0.05, 0.1, 0.2)) * rng.uniform(0.85, 1.2)

    def lag() -> float:
        return rng.choice((0.0, rng.uniform(0.0, 0.05)))

    def jitter(of: float) -> float:
        return rng.choice((0.0, 0.04)) * of

    counted, metered = period(), period()
    part = rng.choice((0.0, 0.0, rng.uniform(0.3, 0.8) * counted)) if counted > 0.04 else 0.0
    return Sensors(
        Sensor(period=counted, lag=lag(), jitter=jitter(counted), part_time=part),
        Sensor(
            period=metered,
            window=rng.uniform(0.012, 0.15),
            lag=lag(),
            jitter=jitter(metered),
            noise=rng.choice((0.0, 0.01)),
        ),
    )


def node_of(
    sensors: Sensors | None = None, part: str = "a100", name: str = "", *, pausing: int = 0
) -> SimulatedNode:
    """A GPU of this part with other sensors, perhaps of another name, perhaps on a noisy host."""
    clock = PausingClock(pausing) if pausing else VirtualClock()
    node = SimulatedNode(part, sensors=sensors, clock=clock)
    for driver, gpu in zip(node.drivers, node.gpus, strict=True):
        if name:
            driver.identity = gpu.identity = replace(driver.identity, name=name)
    return node


def report_of(node: SimulatedNode, *, knobs: bool = False) -> DeviceReport:
    """The only device of a node, checked."""
    (device,) = verify(node, knobs=knobs, lengths=QUICK).devices
    return device


def sensors_found(node: SimulatedNode, expected: dict[str, float] | None = None) -> SensorsFound:
    """Only the sensors, checked under the simulated load."""
    gpu = node.gpus[0]
    load, _ = find_load(gpu, node.clock)
    return check_sensors(gpu, node.clock, load, expected or {}, Lengths())


def presets(part: str) -> dict[str, float]:
    """What is expected of a part."""
    found = preset_of(MODELS[part].name)
    assert found is not None
    return found.values()


def by_name(checks: Iterable[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def different(device: DeviceReport) -> set[str]:
    return {check.name for check in device.checks if check.verdict is Verdict.DIFFERENT}

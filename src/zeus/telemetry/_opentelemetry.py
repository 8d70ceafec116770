"""The metrics of a node through the OpenTelemetry API, by its semantic conventions for hardware.

The application configures the SDK and its exporters; here are only instruments that its meter
observes. All instruments of one collection share one reading of the node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from zeus.device import Node, current_node
from zeus.errors import MissingExtraError
from zeus.telemetry._readings import GpuReading, NodeReader, NodeReading
from zeus.telemetry._training_files import TrainingState

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ModuleNotFoundError:
    raise MissingExtraError("metrics through OpenTelemetry", "export") from None

_ONE_COLLECTION = 0.5  # seconds; instruments that are observed within share a reading
_MEGA = 1e6

Attributes = dict[str, str | int]


def observe_node(meter: Meter | None = None, node: Node | None = None) -> NodeObserver:
    """Publish the energy, power, temperature, clocks and memory of this machine's devices.

    Instruments are named by the semantic conventions: `hw.energy` (J) and `hw.power` (W) of every
    GPU, CPU package and its memory, `hw.temperature`, `hw.gpu.utilization`, `hw.gpu.memory.usage`
    and `hw.gpu.memory.limit`. The conventions have no names for `zeus.gpu.power.limit` and
    `zeus.gpu.clock`. Readings that a device does not support are absent.

    Args:
        meter: Meter of the application; by default one named "zeus" of the global provider.
        node: The node; by default this machine.

    Returns:
        An object whose `close` ends the background work; keep it while metrics are wanted.

    Raises:
        MissingExtraError: If the OpenTelemetry API is not installed.
    """
    return NodeObserver(meter or get_meter("zeus"), node or current_node())


@dataclass(frozen=True)
class _Value:
    """A value of an instrument with its attributes."""

    value: float
    attributes: Attributes


class NodeObserver:
    """Instruments that observe a node; made by `observe_node`."""

    def __init__(self, meter: Meter, node: Node) -> None:
        self._reader = NodeReader(node)
        self._lock = threading.Lock()
        self._read_at = -_ONE_COLLECTION
        self._reading: NodeReading | None = None
        self._closed = False
        counters, gauges = meter.create_observable_counter, meter.create_observable_gauge
        sums = meter.create_observable_up_down_counter
        for create, name, unit, text, values in (
            (counters, "hw.energy", "J", "Energy consumed by the component.", _energies),
            (gauges, "hw.power", "W", "Power of the component.", _powers),
            (gauges, "hw.temperature", "Cel", "Temperature of the GPU.", _temperatures),
            (gauges, "hw.gpu.utilization", "1", "Share of time in which a kernel ran.", _loads),
            (sums, "hw.gpu.memory.usage", "By", "GPU memory used.", _memory_used),
            (sums, "hw.gpu.memory.limit", "By", "Size of the GPU memory.", _memory_sizes),
            (gauges, "zeus.gpu.power.limit", "W", "Power limit in force.", _limits),
            (gauges, "zeus.gpu.clock", "Hz", "Current clock of the GPU.", _clocks),
        ):
            create(name, [self._observing(values)], unit=unit, description=text)

    def close(self) -> None:
        """Observe nothing any more, and end background work."""
        self._closed = True
        self._reader.close()

    def _observing(
        self, values: Callable[[NodeReading], Iterator[_Value]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if self._closed:
                return []
            return [Observation(each.value, each.attributes) for each in values(self._latest())]

        return observe

    def _latest(self) -> NodeReading:
        with self._lock:
            if self._reading is None or time.monotonic() - self._read_at > _ONE_COLLECTION:
                self._reading = self._reader.read()
                self._read_at = time.monotonic()
            return self._reading


def _energies(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.energy is not None:
            yield _Value(gpu.energy, {**own, "zeus.method": gpu.energy_method})
    for cpu in reading.cpus:
        if cpu.energy is not None:
            yield _Value(cpu.energy, _host("cpu", f"cpu{cpu.index}", cpu.name, "counter"))
        if cpu.dram_energy is not None:
            own = _host("memory", f"dram{cpu.index}", f"{cpu.name} DRAM", "counter")
            yield _Value(cpu.dram_energy, own)
    if reading.soc is not None:
        for part, joules in reading.soc.energies.items():
            own = _host("soc", f"soc-{part}", reading.soc.name, reading.soc.energy_method)
            yield _Value(joules, own)


def _powers(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.power is not None:
            yield _Value(gpu.power, {**own, "zeus.method": gpu.power_method})
    for cpu in reading.cpus:
        if cpu.power is not None:
            yield _Value(cpu.power, _host("cpu", f"cpu{cpu.index}", cpu.name, "mean"))
        if cpu.dram_power is not None:
            own = _host("memory", f"dram{cpu.index}", f"{cpu.name} DRAM", "mean")
            yield _Value(cpu.dram_power, own)
    if reading.soc is not None:
        for part, watts in reading.soc.powers.items():
            own = _host("soc", f"soc-{part}", reading.soc.name, reading.soc.power_method)
            yield _Value(watts, own)


def _temperatures(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.temperature is not None:
            yield _Value(gpu.temperature, own)


def _loads(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.utilization is not None:
            yield _Value(gpu.utilization, {**own, "hw.gpu.task": "general"})


def _memory_used(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.memory is not None:
            yield _Value(gpu.memory.used, own)


def _memory_sizes(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.memory is not None:
            yield _Value(gpu.memory.total, own)


def _limits(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.power_limit is not None:
            yield _Value(gpu.power_limit, own)


def _clocks(reading: NodeReading) -> Iterator[_Value]:
    for gpu, own in _gpus(reading):
        if gpu.clocks is not None:
            yield _Value(gpu.clocks.graphics * _MEGA, {**own, "zeus.clock": "graphics"})
            if gpu.clocks.memory is not None:
                yield _Value(gpu.clocks.memory * _MEGA, {**own, "zeus.clock": "memory"})


def _gpus(reading: NodeReading) -> Iterator[tuple[GpuReading, Attributes]]:
    for gpu in reading.gpus:
        identity = gpu.identity
        own: Attributes = {
            "hw.id": identity.key,
            "hw.type": "gpu",
            "hw.name": identity.name,
            "hw.vendor": identity.vendor,
            "zeus.gpu.index": gpu.index,
        }
        yield gpu, own


def _host(kind: str, key: str, name: str, method: str) -> Attributes:
    return {"hw.id": key, "hw.type": kind, "hw.name": name, "zeus.method": method}


def observe_training(meter: Meter, state: Callable[[], TrainingState]) -> None:
    """Publish what a training process does, as instruments `zeus.training...` of its meter.

    Args:
        meter: Meter of the application.
        state: Returns the latest state.
    """

    def observing(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            now = state()
            value = getattr(now, name)
            attributes: Attributes = {"zeus.job": now.job, "zeus.rank": now.rank}
            return [] if value is None else [Observation(value, attributes)]

        return observe

    counters, gauges = meter.create_observable_counter, meter.create_observable_gauge
    for create, field, name, unit, text in (
        (counters, "steps", "steps", "{step}", "Training steps."),
        (counters, "seconds", "time", "s", "Time of these steps."),
        (counters, "energy", "energy", "J", "Energy of the process's GPUs in them."),
        (gauges, "step_energy", "step.energy", "J", "Energy per step, lately."),
        (gauges, "step_seconds", "step.time", "s", "Time per step, lately."),
        (gauges, "sample_energy", "sample.energy", "J", "Energy per training sample, lately."),
        (gauges, "power_limit", "power.limit", "W", "Power limit that was chosen."),
        (gauges, "graphics_clock", "graphics.clock", "MHz", "Highest clock that was chosen."),
        (gauges, "batch_size", "batch.size", "{sample}", "Samples in a step."),
        (gauges, "saved_energy", "saved.energy", "J", "Energy saved so far."),
        (gauges, "saved_energy_ratio", "saved.energy.ratio", "1", "Share of it that is saved."),
        (gauges, "slowdown_ratio", "slowdown.ratio", "1", "Share by which steps are slower."),
    ):
        create(f"zeus.training.{name}", [observing(field)], unit=unit, description=text)

"""Metrics of a node by name, and their values from readings.

Names, units and labels are those of Prometheus, whose conventions other systems understand: base
units, counters that end in `_total`, one metric of constant value 1 for what describes a device. A
value that is unknown has no sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from zeus.telemetry._owners import OWNER_LABELS
from zeus.telemetry._readings import CpuReading, GpuReading, NodeReading, SocReading

#: Label values of one sample, in the order of the metric's labels.
Labels = tuple[str, ...]

_MEGA = 1e6


class Kind(StrEnum):
    """Kinds of metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, eq=False)
class Metric:
    """Description of a metric.

    Attributes:
        name: Name, with unit.
        help: One sentence for those who read the value.
        labels: Names of its labels.
        kind: Counter or gauge.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE


@dataclass
class Family:
    """A metric with its samples.

    Attributes:
        metric: What it is.
        samples: Values of its labels, and a number.
    """

    metric: Metric
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, labels: Labels, value: float | None) -> None:
        """Add a sample, unless its value is unknown.

        Args:
            labels: Values of the metric's labels.
            value: `None` if unknown.
        """
        if value is not None:
            self.samples.append((labels, float(value)))


_GPU = ("gpu", "uuid")
_CPU = ("package",)
_COUNTER = Kind.COUNTER

EXPORTER_INFO = Metric("zeus_exporter_info", "Version of Zeus.", ("version",))
GPU_INFO = Metric(
    "zeus_gpu_info",
    "A GPU: index as frameworks number it, name, vendor, PCI address; whole_module is 1 if its "
    "readings are those of a board with more devices.",
    (*_GPU, "name", "vendor", "pci_address", "whole_module"),
)
GPU_ENERGY = Metric(
    "zeus_gpu_energy_joules_total",
    "Energy of the GPU: by its counter, or integrated from power since the exporter started.",
    (*_GPU, "method"),
    _COUNTER,
)
GPU_POWER = Metric(
    "zeus_gpu_power_watts",
    "Power of the GPU: instant, or averaged by the driver over about a second.",
    (*_GPU, "method"),
)
GPU_MEMORY_POWER = Metric("zeus_gpu_memory_power_watts", "Power of the GPU's memory.", _GPU)
GPU_LIMIT = Metric("zeus_gpu_power_limit_watts", "Power limit in force.", _GPU)
GPU_LIMIT_DEFAULT = Metric(
    "zeus_gpu_power_limit_default_watts", "Power limit after a restart of the driver.", _GPU
)
GPU_LIMIT_MIN = Metric("zeus_gpu_power_limit_min_watts", "Lowest limit that it accepts.", _GPU)
GPU_LIMIT_MAX = Metric("zeus_gpu_power_limit_max_watts", "Highest limit that it accepts.", _GPU)
GPU_GRAPHICS_CLOCK = Metric("zeus_gpu_graphics_clock_hertz", "Current graphics clock.", _GPU)
GPU_MEMORY_CLOCK = Metric("zeus_gpu_memory_clock_hertz", "Current memory clock.", _GPU)
GPU_TEMPERATURE = Metric("zeus_gpu_temperature_celsius", "Temperature of the GPU.", _GPU)
GPU_UTILIZATION = Metric(
    "zeus_gpu_utilization_ratio", "Share of recent time in which a kernel ran, 0 to 1.", _GPU
)
GPU_MEMORY_USED = Metric("zeus_gpu_memory_used_bytes", "Device memory in use.", _GPU)
GPU_MEMORY_SIZE = Metric("zeus_gpu_memory_size_bytes", "Device memory in all.", _GPU)
_HOLDER = (*_GPU, "pid", *OWNER_LABELS)
HELD = {
    "power_limit": Metric(
        "zeus_gpu_held_power_limit_watts", "Power limit that a process holds.", _HOLDER
    ),
    "graphics_clock": Metric(
        "zeus_gpu_held_graphics_clock_hertz", "Highest graphics clock under a hold.", _HOLDER
    ),
    "memory_clock": Metric(
        "zeus_gpu_held_memory_clock_hertz", "Highest memory clock under a hold.", _HOLDER
    ),
}
CPU_INFO = Metric("zeus_cpu_info", "A CPU package.", (*_CPU, "name"))
CPU_ENERGY = Metric(
    "zeus_cpu_energy_joules_total",
    "Energy of the CPU package since the exporter started, without wraparound.",
    (*_CPU, "method"),
    _COUNTER,
)
CPU_POWER = Metric(
    "zeus_cpu_power_watts", "Mean power of the package since the previous reading.", _CPU
)
DRAM_ENERGY = Metric(
    "zeus_dram_energy_joules_total",
    "Energy of the memory of a CPU package since the exporter started, without wraparound.",
    (*_CPU, "method"),
    _COUNTER,
)
DRAM_POWER = Metric(
    "zeus_dram_power_watts", "Mean power of that memory since the previous reading.", _CPU
)
SOC_INFO = Metric(
    "zeus_soc_info",
    "A system on a chip; total_part is the part that contains the others, if there is one.",
    ("name", "total_part"),
)
SOC_ENERGY = Metric(
    "zeus_soc_energy_joules_total",
    "Energy of a part of the system on a chip: by a counter, by the chip's own estimate, or "
    "integrated from power since the exporter started.",
    ("part", "method"),
    _COUNTER,
)
SOC_POWER = Metric(
    "zeus_soc_power_watts",
    "Power of a part of the system on a chip: instant, or the mean since the previous reading.",
    ("part", "method"),
)
SUCCESS = Metric(
    "zeus_collector_success",
    "1 if a collector (a device, or a source of other metrics) could read all that it has.",
    ("collector",),
)
DURATION = Metric(
    "zeus_collector_duration_seconds", "Time that the collector took.", ("collector",)
)

NODE_METRICS: tuple[Metric, ...] = (
    EXPORTER_INFO,
    GPU_INFO,
    GPU_ENERGY,
    GPU_POWER,
    GPU_MEMORY_POWER,
    GPU_LIMIT,
    GPU_LIMIT_DEFAULT,
    GPU_LIMIT_MIN,
    GPU_LIMIT_MAX,
    GPU_GRAPHICS_CLOCK,
    GPU_MEMORY_CLOCK,
    GPU_TEMPERATURE,
    GPU_UTILIZATION,
    GPU_MEMORY_USED,
    GPU_MEMORY_SIZE,
    *HELD.values(),
    CPU_INFO,
    CPU_ENERGY,
    CPU_POWER,
    DRAM_ENERGY,
    DRAM_POWER,
    SOC_INFO,
    SOC_ENERGY,
    SOC_POWER,
    SUCCESS,
    DURATION,
)
"""Metrics of the devices of a node and of the collectors themselves, in the order of a page."""


def node_families(reading: NodeReading, version: str = "") -> list[Family]:
    """Return the metrics of a reading that have at least one sample.

    Args:
        reading: The reading.
        version: Version of Zeus.
    """
    found = {metric: Family(metric) for metric in NODE_METRICS}
    found[EXPORTER_INFO].add((version,), 1)
    for gpu in reading.gpus:
        _add_gpu(found, gpu)
    for cpu in reading.cpus:
        _add_cpu(found, cpu)
    if reading.soc is not None:
        _add_soc(found, reading.soc)
    for status in reading.collectors:
        found[SUCCESS].add((status.name,), status.success)
        found[DURATION].add((status.name,), status.seconds)
    return [family for family in found.values() if family.samples]


def _add_gpu(found: dict[Metric, Family], gpu: GpuReading) -> None:
    identity = gpu.identity
    own = (f"{gpu.index}", identity.key)
    described = (identity.name, identity.vendor, identity.pci_address or "")
    found[GPU_INFO].add((*own, *described, f"{int(identity.whole_module)}"), 1)
    found[GPU_ENERGY].add((*own, gpu.energy_method), gpu.energy)
    found[GPU_POWER].add((*own, gpu.power_method), gpu.power)
    for metric, value in (
        (GPU_MEMORY_POWER, gpu.memory_power),
        (GPU_LIMIT, gpu.power_limit),
        (GPU_TEMPERATURE, gpu.temperature),
        (GPU_UTILIZATION, gpu.utilization),
    ):
        found[metric].add(own, value)
    if gpu.power_limits is not None:
        found[GPU_LIMIT_DEFAULT].add(own, gpu.power_limits.default)
        found[GPU_LIMIT_MIN].add(own, gpu.power_limits.minimum)
        found[GPU_LIMIT_MAX].add(own, gpu.power_limits.maximum)
    if gpu.clocks is not None:
        found[GPU_GRAPHICS_CLOCK].add(own, gpu.clocks.graphics * _MEGA)
        if gpu.clocks.memory is not None:
            found[GPU_MEMORY_CLOCK].add(own, gpu.clocks.memory * _MEGA)
    if gpu.memory is not None:
        found[GPU_MEMORY_USED].add(own, gpu.memory.used)
        found[GPU_MEMORY_SIZE].add(own, gpu.memory.total)
    for holder in gpu.holders:
        watts = holder.knob == "power_limit"
        value = holder.value if watts else holder.value * _MEGA
        found[HELD[holder.knob]].add((*own, f"{holder.pid}", *holder.owner.labels), value)


def _add_cpu(found: dict[Metric, Family], cpu: CpuReading) -> None:
    own = (f"{cpu.index}",)
    found[CPU_INFO].add((*own, cpu.name), 1)
    found[CPU_ENERGY].add((*own, "counter"), cpu.energy)
    found[CPU_POWER].add(own, cpu.power)
    found[DRAM_ENERGY].add((*own, "counter"), cpu.dram_energy)
    found[DRAM_POWER].add(own, cpu.dram_power)


def _add_soc(found: dict[Metric, Family], soc: SocReading) -> None:
    found[SOC_INFO].add((soc.name, soc.total_part or ""), 1)
    for part, joules in soc.energies.items():
        found[SOC_ENERGY].add((part, soc.energy_method), joules)
    for part, watts in soc.powers.items():
        found[SOC_POWER].add((part, soc.power_method), watts)

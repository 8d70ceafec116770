"""Readings of a node from the metrics that `zeus export` serves.

A value that is absent stays unknown, so that other versions of Zeus can be watched as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zeus.cli._gpu_rows import Holder
from zeus.cli._snapshot import CpuReading, GpuReading
from zeus.cli._terminal import clean
from zeus.device._base import CurrentClocks, MemoryUse
from zeus.transport._metrics_text import Samples, read_samples

Labels = Mapping[str, str]
Page = Samples

_GPU = "zeus_gpu_"
_MEGA = 1e6
_MAX_INDEX = 99_999
_GPU_COLLECTOR = re.compile(r"gpu(\d{1,5})")
_KNOBS = {
    "zeus_gpu_held_power_limit_watts": ("power limit", 1.0, "W"),
    "zeus_gpu_held_graphics_clock_hertz": ("graphics clock", _MEGA, "MHz"),
    "zeus_gpu_held_memory_clock_hertz": ("memory clock", _MEGA, "MHz"),
}


def parse_page(text: str) -> Page:
    """Return the samples of Zeus by name of the metric, with labels that can be shown."""
    return {
        name: [
            ({label: clean(value) for label, value in labels.items()}, number)
            for labels, number in samples
        ]
        for name, samples in read_samples(text, "zeus_").items()
    }


@dataclass(frozen=True)
class PublishedGpu:
    """A GPU as its node publishes it; `counter` is the total energy in joules."""

    reading: GpuReading
    counter: float | None
    holders: tuple[Holder, ...]


@dataclass(frozen=True)
class PublishedCpu:
    """A CPU package as its node publishes it, with total energies in joules."""

    reading: CpuReading
    counter: float | None
    dram_counter: float | None


def gpus_of(page: Page) -> list[PublishedGpu]:
    """Return the GPUs of a page by index; also those that the exporter cannot read."""
    own_pages: dict[tuple[str, str], Page] = {}
    for name, samples in page.items():
        for labels, value in samples if name.startswith(_GPU) else ():
            own = own_pages.setdefault(_identity(labels), {})
            own.setdefault(name, []).append((labels, value))
    found = {}
    for labels, _ in page.get("zeus_gpu_info", ()):
        index = _index(labels.get("gpu", ""))
        if index is not None:
            found[index] = _gpu(own_pages[_identity(labels)], index, labels)
    for labels, success in page.get("zeus_collector_success", ()):
        collector = _GPU_COLLECTOR.fullmatch(labels.get("collector", ""))
        if collector is not None and not success and int(collector[1]) not in found:
            index = int(collector[1])
            failed = GpuReading(index, "", "", problem="cannot be read there")
            found[index] = PublishedGpu(failed, None, ())
    return [found[index] for index in sorted(found)]


def cpus_of(page: Page) -> list[PublishedCpu]:
    """Return the CPU packages of a page by index."""
    found = {}
    for labels, _ in page.get("zeus_cpu_info", ()):
        index = _index(labels.get("package", ""))
        if index is None:
            continue
        own = {"package": labels["package"]}
        reading = CpuReading(
            index,
            labels.get("name", ""),
            power=_value(page, "zeus_cpu_power_watts", own),
            dram_power=_value(page, "zeus_dram_power_watts", own),
        )
        counter = _value(page, "zeus_cpu_energy_joules_total", own)
        dram = _value(page, "zeus_dram_energy_joules_total", own)
        found[index] = PublishedCpu(reading, counter, dram)
    return [found[index] for index in sorted(found)]


def _identity(labels: Labels) -> tuple[str, str]:
    return labels.get("gpu", ""), labels.get("uuid", "")


def _gpu(page: Page, index: int, labels: Labels) -> PublishedGpu:
    """Return a GPU from the part of a page that is about it."""

    def value(name: str, **more: str) -> float | None:
        return _value(page, _GPU + name, more)

    used, size = value("memory_used_bytes"), value("memory_size_bytes")
    clock, memory_clock = value("graphics_clock_hertz"), value("memory_clock_hertz")
    integrated = value("energy_joules_total", method="integrated")
    average = value("power_watts", method="average")
    reading = GpuReading(
        index,
        labels.get("name", ""),
        labels.get("uuid", ""),
        power=value("power_watts"),
        power_is_average=average is not None,
        energy_is_integrated=integrated is not None,
        power_limit=value("power_limit_watts"),
        utilization=value("utilization_ratio"),
        temperature=value("temperature_celsius"),
        memory=None if used is None or size is None else MemoryUse(int(used), int(size)),
        clocks=None
        if clock is None
        else CurrentClocks(
            round(clock / _MEGA), None if memory_clock is None else round(memory_clock / _MEGA)
        ),
    )
    return PublishedGpu(reading, value("energy_joules_total"), _holders(page))


def _holders(page: Page) -> tuple[Holder, ...]:
    found = []
    for metric, (knob, size, unit) in _KNOBS.items():
        for labels, value in page.get(metric, ()):
            job = f", job {labels['slurm_job']}" if labels.get("slurm_job") else ""
            detail = f"(process {labels.get('pid', '?')}{job})"
            found.append(Holder(knob, f"{value / size:g} {unit}", labels.get("user", ""), detail))
    return tuple(found)


def _value(page: Page, name: str, own: Labels) -> float | None:
    for labels, value in page.get(name, ()):
        if all(labels.get(label) == text for label, text in own.items()):
            return value
    return None


def _index(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(_MAX_INDEX)):
        return None
    return int(text)

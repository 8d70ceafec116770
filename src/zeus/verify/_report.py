"""All checks of a machine, device by device: what a hanging one costs is only itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zeus.clock import Clock
from zeus.device import Cpu, Gpu, Node
from zeus.device._simulated import SimulatedGpuDriver
from zeus.errors import CapabilityError
from zeus.verify import _checks as names
from zeus.verify._checks import Check, Verdict, counts, impossible
from zeus.verify._cpu_checks import check_counter
from zeus.verify._kernel_load import LoadError
from zeus.verify._knob_checks import check_knobs, check_ranges, not_asked
from zeus.verify._loads import Load, find_load
from zeus.verify._presets import preset_of
from zeus.verify._sensor_checks import Lengths, SensorsFound, check_sensors
from zeus.verify._window_checks import check_windows

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class DeviceReport:
    """The checks of one device.

    Attributes:
        kind: "gpu", "cpu" or "dram".
        index: Its number on this machine.
        name: Product name.
        checks: What was found.
        driver: Version of its driver; empty if unknown.
        preset: Short name of the preset it was compared with; empty if there is none.
        load: What ran on it; empty if nothing could.
        no_load: Why nothing could.
        others: Number of other processes that used it; `None` if unknown.
        simulated: Whether it is simulated.
    """

    kind: str
    index: int
    name: str
    checks: Sequence[Check]
    driver: str = ""
    preset: str = ""
    load: str = ""
    no_load: str = ""
    others: int | None = None
    simulated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        return {
            "kind": self.kind,
            "index": self.index,
            "name": self.name,
            "driver": self.driver,
            "preset": self.preset or None,
            "load": self.load or None,
            "no_load": self.no_load or None,
            "other_processes": self.others,
            "simulated": self.simulated,
            "checks": [check.to_dict() for check in self.checks],
        }


@dataclass(frozen=True)
class Report:
    """The checks of all devices, problems with those that cannot be used, and Zeus's version."""

    devices: Sequence[DeviceReport]
    problems: Sequence[str] = ()
    zeus: str = ""

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many checks came to each verdict."""
        return counts(check for device in self.devices for check in device.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        return {
            "zeus": self.zeus,
            "counts": {verdict.value: count for verdict, count in self.counts.items()},
            "devices": [device.to_dict() for device in self.devices],
            "problems": list(self.problems),
        }


def verify(
    node: Node,
    gpu_indices: Sequence[int] | None = None,
    *,
    knobs: bool = False,
    lengths: Lengths | None = None,
    progress: Progress = lambda _: None,
) -> Report:
    """Check the GPUs of a node one after the other, and its CPUs.

    Args:
        node: The node.
        gpu_indices: GPUs to check; all by default.
        knobs: Whether to change power limits and clocks, under holds.
        lengths: Seconds for each part.
        progress: Called with what is done next.

    Raises:
        UnknownDeviceError: If an index names no GPU.
    """
    lengths = lengths or Lengths()
    devices = [
        _Gpu(gpu, node, lengths, progress).report(knobs=knobs)
        for gpu in node.gpus.select(gpu_indices)
    ]
    for cpu in node.cpus:
        progress(f"CPU {cpu.index}: counters")
        devices += _cpu_reports(cpu, node.clock, lengths.host)
    return Report(devices, [str(problem) for problem in node.problems])


class _Gpu:
    """One GPU and its load, while it is checked."""

    def __init__(self, gpu: Gpu, node: Node, lengths: Lengths, progress: Progress) -> None:
        self._gpu = gpu
        self._node = node
        self._lengths = lengths
        self._progress = progress
        self._load: Load | None = None
        self._name = ""
        self._no_load = ""
        self._checks: list[Check] = []

    def report(self, *, knobs: bool) -> DeviceReport:
        gpu, driver = self._gpu, ""
        preset = preset_of(gpu.name)
        others = None
        try:
            driver = gpu.version()
            others = _others(gpu)
            self._run(preset.values() if preset is not None else {}, knobs=knobs)
        except CapabilityError as error:
            self._checks.append(impossible(names.REST, error))
        except Exception as error:  # a fault of ours must not cost the other GPUs their report
            logger.warning("checking %s failed", gpu.name, exc_info=error)
            unknown = names.Why.FAILED
            self._checks.append(impossible(names.REST, unknown, detail=repr(error)))
        finally:
            if self._load is not None:
                self._load.close()
        return DeviceReport(
            "gpu",
            gpu.index,
            gpu.name,
            self._checks,
            driver,
            preset.key if preset is not None else "",
            self._name,
            self._no_load,
            others,
            isinstance(gpu.driver, SimulatedGpuDriver) or bool(self._node.simulated),
        )

    def _run(self, presets: dict[str, float], *, knobs: bool) -> None:
        gpu, node, _lengths = self._gpu, self._node, self._lengths
        say = f"GPU {gpu.index}: "
        self._checks += check_ranges(gpu, presets)
        self._progress(f"{say}a load")
        self._load, self._no_load = find_load(gpu, node.clock)
        self._name = self._load.name if self._load is not None else ""
        self._progress(f"{say}sensors")
        sensors = self._sensors(presets)
        self._checks += sensors.checks
        self._progress(f"{say}windows")
        self._checks += self._windows(sensors)
        if not knobs:
            self._checks += not_asked()
            return
        self._progress(f"{say}power limit and clocks")
        self._checks += self._knobs()

    def _sensors(self, presets: dict[str, float]) -> SensorsFound:
        arguments = presets, self._lengths
        try:
            return check_sensors(self._gpu, self._node.clock, self._load, *arguments)
        except LoadError as error:
            self._give_up(error)
            return check_sensors(self._gpu, self._node.clock, None, *arguments)

    def _windows(self, sensors: SensorsFound) -> list[Check]:
        seconds = self._lengths.windows
        try:
            return check_windows(self._gpu, self._node, self._load, sensors.power, seconds)
        except LoadError as error:
            self._give_up(error)
            return check_windows(self._gpu, self._node, None, sensors.power, seconds)

    def _knobs(self) -> list[Check]:
        seconds = self._lengths.knob
        try:
            return check_knobs(self._gpu, self._node.clock, self._load, seconds)
        except LoadError as error:
            self._give_up(error)
            return check_knobs(self._gpu, self._node.clock, None, seconds)

    def _give_up(self, error: LoadError) -> None:
        """Go on without the load, which has failed."""
        if self._load is not None:
            self._load.close()
        self._load, self._no_load = None, str(error)


def _others(gpu: Gpu) -> int | None:
    try:
        return sum(process.pid != os.getpid() for process in gpu.processes())
    except CapabilityError:
        return None


def _cpu_reports(cpu: Cpu, clock: Clock, seconds: float) -> Iterable[DeviceReport]:
    for kind, dram in (("cpu", False), ("dram", True)):
        checks = check_counter(cpu, clock, seconds, dram=dram)
        yield DeviceReport(kind, cpu.index, cpu.name, checks)

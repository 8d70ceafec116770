"""Snapshots of all devices on a node, fast enough for continuous polling.

Each GPU is read by its own thread, so that a driver that hangs delays no other GPU: a snapshot
takes what has arrived in time. CPUs and systems on a chip only count energy, so their power is the
mean since the previous snapshot.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from zeus.cli._terminal import clean
from zeus.clock import Clock
from zeus.device import Cpu, Gpu, Node, Soc
from zeus.device._base import ClockRange, CurrentClocks, GpuProcess, MemoryUse
from zeus.errors import CapabilityError, Reason

T = TypeVar("T")

_STALE = 2.0  # seconds for which the last reading of a slow driver is shown; then an error is


@dataclass(frozen=True)
class ProcessReading:
    """A process on a GPU (memory in bytes); `None` where a value is unknown."""

    pid: int
    name: str | None
    user: str | None
    memory: int | None


@dataclass(frozen=True)
class GpuReading:
    """Reading of one GPU. Unavailable values are `None`; `problem` is the reason if all are."""

    index: int
    name: str
    key: str
    power: float | None = None  # watts
    # Whether that is a mean over about a second, for lack of instant power
    power_is_average: bool = False
    energy: float | None = None  # joules since the first snapshot
    energy_is_integrated: bool = False  # whether energy is integrated power, for lack of a counter
    power_limit: float | None = None  # watts
    utilization: float | None = None  # 0 to 1
    temperature: float | None = None  # degrees Celsius
    memory: MemoryUse | None = None
    clocks: CurrentClocks | None = None
    graphics_clock_lock: ClockRange | None = None
    processes: tuple[ProcessReading, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class CpuReading:
    """Power (W) of a CPU package and its DRAM, and their energy (J) since the first snapshot."""

    index: int
    name: str
    power: float | None = None
    energy: float | None = None
    dram_power: float | None = None
    dram_energy: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class SocReading:
    """Power (W) of the parts of a system on a chip."""

    name: str
    powers: dict[str, float]
    problem: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """Readings of all devices; `elapsed` is in seconds since the reader was created."""

    elapsed: float
    gpus: tuple[GpuReading, ...]
    cpus: tuple[CpuReading, ...]
    soc: SocReading | None


class NodeReader:
    """Polls the devices of a node; raises `UnknownDeviceError` if an index names no GPU."""

    def __init__(self, node: Node, gpu_indices: Sequence[int] | None = None) -> None:
        self._clock = node.clock
        self._start = node.clock.now()
        self._gpus = [_GpuReader(gpu, node.clock) for gpu in node.gpus.select(gpu_indices)]
        self._cpus = [_CpuMeter(cpu, node.clock) for cpu in node.cpus]
        self._soc = _SocMeter(node.soc, node.clock) if node.soc is not None else None

    @property
    def gpu_indices(self) -> list[int]:
        """Indices of the GPUs that are read."""
        return [reader.index for reader in self._gpus]

    @property
    def needs_two_snapshots(self) -> bool:
        """Return whether some power is only known between two snapshots."""
        return bool(self._cpus) or self._soc is not None

    def snapshot(self, timeout: float) -> Snapshot:
        """Take a snapshot, waiting at most `timeout` seconds for slow GPUs."""
        for reader in self._gpus:
            reader.request()
        deadline = self._clock.now() + timeout
        for reader in self._gpus:
            reader.wait(max(deadline - self._clock.now(), 0.0))
        return Snapshot(
            self._clock.now() - self._start,
            tuple(reader.latest() for reader in self._gpus),
            tuple(meter.read() for meter in self._cpus),
            self._soc.read() if self._soc is not None else None,
        )


class CountedEnergy:
    """Energy (J) since the first reading of a counter, and mean power (W) since the last."""

    def __init__(self) -> None:
        self.total: float | None = None
        self.power: float | None = None
        self._last: tuple[float, float] | None = None

    def add(self, now: float, joules: float) -> None:
        if self._last is not None:
            elapsed, gained = now - self._last[0], joules - self._last[1]
            if gained >= 0:  # a decrease means that the driver was reloaded
                self.total = (self.total or 0.0) + gained
                self.power = gained / elapsed if elapsed > 0 else self.power
        self._last = (now, joules)


class _Integral:
    """Energy (J) integrated from power since the first reading."""

    def __init__(self) -> None:
        self.total: float | None = None
        self._last: tuple[float, float] | None = None

    def add(self, now: float, watts: float) -> None:
        if self._last is not None:
            mean = (watts + self._last[1]) / 2
            self.total = (self.total or 0.0) + mean * (now - self._last[0])
        self._last = (now, watts)


class _Queries:
    """Runs queries one after the other and records their errors."""

    def __init__(self) -> None:
        self.answers = 0
        self.lost: CapabilityError | None = None
        self.first_error: CapabilityError | None = None

    def run(self, query: Callable[[], T]) -> T | None:
        if self.lost is not None:
            return None
        try:
            answer = query()
        except CapabilityError as error:
            self.first_error = self.first_error or error
            if error.reason in (Reason.LOST, Reason.HANGS):
                self.lost = error  # further queries would hang as well
            return None
        self.answers += answer is not None  # a driver that reports no lock says nothing by that
        return answer

    @property
    def problem(self) -> str | None:
        if self.lost is not None:
            return str(self.lost)
        return str(self.first_error) if self.answers == 0 else None


class _GpuReader:
    """Reads one GPU in a dedicated thread."""

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        self.index = gpu.index
        self._gpu = gpu
        self._clock = clock
        self._latest = GpuReading(gpu.index, gpu.name, gpu.key)
        self._counter = CountedEnergy()
        self._integral = _Integral()
        self._requested = threading.Event()
        self._done = threading.Event()
        self._done.set()
        self._requested_at = clock.now()
        # A daemon: a driver call that never returns must not keep the program from exiting.
        threading.Thread(target=self._serve, name="zeus-snapshot", daemon=True).start()

    def request(self) -> None:
        if self._done.is_set():
            self._done.clear()
            self._requested_at = self._clock.now()
            self._requested.set()

    def wait(self, seconds: float) -> None:
        self._done.wait(seconds)

    def latest(self) -> GpuReading:
        waited = self._clock.now() - self._requested_at
        if self._done.is_set() or waited < _STALE:
            return self._latest
        return self._failed(self._latest.problem or f"no response for {waited:.1f} s")

    def _failed(self, problem: str, energy: float | None = None) -> GpuReading:
        gpu = self._gpu
        return GpuReading(gpu.index, gpu.name, gpu.key, energy=energy, problem=problem)

    def _serve(self) -> None:
        while True:
            self._requested.wait()
            self._requested.clear()
            try:
                self._latest = self._read()
            except Exception as error:  # the other GPUs are still shown
                self._latest = self._failed(f"{type(error).__name__}: {error}")
            self._done.set()

    def _read(self) -> GpuReading:
        gpu, queries = self._gpu, _Queries()
        ask = queries.run
        power = ask(gpu.instant_power)
        averaged = power is None
        if averaged:
            power = ask(gpu.average_power)
        energy = self._energy(ask(gpu.energy), power)
        reading = GpuReading(
            gpu.index,
            gpu.name,
            gpu.key,
            power=power,
            power_is_average=averaged and power is not None,
            energy=energy,
            energy_is_integrated=energy is not None and self._counter.total is None,
            power_limit=ask(gpu.power_limit),
            utilization=ask(gpu.utilization),
            temperature=ask(gpu.temperature),
            memory=ask(gpu.memory),
            clocks=ask(gpu.current_clocks),
            graphics_clock_lock=ask(gpu.locked_graphics_clock),
            processes=tuple(_process(process) for process in ask(gpu.processes) or ()),
        )
        return reading if queries.problem is None else self._failed(queries.problem, energy)

    def _energy(self, counter: float | None, power: float | None) -> float | None:
        now = self._clock.now()
        if counter is not None:
            self._counter.add(now, counter)
        elif power is not None:
            self._integral.add(now, power)
        return self._counter.total if self._counter.total is not None else self._integral.total


class _CpuMeter:
    def __init__(self, cpu: Cpu, clock: Clock) -> None:
        self._cpu = cpu
        self._clock = clock
        self._package = CountedEnergy()
        self._dram = CountedEnergy()

    def read(self) -> CpuReading:
        queries = _Queries()
        for counter, read in (
            (self._package, self._cpu.energy),
            (self._dram, self._cpu.dram_energy),
        ):
            joules = queries.run(read)
            if joules is not None:
                counter.add(self._clock.now(), joules)
        return CpuReading(
            self._cpu.index,
            self._cpu.name,
            self._package.power,
            self._package.total,
            self._dram.power,
            self._dram.total,
            queries.problem,
        )


class _SocMeter:
    def __init__(self, soc: Soc, clock: Clock) -> None:
        self._soc = soc
        self._clock = clock
        self._counters: dict[str, CountedEnergy] = {}

    def read(self) -> SocReading:
        try:
            powers = self._soc.powers()
            if powers is None:
                powers = self._powers_of(self._soc.energies() or {})
        except CapabilityError as error:
            return SocReading(self._soc.name, {}, str(error))
        return SocReading(self._soc.name, powers)

    def _powers_of(self, energies: dict[str, float]) -> dict[str, float]:
        now = self._clock.now()
        for part, joules in energies.items():
            self._counters.setdefault(part, CountedEnergy()).add(now, joules)
        return {
            part: counter.power
            for part, counter in self._counters.items()
            if counter.power is not None
        }


def _process(process: GpuProcess) -> ProcessReading:
    name, user = process.name, None
    # The process may have exited, or be in another PID namespace.
    with contextlib.suppress(OSError):
        name = name or Path(f"/proc/{process.pid}/comm").read_text(errors="replace").strip()
    with contextlib.suppress(OSError):
        uid = os.stat(f"/proc/{process.pid}").st_uid  # noqa: PTH116
        user = f"{uid}"
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(uid).pw_name
    return ProcessReading(process.pid, clean(name) if name else None, user, process.memory)

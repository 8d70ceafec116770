"""The controller of the simulated AMD SMI library.

A `SimulatedAmdSmi` owns the state file that the C library maps: it describes the GPUs, schedules
the power they draw, injects faults and reads back what clients of the library have set. It also
answers, from the same numbers, what a perfect measurement would have found.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

# Both simulated drivers draw power in the same segments and fail in the same ways.
from .nvml_state import (
    _FAULT_KINDS,
    _FOR_EVER,
    ANY_FUNCTION,
    FaultKind,
    _Fault,
    _fields,
    _joules_at,
    _replace_segments,
    _scatter,
    _Segment,
    _segment_at,
)

MAGIC = b"ZEUS-AMD"
VERSION = 1
MAX_GPUS = 16
MAX_SEGMENTS = 4096
MAX_FUNCTIONS = 64
MAX_PROCESSES = 32
MAX_CLOCKS = 33
TEXT_LENGTH = 96

STATE_VARIABLE = "ZEUS_SIMULATED_AMDSMI"
LEVEL_AUTO = 0
_MICRO = 1_000_000


class AmdSmiStatus(IntEnum):
    """Status codes that a fault may ask for."""

    SUCCESS = 0
    INVAL = 1
    NOT_SUPPORTED = 2
    TIMEOUT = 8
    NO_PERM = 10
    IO = 12
    BUSY = 30
    NOT_FOUND = 31
    NOT_INIT = 32
    DRIVER_NOT_LOADED = 34
    UNEXPECTED_DATA = 43


class _Flag(IntFlag):
    NEEDS_ROOT = 1 << 0
    DENY_CONTROL = 1 << 1
    CURRENT_POWER = 1 << 2
    AVERAGE_POWER = 1 << 3
    ENERGY_COUNTER = 1 << 4
    HOTSPOT = 1 << 5
    EDGE = 1 << 6
    SECONDARY_DIE = 1 << 7
    CLOCK_LIMITS = 1 << 8
    HIP_ID = 1 << 9


@dataclass(frozen=True)
class AmdGpuSpec:
    """One simulated AMD GPU. Watts, joules, seconds, bytes, MHz and degrees Celsius throughout.

    Attributes:
        watts: what the GPU draws until told otherwise (and drew before the simulation began).
        serial: serial number of the chip, in hexadecimal digits.
        board_serial: serial number of the board; the dies of one board share it.
        secondary_die: the die of a two-die board whose power and energy read zero.
        partition: name of the compute partition mode, None where the part cannot be partitioned.
        hip_id: HIP's number for the GPU, None where the library does not know it.
        tick_period: how often the energy counter is refreshed; 0 makes it live.
        tick_phase: refreshes happen at `tick_phase + k * tick_period` on CLOCK_MONOTONIC, None
            picks a different phase for each GPU.
        counter_offset: joules on the counter when the simulation begins.
        counter_gain: a counter that is simply wrong has a gain other than 1.
        counter_resolution: microjoules per count of the energy counter.
        current_power: whether the momentary power is reported (it is from MI300 on).
        average_power: whether the averaged power is reported (it was before MI300).
        hotspot: temperature of the hottest spot, None if unsupported.
        edge: temperature at the edge of the chip, None if unsupported.
        clock_limits: whether the clocks can be bounded.
        processes: (pid, bytes, name) of each process.
        unsupported: functions that this GPU does not support.
    """

    name: str = "AMD Instinct MI300X"
    device_id: int = 0x74A1
    uuid: str | None = None
    serial: str | None = None
    board_serial: str | None = None
    secondary_die: bool = False
    partition: str | None = None
    hip_id: int | None = None
    watts: float = 140.0

    tick_period: float = 0.1
    tick_phase: float | None = None
    counter_offset: float = 1000.0
    counter_gain: float = 1.0
    counter_resolution: float = 15.3
    energy_counter: bool = True
    current_power: bool = True
    average_power: bool = False
    average_window: float = 1.0

    min_power_limit: float = 100.0
    max_power_limit: float = 750.0
    default_power_limit: float = 750.0
    needs_root: bool = True

    graphics_clocks: Sequence[int] = (500, 900, 1300, 1700, 2100)
    memory_clocks: Sequence[int] = (900, 1100, 1300)
    clock_limits: bool = True

    hotspot: int | None = 45
    edge: int | None = None
    gfx_activity: int = 0
    memory_total: int = 192 * 2**30
    memory_used: int = 0
    processes: Sequence[tuple[int, int, str]] = ()

    pci_domain: int = 0
    pci_bus: int | None = None
    pci_device: int = 0
    pci_function: int = 0
    unsupported: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse what the library could not act out."""
        if not self.min_power_limit <= self.default_power_limit <= self.max_power_limit:
            raise ValueError("default_power_limit must lie between the lowest and the highest")
        if self.average_window <= 0 or self.counter_resolution <= 0:
            raise ValueError("average_window and counter_resolution must be positive")
        for clocks in (self.graphics_clocks, self.memory_clocks):
            if not 1 <= len(clocks) <= MAX_CLOCKS:
                raise ValueError(f"a GPU has 1 to {MAX_CLOCKS} clocks of each kind")


def mi250x_board(board: int = 0, **changes: Any) -> list[AmdGpuSpec]:
    """The two dies of one MI250X board, of which only the first reports power and energy."""
    first = replace(
        AmdGpuSpec(
            name="AMD Instinct MI250X",
            device_id=0x7408,
            board_serial=f"PCB{board:06d}",
            current_power=False,
            average_power=True,
            edge=40,
            max_power_limit=560.0,
            default_power_limit=560.0,
            memory_total=64 * 2**30,
        ),
        **changes,
    )
    return [first, replace(first, secondary_die=True)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * TEXT_LENGTH),
        ("pid", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
    ]


class _Bounds(ctypes.Structure):
    _fields_ = _fields(ctypes.c_uint32, "minimum", "maximum")


class _Clocks(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("mhz", ctypes.c_uint32 * MAX_CLOCKS)]


class _Gpu(ctypes.Structure):
    """Must mirror `struct gpu` in amdsmi/state.h."""

    _fields_ = [
        *_fields(
            ctypes.c_char * TEXT_LENGTH, "name", "uuid", "serial", "board_serial", "partition"
        ),
        *_fields(
            ctypes.c_uint32,
            "flags",
            "device_id",
            "pci_domain",
            "pci_bus",
            "pci_device",
            "pci_function",
            "hip_id",
            "gfx_activity",
        ),
        *_fields(ctypes.c_int32, "hotspot_celsius", "edge_celsius"),
        *_fields(ctypes.c_uint64, "memory_total", "memory_used"),
        *_fields(
            ctypes.c_double,
            "tick_period",
            "tick_phase",
            "counter_offset",
            "counter_gain",
            "counter_resolution",
            "average_window",
        ),
        *_fields(ctypes.c_uint64, "limit_min_uw", "limit_max_uw", "limit_default_uw"),
        *_fields(_Clocks, "graphics", "memory"),
        ("unsupported", ctypes.c_uint8 * MAX_FUNCTIONS),
        ("limit_uw", ctypes.c_uint64),
        *_fields(ctypes.c_uint32, "performance_level", "unused"),
        *_fields(_Bounds, "graphics_bounds", "memory_bounds"),
        *_fields(ctypes.c_uint64, "sequence", "process_count"),
        ("processes", _Process * MAX_PROCESSES),
        *_fields(ctypes.c_uint64, "dropped_segments", "segment_count"),
        ("segments", _Segment * MAX_SEGMENTS),
    ]


class _State(ctypes.Structure):
    """Must mirror `struct state` in amdsmi/state.h."""

    _fields_ = [
        ("magic", ctypes.c_char * 8),
        *_fields(ctypes.c_uint32, "version", "gpu_count"),
        ("size", ctypes.c_uint64),
        *_fields(ctypes.c_uint32, "function_count", "unused"),
        ("calls", ctypes.c_uint64 * MAX_FUNCTIONS),
        ("faults", _Fault * MAX_FUNCTIONS * (MAX_GPUS + 1)),
        ("gpus", _Gpu * MAX_GPUS),
    ]


def _read_function_numbers() -> dict[str, int]:
    text = (Path(__file__).parent / "amdsmi" / "state.h").read_text()
    names = re.findall(r"^\s+FUNCTION\((\w+)\)", text, re.MULTILINE)
    return {ANY_FUNCTION: 0} | {name: number for number, name in enumerate(names, start=1)}


_FUNCTION_NUMBERS = _read_function_numbers()


def function_number(name: str) -> int:
    """The number of a function that does something in the simulated library."""
    if name not in _FUNCTION_NUMBERS:
        raise ValueError(f"the simulated library has no function {name!r}")
    return _FUNCTION_NUMBERS[name]


class SimulatedAmdSmi:
    """The state file of one simulated library, seen from the side that decides what happens."""

    def __init__(self, path: Path) -> None:
        """Map an existing state file; `create` makes a new one."""
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = self.path.open("r+b")
        size = os.fstat(self._file.fileno()).st_size
        if size != ctypes.sizeof(_State):
            self._file.close()
            raise ValueError(f"{self.path} has {size} bytes, not {ctypes.sizeof(_State)}")
        self._map = mmap.mmap(self._file.fileno(), size)
        self._state = _State.from_buffer(self._map)
        if (self._state.magic, self._state.version) != (MAGIC, VERSION):
            self.close()
            raise ValueError(f"{self.path} is no state file of this version")

    @classmethod
    def create(cls, path: Path, gpus: Sequence[AmdGpuSpec]) -> SimulatedAmdSmi:
        """Write a new state file that describes `gpus`, in the library's order, and map it."""
        if len(gpus) > MAX_GPUS:
            raise ValueError(f"at most {MAX_GPUS} GPUs")
        state = _State(
            version=VERSION,
            gpu_count=len(gpus),
            size=ctypes.sizeof(_State),
            function_count=len(_FUNCTION_NUMBERS),
        )
        now = time.monotonic()
        for index, spec in enumerate(gpus):
            _describe(state.gpus[index], spec, index, now)
        state.magic = MAGIC
        Path(path).write_bytes(bytes(state))
        return cls(path)

    def close(self) -> None:
        """Unmap the state file; the file stays."""
        if self._file.closed:
            return
        del self._state
        self._map.close()
        self._file.close()

    def __enter__(self) -> SimulatedAmdSmi:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._state.gpu_count

    def environment(self, library_dir: Path) -> dict[str, str]:
        """Variables that make a process load the library from `library_dir` and this state.

        Whoever uses them must not pass on ROCM_HOME or ROCM_PATH, which the binding prefers.
        """
        earlier = os.environ.get("LD_LIBRARY_PATH")
        folders = [str(library_dir), *([earlier] if earlier else [])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(folders), STATE_VARIABLE: str(self.path)}

    # What the GPUs draw.

    def set_power(self, gpu: int, watts: float) -> float:
        """From now on `gpu` draws `watts`; forgets what was scheduled. Returns that instant."""
        with self._rewriting(gpu) as state:
            now = time.monotonic()
            _replace_segments(state, [(now, watts)], now)
        return now

    def schedule(self, gpu: int, points: Sequence[tuple[float, float]]) -> None:
        """Draw `watts` from each absolute CLOCK_MONOTONIC instant on: (instant, watts) pairs."""
        instants = [instant for instant, _ in points]
        if not points or instants != sorted(instants):
            raise ValueError("the schedule needs instants in ascending order")
        with self._rewriting(gpu) as state:
            _replace_segments(state, points, time.monotonic())

    def power(self, gpu: int, instant: float) -> float:
        """The watts that `gpu` really draws at one instant."""
        with self._lock:
            return _segment_at(self._gpu(gpu), instant).watts

    def energy(self, gpu: int, start: float, end: float) -> float:
        """The exact joules that `gpu` draws between two CLOCK_MONOTONIC instants."""
        state = self._gpu(gpu)
        if state.dropped_segments and min(start, end) < state.segments[0].start:
            raise ValueError("this part of the power history has been dropped to make room")
        with self._lock:
            return _joules_at(state, end) - _joules_at(state, start)

    def last_tick(self, gpu: int, instant: float) -> float:
        """The instant of the last refresh of the energy counter at or before `instant`."""
        state = self._gpu(gpu)
        if state.tick_period <= 0:
            return instant
        tick = math.floor((instant - state.tick_phase) / state.tick_period)
        return state.tick_phase + tick * state.tick_period

    def counter(self, gpu: int, instant: float) -> float:
        """The joules that the energy counter stands for at `instant`, before it is rounded down."""
        state = self._gpu(gpu)
        if state.flags & _Flag.SECONDARY_DIE:
            return 0.0
        with self._lock:
            joules = _joules_at(state, self.last_tick(gpu, instant))
        return max(0.0, state.counter_offset + state.counter_gain * joules)

    # What else the GPUs report.

    def set_memory_used(self, gpu: int, used: int) -> None:
        """Bytes of memory in use."""
        self._gpu(gpu).memory_used = used

    def set_utilization(self, gpu: int, percent: int) -> None:
        """The load that the GPU reports."""
        self._gpu(gpu).gfx_activity = percent

    def set_processes(self, gpu: int, processes: Sequence[tuple[int, int, str]]) -> None:
        """The (pid, bytes, name) of the processes that run on the GPU."""
        with self._rewriting(gpu) as state:
            _write_processes(state, processes)

    # What clients may set and have set.

    def deny_control(self, denied: bool = True, gpu: int | None = None) -> None:
        """Refuse changes with NO_PERM whoever asks, on one GPU or on all of them."""
        for index in range(len(self)) if gpu is None else [gpu]:
            state = self._gpu(index)
            flag = _Flag.DENY_CONTROL
            state.flags = (state.flags | flag) if denied else (state.flags & ~flag)

    def power_limit(self, gpu: int) -> float:
        """The power limit in force, in watts."""
        return self._gpu(gpu).limit_uw / _MICRO

    def set_power_limit(self, gpu: int, watts: float) -> None:
        """Change the power limit behind the clients' back."""
        self._gpu(gpu).limit_uw = round(watts * _MICRO)

    def performance_level(self, gpu: int) -> int:
        """The performance level that clients have asked for; 0 is automatic, 3 manual."""
        return self._gpu(gpu).performance_level

    def set_performance_level(self, gpu: int, level: int) -> None:
        """Change the performance level behind the clients' back."""
        self._gpu(gpu).performance_level = level

    def graphics_bounds(self, gpu: int) -> tuple[int, int]:
        """The lowest and highest graphics clock in force, in MHz."""
        bounds = self._gpu(gpu).graphics_bounds
        return bounds.minimum, bounds.maximum

    def memory_bounds(self, gpu: int) -> tuple[int, int]:
        """The lowest and highest memory clock in force, in MHz."""
        bounds = self._gpu(gpu).memory_bounds
        return bounds.minimum, bounds.maximum

    def calls(self, function: str) -> int:
        """How often processes have called a function so far."""
        if function == ANY_FUNCTION:
            return sum(self._state.calls)
        return self._state.calls[function_number(function)]

    # Faults.

    def fault(
        self,
        gpu: int | None,
        function: str,
        kind: FaultKind,
        *,
        code: int = AmdSmiStatus.IO,
        seconds: float = 0.0,
        skip: int = 0,
        times: int | None = None,
    ) -> None:
        """Make calls of `function` on `gpu` go wrong, starting now.

        Args:
            gpu: which GPU, or None for functions that name no GPU (amdsmi_init and the like).
            function: one function, or "*" for all that ask the GPU itself. What the library
                remembers from its start (PCI address, type) is not among them.
            kind: "error" returns `code`; "hang" blocks until the fault is cleared; "delay" takes
                `seconds`; "sentinel" succeeds with all bits set in the numbers.
            code: the status of an error.
            seconds: how long a delayed call takes.
            skip: how many calls go well before the first that does not.
            times: how many calls go wrong, None for all of them.
        """
        fault = self._fault(gpu, function)
        fault.kind = 0
        fault.code, fault.seconds, fault.skip = int(code), seconds, skip
        fault.left = _FOR_EVER if times is None else times
        # The kind is what makes the fault take effect, so it comes last.
        fault.kind = _FAULT_KINDS[kind]

    def lose(self, gpu: int) -> None:
        """Make every question to this GPU fail because it fell off the bus."""
        self.fault(gpu, ANY_FUNCTION, "error", code=AmdSmiStatus.IO)

    def clear_faults(self, gpu: int | None = None, function: str | None = None) -> None:
        """End the faults of one GPU (None: of the library itself), or of one function on it."""
        if function is not None:
            self._fault(gpu, function).kind = 0
            return
        for number in range(MAX_FUNCTIONS):
            self._state.faults[MAX_GPUS if gpu is None else gpu][number].kind = 0

    # Internals.

    def _gpu(self, gpu: int) -> Any:
        if not 0 <= gpu < len(self):
            raise IndexError(f"no simulated GPU {gpu}")
        return self._state.gpus[gpu]

    def _fault(self, gpu: int | None, function: str) -> Any:
        if gpu is not None:
            self._gpu(gpu)
        row = MAX_GPUS if gpu is None else gpu
        return self._state.faults[row][function_number(function)]

    @contextmanager
    def _rewriting(self, gpu: int) -> Iterator[Any]:
        """Hold off the readers of this GPU and other writers, in this and other processes."""
        state = self._gpu(gpu)
        with self._lock:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            state.sequence += 1
            try:
                yield state
            finally:
                state.sequence += 1
                fcntl.flock(self._file, fcntl.LOCK_UN)


def _describe(gpu: Any, spec: AmdGpuSpec, index: int, now: float) -> None:
    """Fill in a GPU of a state file that nobody reads yet."""
    _describe_identity(gpu, spec, index)
    _describe_behaviour(gpu, spec, index)
    _describe_clocks(gpu.graphics, gpu.graphics_bounds, spec.graphics_clocks)
    _describe_clocks(gpu.memory, gpu.memory_bounds, spec.memory_clocks)
    gpu.flags = _flags_of(spec)
    gpu.limit_min_uw = round(spec.min_power_limit * _MICRO)
    gpu.limit_max_uw = round(spec.max_power_limit * _MICRO)
    gpu.limit_default_uw = gpu.limit_uw = round(spec.default_power_limit * _MICRO)
    gpu.performance_level = LEVEL_AUTO
    for function in spec.unsupported:
        gpu.unsupported[function_number(function)] = 1
    _write_processes(gpu, spec.processes)
    gpu.segments[0] = _Segment(start=now, watts=spec.watts, joules=0.0)
    gpu.segment_count = 1


def _describe_identity(gpu: Any, spec: AmdGpuSpec, index: int) -> None:
    gpu.name = spec.name.encode()
    gpu.uuid = (spec.uuid or f"a1ff74a1-0000-1000-80ff-{index:012x}").encode()
    gpu.serial = (spec.serial or f"a1ff{index:012x}").encode()
    gpu.board_serial = (spec.board_serial or f"PCB{index:06d}").encode()
    gpu.partition = (spec.partition or "").encode()
    gpu.device_id = spec.device_id
    gpu.pci_domain = spec.pci_domain
    gpu.pci_bus = 0x10 + index if spec.pci_bus is None else spec.pci_bus
    gpu.pci_device = spec.pci_device
    gpu.pci_function = spec.pci_function
    gpu.hip_id = spec.hip_id or 0


def _describe_behaviour(gpu: Any, spec: AmdGpuSpec, index: int) -> None:
    gpu.gfx_activity = spec.gfx_activity
    gpu.hotspot_celsius = spec.hotspot or 0
    gpu.edge_celsius = spec.edge or 0
    gpu.memory_total = spec.memory_total
    gpu.memory_used = spec.memory_used
    gpu.tick_period = spec.tick_period
    phase = _scatter(index, 1) * spec.tick_period
    gpu.tick_phase = phase if spec.tick_phase is None else spec.tick_phase
    gpu.counter_offset = spec.counter_offset
    gpu.counter_gain = spec.counter_gain
    # The library reports the resolution as a C float, so that is what it counts in.
    gpu.counter_resolution = ctypes.c_float(spec.counter_resolution).value
    gpu.average_window = spec.average_window


def _describe_clocks(clocks: Any, bounds: Any, offered: Sequence[int]) -> None:
    ascending = sorted(offered)
    clocks.count = len(ascending)
    clocks.mhz[: len(ascending)] = ascending
    bounds.minimum, bounds.maximum = ascending[0], ascending[-1]


def _flags_of(spec: AmdGpuSpec) -> _Flag:
    chosen = {
        _Flag.NEEDS_ROOT: spec.needs_root,
        _Flag.CURRENT_POWER: spec.current_power,
        _Flag.AVERAGE_POWER: spec.average_power,
        _Flag.ENERGY_COUNTER: spec.energy_counter,
        _Flag.HOTSPOT: spec.hotspot is not None,
        _Flag.EDGE: spec.edge is not None,
        _Flag.SECONDARY_DIE: spec.secondary_die,
        _Flag.CLOCK_LIMITS: spec.clock_limits,
        _Flag.HIP_ID: spec.hip_id is not None,
    }
    flags = _Flag(0)
    for flag, on in chosen.items():
        flags |= flag if on else _Flag(0)
    return flags


def _write_processes(gpu: Any, processes: Sequence[tuple[int, int, str]]) -> None:
    if len(processes) > MAX_PROCESSES:
        raise ValueError(f"at most {MAX_PROCESSES} processes")
    for position, (pid, used, name) in enumerate(processes):
        gpu.processes[position] = _Process(name=name.encode(), pid=pid, bytes=used)
    gpu.process_count = len(processes)

"""The controller of the simulated NVML driver.

A `SimulatedNvml` owns the state file that the C library maps: it describes the GPUs, schedules
the power they draw, injects faults and reads back what clients of the driver have set. It also
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
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Literal, NamedTuple

MAGIC = b"ZEUSNVML"
VERSION = 1
MAX_GPUS = 16
MAX_SEGMENTS = 4096
MAX_FUNCTIONS = 128
MAX_PROCESSES = 32
MAX_MIG_DEVICES = 7
MAX_MEMORY_CLOCKS = 8
MAX_GRAPHICS_CLOCKS = 256
MAX_UNSUPPORTED_FIELDS = 16
TEXT_LENGTH = 96

STATE_VARIABLE = "ZEUS_SIMULATED_NVML"
ANY_FUNCTION = "*"
_FOR_EVER = 2**62
# When the segments run out of room, this many of the oldest go at once.
_DROP_AT_LEAST = 1024

FaultKind = Literal["error", "hang", "delay", "sentinel"]
_FAULT_KINDS: dict[str, int] = {"error": 1, "hang": 2, "delay": 3, "sentinel": 4}


class NvmlReturn(IntEnum):
    """Return codes that a fault may ask for."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    UNKNOWN = 999


class _Flag(IntFlag):
    NEEDS_ROOT = 1 << 0
    DENY_CONTROL = 1 << 1
    LOST_AT_INIT = 1 << 2
    POWER_USAGE_IS_AVERAGE = 1 << 3
    PERSISTENCE_SUPPORTED = 1 << 4
    ECC_SUPPORTED = 1 << 5
    ECC_ENABLED = 1 << 6
    FAN_SUPPORTED = 1 << 7
    DISPLAY = 1 << 8
    MIG_SUPPORTED = 1 << 9
    MEMORY_POWER_SUPPORTED = 1 << 10
    MODULE_POWER_SUPPORTED = 1 << 11


class ClockSettings(NamedTuple):
    """The clocks that clients have asked for, in MHz; a locked range is None when not locked."""

    locked_graphics: tuple[int, int] | None
    locked_memory: tuple[int, int] | None
    application_memory: int
    application_graphics: int


@dataclass(frozen=True)
class GpuSpec:
    """One simulated GPU. Watts, joules, seconds, bytes and MHz throughout.

    Attributes:
        watts: what the GPU draws until told otherwise (and drew before the simulation began).
        tick_period: how often the energy counter is refreshed; 0 makes it live.
        tick_phase: refreshes happen at `tick_phase + k * tick_period` on CLOCK_MONOTONIC, None
            picks a different phase for each GPU.
        tick_jitter: each refresh comes late by a different amount below this.
        counter_offset: joules on the counter when the simulation begins.
        counter_gain: a counter that is simply wrong has a gain other than 1.
        power_usage_is: what nvmlDeviceGetPowerUsage reports.
        power_period: how often the instantaneous power sensor is refreshed; 0 makes it live.
        power_noise: relative amplitude of the error of power readings, which is reproducible.
        memory_power_fraction: share of the power reported for the memory, None if unsupported.
        module_power_extra: watts that the whole module draws on top, None if unsupported.
        compute_processes: (pid, bytes) of each process.
        mig_uuids: UUIDs of the MIG devices; any makes the GPU run in MIG mode.
        unsupported: functions that this GPU does not support.
        unsupported_fields: numbers of the field values that this GPU does not support.
    """

    name: str = "NVIDIA A100-SXM4-80GB"
    uuid: str | None = None
    serial: str | None = None
    watts: float = 60.0

    tick_period: float = 0.1
    tick_phase: float | None = None
    tick_jitter: float = 0.0
    counter_offset: float = 1000.0
    counter_gain: float = 1.0

    power_usage_is: Literal["instant", "average"] = "instant"
    power_period: float = 0.0
    power_phase: float | None = None
    power_noise: float = 0.0
    average_window: float = 1.0
    memory_power_fraction: float | None = None
    module_power_extra: float | None = None

    min_power_limit: float = 100.0
    max_power_limit: float = 400.0
    default_power_limit: float = 400.0
    needs_root: bool = True
    persistence_supported: bool = True
    persistence: bool = False
    lost_at_init: bool = False

    memory_clocks: Sequence[int] = (1215,)
    graphics_clocks: Sequence[int] = tuple(range(1410, 195, -15))
    default_graphics_clock: int | None = None

    memory_total: int = 80 * 2**30
    memory_reserved: int = 600 * 2**20
    memory_used: int = 0
    utilization_gpu: int = 0
    utilization_memory: int = 0
    compute_processes: Sequence[tuple[int, int]] = ()
    graphics_processes: Sequence[tuple[int, int]] = ()

    minor_number: int | None = None
    pci_domain: int = 0
    pci_bus: int | None = None
    pci_device: int = 0
    pci_device_id: int = 0x20B210DE
    pci_subsystem_id: int = 0x147F10DE
    board_id: int | None = None
    brand: int = 14
    architecture: int = 7
    compute_capability: tuple[int, int] = (8, 0)
    cores: int = 6912
    compute_mode: int = 0
    performance_state: int = 0
    fan_percent: int | None = None
    ecc_supported: bool = True
    ecc_enabled: bool = True
    display: bool = False

    mig_supported: bool = True
    mig_uuids: Sequence[str] = ()
    unsupported: Sequence[str] = ()
    unsupported_fields: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuse what the driver could not act out."""
        if self.tick_period > 0 and not 0 <= self.tick_jitter < self.tick_period:
            raise ValueError("tick_jitter must be below tick_period, so that ticks stay in order")
        if not self.min_power_limit <= self.default_power_limit <= self.max_power_limit:
            raise ValueError("default_power_limit must lie between the lowest and the highest")
        if self.average_window <= 0:
            raise ValueError("average_window must be positive")
        limits = {
            "mig_uuids": MAX_MIG_DEVICES,
            "memory_clocks": MAX_MEMORY_CLOCKS,
            "graphics_clocks": MAX_GRAPHICS_CLOCKS,
            "unsupported_fields": MAX_UNSUPPORTED_FIELDS,
        }
        for field, limit in limits.items():
            if len(getattr(self, field)) > limit:
                raise ValueError(f"at most {limit} {field}")
        if not self.memory_clocks or not self.graphics_clocks:
            raise ValueError("a GPU has at least one memory clock and one graphics clock")


class _Fault(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("code", ctypes.c_uint32),
        ("seconds", ctypes.c_double),
        ("skip", ctypes.c_int64),
        ("left", ctypes.c_int64),
    ]


class _Segment(ctypes.Structure):
    _fields_ = [
        ("start", ctypes.c_double),
        ("watts", ctypes.c_double),
        ("joules", ctypes.c_double),
    ]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint32),
        ("is_graphics", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
    ]


def _fields(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


_Text = ctypes.c_char * TEXT_LENGTH


class _Gpu(ctypes.Structure):
    """Must mirror `struct gpu` in nvml/state.h."""

    _fields_ = [
        *_fields(_Text, "name", "uuid", "serial"),
        ("mig_uuids", _Text * (MAX_MIG_DEVICES + 1)),
        *_fields(
            ctypes.c_uint32,
            "flags",
            "pci_domain",
            "pci_bus",
            "pci_device",
            "pci_device_id",
            "pci_subsystem_id",
            "minor_number",
            "board_id",
            "brand",
            "architecture",
            "compute_major",
            "compute_minor",
            "cores",
            "compute_mode",
            "performance_state",
            "fan_percent",
            "utilization_gpu",
            "utilization_memory",
            "mig_count",
            "unsupported_field_count",
        ),
        ("unsupported_fields", ctypes.c_uint32 * MAX_UNSUPPORTED_FIELDS),
        *_fields(ctypes.c_uint64, "memory_total", "memory_reserved", "memory_used"),
        *_fields(
            ctypes.c_double,
            "tick_period",
            "tick_phase",
            "tick_jitter",
            "counter_offset",
            "counter_gain",
            "power_period",
            "power_phase",
            "power_noise",
            "average_window",
            "memory_power_fraction",
            "module_power_extra",
        ),
        *_fields(
            ctypes.c_uint32,
            "limit_min_mw",
            "limit_max_mw",
            "limit_default_mw",
            "memory_clock_count",
            "graphics_clock_count",
            "default_graphics_clock",
        ),
        ("memory_clocks", ctypes.c_uint32 * MAX_MEMORY_CLOCKS),
        ("graphics_clocks", ctypes.c_uint32 * MAX_GRAPHICS_CLOCKS),
        ("unsupported", ctypes.c_uint8 * MAX_FUNCTIONS),
        *_fields(
            ctypes.c_uint32,
            "limit_mw",
            "persistence",
            "locked_graphics_min",
            "locked_graphics_max",
            "locked_memory_min",
            "locked_memory_max",
            "application_memory",
            "application_graphics",
        ),
        *_fields(ctypes.c_uint64, "sequence", "process_count"),
        ("processes", _Process * MAX_PROCESSES),
        *_fields(ctypes.c_uint64, "dropped_segments", "segment_count"),
        ("segments", _Segment * MAX_SEGMENTS),
    ]


class _State(ctypes.Structure):
    """Must mirror `struct state` in nvml/state.h."""

    _fields_ = [
        ("magic", ctypes.c_char * 8),
        ("version", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("size", ctypes.c_uint64),
        ("function_count", ctypes.c_uint32),
        ("cuda_version", ctypes.c_int32),
        ("driver_latency", ctypes.c_double),
        *_fields(_Text, "driver_version", "nvml_version"),
        ("calls", ctypes.c_uint64 * MAX_FUNCTIONS),
        ("faults", _Fault * MAX_FUNCTIONS * (MAX_GPUS + 1)),
        ("gpus", _Gpu * MAX_GPUS),
    ]


def _read_function_numbers() -> dict[str, int]:
    text = (Path(__file__).parent / "nvml" / "state.h").read_text()
    names = re.findall(r"^\s+FUNCTION\((\w+)\)", text, re.MULTILINE)
    return {ANY_FUNCTION: 0} | {name: number for number, name in enumerate(names, start=1)}


_FUNCTION_NUMBERS = _read_function_numbers()


def function_number(name: str) -> int:
    """The number of a function; versions of one function (`_v2`, `_v3`) share a number."""
    plain = re.sub(r"_v\d+$", "", name)
    plain = "nvmlInit" if plain == "nvmlInitWithFlags" else plain
    if plain not in _FUNCTION_NUMBERS:
        raise ValueError(f"the simulated driver has no function {name!r}")
    return _FUNCTION_NUMBERS[plain]


def _scatter(number: int, salt: int) -> float:
    """A number in [0, 1) that depends on its arguments only; the C side computes the same."""
    mask = 2**64 - 1
    mixed = number * 0xDF7C85303DD46B6B + salt * 0xF820571E8B29C9DD + 0x3C4F9A1D70E6B285
    mixed &= mask
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1 & mask
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9 & mask
    mixed ^= mixed >> 32
    return (mixed >> 11) * 2.0**-53


def _milliwatts(watts: float) -> int:
    return round(watts * 1000)


def _or(value: float | int | str | None, default: float | int | str) -> float | int | str:
    return default if value is None else value


class SimulatedNvml:
    """The state file of one simulated driver, seen from the side that decides what happens."""

    def __init__(self, path: Path) -> None:
        """Map an existing state file; `create` makes a new one."""
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = os.open(self.path, os.O_RDWR)
        self._close_file = weakref.finalize(self, os.close, self._file)
        size = os.fstat(self._file).st_size
        if size != ctypes.sizeof(_State):
            self._close_file()
            raise ValueError(f"{self.path} has {size} bytes, not {ctypes.sizeof(_State)}")
        self._map = mmap.mmap(self._file, size)
        self._state = _State.from_buffer(self._map)
        if (self._state.magic, self._state.version) != (MAGIC, VERSION):
            self.close()
            raise ValueError(f"{self.path} is no state file of this version")

    @classmethod
    def create(
        cls,
        path: Path,
        gpus: Sequence[GpuSpec],
        *,
        driver_version: str = "580.65.06",
        nvml_version: str = "13.580.65.06",
        cuda_version: int = 13000,
        driver_latency: float = 0.0,
    ) -> SimulatedNvml:
        """Write a new state file that describes `gpus` and map it."""
        if len(gpus) > MAX_GPUS:
            raise ValueError(f"at most {MAX_GPUS} GPUs")
        state = _State(
            version=VERSION,
            gpu_count=len(gpus),
            size=ctypes.sizeof(_State),
            function_count=len(_FUNCTION_NUMBERS),
            cuda_version=cuda_version,
            driver_latency=driver_latency,
            driver_version=driver_version.encode(),
            nvml_version=nvml_version.encode(),
        )
        now = time.monotonic()
        for index, spec in enumerate(gpus):
            _describe(state.gpus[index], spec, index, now)
        state.magic = MAGIC
        Path(path).write_bytes(bytes(state))
        return cls(path)

    def close(self) -> None:
        """Unmap the state file; the file stays."""
        if not self._close_file.alive:
            return
        del self._state
        # Whoever still holds a part of the state keeps the mapping until they let go.
        with suppress(BufferError):
            self._map.close()
        self._close_file()

    def __enter__(self) -> SimulatedNvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._state.gpu_count

    def environment(self, library_dir: Path) -> dict[str, str]:
        """Variables that make a process load the library from `library_dir` and this state."""
        earlier = os.environ.get("LD_LIBRARY_PATH")
        folders = [str(library_dir), *([earlier] if earlier else [])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(folders), STATE_VARIABLE: str(self.path)}

    # What the GPUs draw.

    def set_power(self, gpu: int, watts: float) -> float:
        """From now on `gpu` draws `watts`; forgets what was scheduled. Returns that instant."""
        with self._rewriting(gpu) as state:
            # Readers wait while the state is being rewritten, so whoever looks after this instant
            # sees the new power, and nobody has looked past it with the old one.
            now = time.monotonic()
            _replace_segments(state, [(now, watts)], now)
        return now

    def schedule(self, gpu: int, points: Sequence[tuple[float, float]]) -> None:
        """Draw `watts` from each absolute CLOCK_MONOTONIC instant on: (instant, watts) pairs.

        Replaces whatever was known from the first instant on. A first instant in the past
        rewrites history, which readers may already have seen differently.
        """
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
        last = _tick_instant(state, gpu, tick)
        return last if last <= instant else _tick_instant(state, gpu, tick - 1)

    def counter(self, gpu: int, instant: float) -> int:
        """What the energy counter shows at `instant`, in millijoules."""
        state = self._gpu(gpu)
        with self._lock:
            joules = _joules_at(state, self.last_tick(gpu, instant))
        return max(0, int(1000.0 * (state.counter_offset + state.counter_gain * joules)))

    def set_counter_offset(self, gpu: int, joules: float) -> None:
        """Shift the energy counter, for example to act out a reloaded driver."""
        self._gpu(gpu).counter_offset = joules

    # What else the GPUs report.

    def set_memory_used(self, gpu: int, used: int) -> None:
        """Bytes of memory in use, without what the driver reserves."""
        self._gpu(gpu).memory_used = used

    def set_utilization(self, gpu: int, percent: int, memory_percent: int = 0) -> None:
        """The load that the GPU reports."""
        state = self._gpu(gpu)
        state.utilization_gpu, state.utilization_memory = percent, memory_percent

    def set_processes(
        self,
        gpu: int,
        compute: Sequence[tuple[int, int]] = (),
        graphics: Sequence[tuple[int, int]] = (),
    ) -> None:
        """The (pid, bytes) of the processes that run on the GPU."""
        with self._rewriting(gpu) as state:
            _write_processes(state, compute, graphics)

    def set_unsupported_fields(self, gpu: int, fields: Sequence[int]) -> None:
        """The field values that the GPU does not support from now on."""
        if len(fields) > MAX_UNSUPPORTED_FIELDS:
            raise ValueError(f"at most {MAX_UNSUPPORTED_FIELDS} fields")
        _write_unsupported_fields(self._gpu(gpu), fields)

    def set_lost_at_init(self, gpu: int, lost: bool = True) -> None:
        """Make looking up the handle of this GPU fail because the GPU is lost."""
        self._set_flag(gpu, _Flag.LOST_AT_INIT, lost)

    def set_driver_latency(self, seconds: float) -> None:
        """Make every call on a device take at least this long."""
        self._state.driver_latency = seconds

    # What clients may set and have set.

    def deny_control(self, denied: bool = True, gpu: int | None = None) -> None:
        """Refuse changes with NO_PERMISSION whoever asks, on one GPU or on all of them."""
        for index in range(len(self)) if gpu is None else [gpu]:
            self._set_flag(index, _Flag.DENY_CONTROL, denied)

    def power_limit(self, gpu: int) -> float:
        """The power limit in force, in watts."""
        return self._gpu(gpu).limit_mw / 1000

    def set_power_limit(self, gpu: int, watts: float) -> None:
        """Change the power limit behind the clients' back."""
        self._gpu(gpu).limit_mw = _milliwatts(watts)

    def persistence(self, gpu: int) -> bool:
        """Whether persistence mode is on."""
        return bool(self._gpu(gpu).persistence)

    def clocks(self, gpu: int) -> ClockSettings:
        """The clocks that clients have asked for."""
        state = self._gpu(gpu)
        graphics = (state.locked_graphics_min, state.locked_graphics_max)
        memory = (state.locked_memory_min, state.locked_memory_max)
        return ClockSettings(
            locked_graphics=graphics if graphics[1] else None,
            locked_memory=memory if memory[1] else None,
            application_memory=state.application_memory,
            application_graphics=state.application_graphics,
        )

    def calls(self, function: str) -> int:
        """How often processes have called a function so far, all versions of it together."""
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
        code: int = NvmlReturn.UNKNOWN,
        seconds: float = 0.0,
        skip: int = 0,
        times: int | None = None,
    ) -> None:
        """Make calls of `function` on `gpu` go wrong, starting now.

        Args:
            gpu: which GPU, or None for functions that name no GPU (nvmlInit, nvmlDeviceGetCount).
            function: one function, or "*" for all that take a handle of this GPU. Looking up the
                handle is not among them and has to be named.
            kind: "error" returns `code`; "hang" blocks until the fault is cleared; "delay" only
                takes `seconds`; "sentinel" succeeds with all bits set in every number.
            code: the return code of an error.
            seconds: how long the call takes, for every kind but "hang".
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
        """Make every call on this GPU fail because it fell off the bus."""
        self.fault(gpu, ANY_FUNCTION, "error", code=NvmlReturn.GPU_IS_LOST)

    def clear_faults(self, gpu: int | None = None, function: str | None = None) -> None:
        """End the faults of one GPU (None: of the driver itself), or of one function on it."""
        if function is not None:
            self._fault(gpu, function).kind = 0
            return
        for number in range(MAX_FUNCTIONS):
            self._state.faults[MAX_GPUS if gpu is None else gpu][number].kind = 0

    # Internals.

    def _gpu(self, gpu: int) -> _Gpu:
        if not 0 <= gpu < len(self):
            raise IndexError(f"no simulated GPU {gpu}")
        return self._state.gpus[gpu]

    def _fault(self, gpu: int | None, function: str) -> _Fault:
        if gpu is not None:
            self._gpu(gpu)
        row = MAX_GPUS if gpu is None else gpu
        return self._state.faults[row][function_number(function)]

    def _set_flag(self, gpu: int, flag: _Flag, on: bool) -> None:
        state = self._gpu(gpu)
        state.flags = (state.flags | flag) if on else (state.flags & ~flag)

    @contextmanager
    def _rewriting(self, gpu: int) -> Iterator[_Gpu]:
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


def _describe(gpu: _Gpu, spec: GpuSpec, index: int, now: float) -> None:
    """Fill in a GPU of a state file that nobody reads yet."""
    _describe_identity(gpu, spec, index)
    _describe_behaviour(gpu, spec, index)
    _describe_clocks(gpu, spec)
    gpu.flags = _flags_of(spec)
    gpu.limit_min_mw = _milliwatts(spec.min_power_limit)
    gpu.limit_max_mw = _milliwatts(spec.max_power_limit)
    gpu.limit_default_mw = gpu.limit_mw = _milliwatts(spec.default_power_limit)
    gpu.persistence = int(spec.persistence)
    gpu.memory_total = spec.memory_total
    gpu.memory_reserved = spec.memory_reserved
    gpu.memory_used = spec.memory_used
    for function in spec.unsupported:
        gpu.unsupported[function_number(function)] = 1
    _write_unsupported_fields(gpu, spec.unsupported_fields)
    _write_processes(gpu, spec.compute_processes, spec.graphics_processes)
    gpu.segments[0] = _Segment(start=now, watts=spec.watts, joules=0.0)
    gpu.segment_count = 1


def _describe_identity(gpu: _Gpu, spec: GpuSpec, index: int) -> None:
    gpu.name = spec.name.encode()
    gpu.uuid = str(_or(spec.uuid, f"GPU-5a1d0000-0000-4000-8000-{index:012x}")).encode()
    gpu.serial = str(_or(spec.serial, f"16520210{index:05d}")).encode()
    gpu.mig_count = len(spec.mig_uuids)
    for position, uuid in enumerate(spec.mig_uuids):
        full = uuid if uuid.startswith("MIG-") else f"MIG-{uuid}"
        gpu.mig_uuids[position].value = full.encode()
    gpu.pci_domain = spec.pci_domain
    gpu.pci_bus = _or(spec.pci_bus, 0x10 + index)
    gpu.pci_device = spec.pci_device
    gpu.pci_device_id = spec.pci_device_id
    gpu.pci_subsystem_id = spec.pci_subsystem_id
    gpu.minor_number = _or(spec.minor_number, index)
    gpu.board_id = _or(spec.board_id, gpu.pci_bus << 8)
    gpu.brand = spec.brand
    gpu.architecture = spec.architecture
    gpu.compute_major, gpu.compute_minor = spec.compute_capability
    gpu.cores = spec.cores


def _describe_behaviour(gpu: _Gpu, spec: GpuSpec, index: int) -> None:
    gpu.compute_mode = spec.compute_mode
    gpu.performance_state = spec.performance_state
    gpu.fan_percent = spec.fan_percent or 0
    gpu.utilization_gpu = spec.utilization_gpu
    gpu.utilization_memory = spec.utilization_memory
    gpu.tick_period = spec.tick_period
    gpu.tick_phase = _or(spec.tick_phase, _scatter(index, 1) * spec.tick_period)
    gpu.tick_jitter = spec.tick_jitter
    gpu.counter_offset = spec.counter_offset
    gpu.counter_gain = spec.counter_gain
    gpu.power_period = spec.power_period
    gpu.power_phase = _or(spec.power_phase, _scatter(index, 2) * spec.power_period)
    gpu.power_noise = spec.power_noise
    gpu.average_window = spec.average_window
    gpu.memory_power_fraction = spec.memory_power_fraction or 0.0
    gpu.module_power_extra = spec.module_power_extra or 0.0


def _describe_clocks(gpu: _Gpu, spec: GpuSpec) -> None:
    memory = sorted(spec.memory_clocks, reverse=True)
    graphics = sorted(spec.graphics_clocks, reverse=True)
    gpu.memory_clocks[: len(memory)] = memory
    gpu.graphics_clocks[: len(graphics)] = graphics
    gpu.memory_clock_count, gpu.graphics_clock_count = len(memory), len(graphics)
    gpu.default_graphics_clock = _or(spec.default_graphics_clock, graphics[0])
    gpu.application_memory = memory[0]
    gpu.application_graphics = gpu.default_graphics_clock


def _flags_of(spec: GpuSpec) -> _Flag:
    chosen = {
        _Flag.NEEDS_ROOT: spec.needs_root,
        _Flag.LOST_AT_INIT: spec.lost_at_init,
        _Flag.POWER_USAGE_IS_AVERAGE: spec.power_usage_is == "average",
        _Flag.PERSISTENCE_SUPPORTED: spec.persistence_supported,
        _Flag.ECC_SUPPORTED: spec.ecc_supported,
        _Flag.ECC_ENABLED: spec.ecc_supported and spec.ecc_enabled,
        _Flag.FAN_SUPPORTED: spec.fan_percent is not None,
        _Flag.DISPLAY: spec.display,
        _Flag.MIG_SUPPORTED: spec.mig_supported,
        _Flag.MEMORY_POWER_SUPPORTED: spec.memory_power_fraction is not None,
        _Flag.MODULE_POWER_SUPPORTED: spec.module_power_extra is not None,
    }
    flags = _Flag(0)
    for flag, on in chosen.items():
        flags |= flag if on else _Flag(0)
    return flags


def _write_unsupported_fields(gpu: _Gpu, fields: Sequence[int]) -> None:
    gpu.unsupported_field_count = 0
    gpu.unsupported_fields[: len(fields)] = list(fields)
    gpu.unsupported_field_count = len(fields)


def _write_processes(
    gpu: _Gpu, compute: Sequence[tuple[int, int]], graphics: Sequence[tuple[int, int]]
) -> None:
    if len(compute) + len(graphics) > MAX_PROCESSES:
        raise ValueError(f"at most {MAX_PROCESSES} processes")
    entries = [(pid, 0, used) for pid, used in compute] + [(pid, 1, used) for pid, used in graphics]
    for position, entry in enumerate(entries):
        gpu.processes[position] = _Process(*entry)
    gpu.process_count = len(entries)


def _segment_number(gpu: _Gpu, instant: float) -> int:
    """The last segment that starts at or before `instant`; the first reaches back for ever."""
    low, high = 0, gpu.segment_count
    while high - low > 1:
        middle = (low + high) // 2
        if gpu.segments[middle].start <= instant:
            low = middle
        else:
            high = middle
    return low


def _segment_at(gpu: _Gpu, instant: float) -> _Segment:
    return gpu.segments[_segment_number(gpu, instant)]


def _joules_at(gpu: _Gpu, instant: float) -> float:
    segment = _segment_at(gpu, instant)
    return segment.joules + segment.watts * (instant - segment.start)


def _tick_instant(gpu: _Gpu, index: int, tick: int) -> float:
    instant = gpu.tick_phase + tick * gpu.tick_period
    if gpu.tick_jitter > 0:
        instant += gpu.tick_jitter * _scatter(tick, index)
    return instant


def _replace_segments(gpu: _Gpu, points: Sequence[tuple[float, float]], now: float) -> None:
    """Draw what `points` say from the first of them on, keeping the history before it."""
    first = points[0][0]
    joules = _joules_at(gpu, first)
    kept = _segment_number(gpu, first)
    if gpu.segments[kept].start < first:
        kept += 1
    kept = _make_room(gpu, kept, len(points), now)
    for position, (start, watts) in enumerate(points):
        if position:
            before = gpu.segments[kept + position - 1]
            joules = before.joules + before.watts * (start - before.start)
        gpu.segments[kept + position] = _Segment(start=start, watts=watts, joules=joules)
    gpu.segment_count = kept + len(points)


def _make_room(gpu: _Gpu, kept: int, wanted: int, now: float) -> int:
    """Drop the oldest of the `kept` segments if need be; returns how many are left."""
    missing = kept + wanted - MAX_SEGMENTS
    if missing <= 0:
        return kept
    # Sensors still report what was drawn a moment ago, so that has to stay.
    memory = max(gpu.average_window, 2 * gpu.tick_period, 2 * gpu.power_period)
    droppable = _segment_number(gpu, now - memory)
    dropped = min(max(missing, _DROP_AT_LEAST), droppable, kept)
    if dropped < missing:
        raise ValueError(f"at most {MAX_SEGMENTS} power segments that are still of use")
    size = ctypes.sizeof(_Segment)
    base = ctypes.addressof(gpu.segments)
    ctypes.memmove(base, base + dropped * size, (kept - dropped) * size)
    gpu.dropped_segments += dropped
    return kept - dropped

"""The controller of the simulated AMD SMI library.

A `SimulatedAmdSmi` owns the state file that the C library maps: it describes the GPUs, schedules
the power they draw, injects faults and reads back what clients of the library have set. It also
answers, from the same numbers, what a perfect measurement would have found.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

from simulated_drivers import _power, _state, _usage, _zeus
from simulated_drivers._power import fields
from simulated_drivers._state import MAX_PROCESSES, Text

MAX_CLOCKS = 33

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
    NEEDS_ROOT = _state.NEEDS_ROOT
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
        watts: power until it is changed, and before the simulation began.
        serial: serial number of the chip, in hexadecimal digits.
        board_serial: serial number of the board; the dies of one board share it.
        secondary_die: the die of a two-die board whose power and energy read zero.
        partition: name of the compute partition mode, None where the part cannot be partitioned.
        hip_id: HIP's number for the GPU, None where the library does not know it.
        sensors: `Sensors`, or an object with the same attributes, or, where Zeus is installed, a
            name as in `ZEUS_SIMULATE_SENSORS`. By default those published for the part in `name`,
            or for an MI300X. Without an average of its own, the averaged power is what the
            momentary one is. The counter always has its timestamp.
        counter_offset: joules on the counter when the simulation begins.
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

    sensors: Any = "part"
    counter_offset: float = 1000.0
    counter_resolution: float = 15.3
    current_power: bool = True
    average_power: bool = False

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
        """Refuse what the library cannot simulate."""
        if not self.min_power_limit <= self.default_power_limit <= self.max_power_limit:
            raise ValueError("default_power_limit must lie between the lowest and the highest")
        object.__setattr__(self, "sensors", _zeus.published(self.sensors, self.name, "mi300x"))
        if self.counter_resolution <= 0:
            raise ValueError("counter_resolution must be positive")
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
    _fields_ = [("name", Text), *fields(ctypes.c_uint64, "pid", "bytes")]


class _Bounds(ctypes.Structure):
    _fields_ = fields(ctypes.c_uint32, "minimum", "maximum")


class _Clocks(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("mhz", ctypes.c_uint32 * MAX_CLOCKS)]


class _Gpu(ctypes.Structure):
    """Must mirror `struct gpu` in amdsmi/state.h."""

    _fields_ = [
        *fields(Text, "name", "uuid", "serial", "board_serial", "partition"),
        *fields(
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
        *fields(ctypes.c_int32, "hotspot_celsius", "edge_celsius"),
        *fields(ctypes.c_uint64, "memory_total", "memory_used"),
        ("counter_resolution", ctypes.c_double),
        *fields(ctypes.c_uint64, "limit_min_uw", "limit_max_uw", "limit_default_uw"),
        *fields(_Clocks, "graphics", "memory"),
        ("unsupported", ctypes.c_uint8 * _state.MAX_FUNCTIONS),
        ("limit_uw", ctypes.c_uint64),
        *fields(ctypes.c_uint32, "performance_level", "unused"),
        *fields(_Bounds, "graphics_bounds", "memory_bounds"),
        ("process_count", ctypes.c_uint64),
        ("processes", _Process * MAX_PROCESSES),
        ("uses", _usage.Uses),
        ("power", _power.Power),
    ]


class _State(ctypes.Structure):
    """Must mirror `struct state` in amdsmi/state.h."""

    _fields_ = [("header", _state.Header), ("gpus", _Gpu * _state.MAX_GPUS)]


def _describe(gpu: Any, spec: AmdGpuSpec, index: int) -> None:
    _state.fill(
        gpu,
        spec,
        uuid=f"a1ff74a1-0000-1000-80ff-{index:012x}",
        serial=f"a1ff{index:012x}",
        board_serial=f"PCB{index:06d}",
        pci_bus=0x10 + index,
    )
    gpu.hotspot_celsius = spec.hotspot or 0
    gpu.edge_celsius = spec.edge or 0
    gpu.flags = _flags_of(spec)
    gpu.limit_min_uw = round(spec.min_power_limit * _MICRO)
    gpu.limit_max_uw = round(spec.max_power_limit * _MICRO)
    gpu.limit_default_uw = gpu.limit_uw = round(spec.default_power_limit * _MICRO)
    _describe_clocks(gpu.graphics, gpu.graphics_bounds, spec.graphics_clocks)
    _describe_clocks(gpu.memory, gpu.memory_bounds, spec.memory_clocks)
    _state.describe_power(gpu.power, spec, index)
    if spec.sensors.average is None:
        gpu.power.average = gpu.power.instant
    # The library reports the resolution as a C float, so that is what it counts in.
    gpu.counter_resolution = ctypes.c_float(spec.counter_resolution).value
    _write_processes(gpu, spec.processes)


def _describe_clocks(clocks: Any, bounds: Any, offered: Sequence[int]) -> None:
    ascending = sorted(offered)
    clocks.count = len(ascending)
    clocks.mhz[: len(ascending)] = ascending
    bounds.minimum, bounds.maximum = ascending[0], ascending[-1]


def _flags_of(spec: AmdGpuSpec) -> int:
    chosen = {
        _Flag.NEEDS_ROOT: spec.needs_root,
        _Flag.CURRENT_POWER: spec.current_power,
        _Flag.AVERAGE_POWER: spec.average_power,
        _Flag.ENERGY_COUNTER: spec.sensors.counter is not None,
        _Flag.HOTSPOT: spec.hotspot is not None,
        _Flag.EDGE: spec.edge is not None,
        _Flag.SECONDARY_DIE: spec.secondary_die,
        _Flag.CLOCK_LIMITS: spec.clock_limits,
        _Flag.HIP_ID: spec.hip_id is not None,
    }
    return _state.chosen_flags(chosen)


def _write_processes(gpu: Any, processes: Sequence[tuple[int, int, str]]) -> None:
    if len(processes) > MAX_PROCESSES:
        raise ValueError(f"at most {MAX_PROCESSES} processes")
    for position, (pid, used, name) in enumerate(processes):
        gpu.processes[position] = _Process(name=name.encode(), pid=pid, bytes=used)
    gpu.process_count = len(processes)


class SimulatedAmdSmi(_state.SimulatedState):
    """The state file of one simulated library, seen from the side that decides what happens."""

    _layout = _State
    _magic = b"SIM-ASMI"
    variable = "SIMULATED_AMDSMI"
    _functions = _state.FunctionNumbers("amdsmi")
    _code_of_errors = AmdSmiStatus.IO
    _code_when_lost = AmdSmiStatus.IO
    _describe = staticmethod(_describe)

    @classmethod
    def create(cls, path: Path, gpus: Sequence[AmdGpuSpec]) -> SimulatedAmdSmi:
        """Write a new state file that describes `gpus`, in the library's order, and map it."""
        return cls._create(path, gpus)

    def environment(self, library_dir: Path) -> dict[str, str]:
        """Variables that make a process load the library from `library_dir` and this state.

        The binding prefers ROCM_HOME and ROCM_PATH, so these must not lead to another library.
        """
        return super().environment(library_dir)

    # What the GPUs report.

    def counter(self, gpu: int, instant: float) -> float:
        """The joules that the energy counter stands for at `instant`, before it is rounded down."""
        if self._gpu(gpu).flags & _Flag.SECONDARY_DIE:
            return 0.0
        return max(0.0, self._counted_joules(gpu, instant))

    def set_utilization(self, gpu: int, percent: int) -> None:
        """The load that the GPU reports."""
        self._gpu(gpu).gfx_activity = percent

    def set_processes(self, gpu: int, processes: Sequence[tuple[int, int, str]]) -> None:
        """The (pid, bytes, name) of the processes that run on the GPU."""
        with self._rewriting(gpu) as state:
            _write_processes(state, processes)

    # What clients have set.

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

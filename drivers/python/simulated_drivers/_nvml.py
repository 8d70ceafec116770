"""The controller of the simulated NVML driver.

A `SimulatedNvml` owns the state file that the C library maps: it describes the GPUs, schedules
the power they draw, injects faults and reads back what clients of the driver have set. It also
answers, from the same numbers, what a perfect measurement would have found.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any, Literal, NamedTuple

from simulated_drivers import _power, _response, _state, _usage, _zeus

MAX_SEGMENTS = _power.MAX_SEGMENTS
MAX_MIG_DEVICES = 7
MAX_MEMORY_CLOCKS = 8
MAX_GRAPHICS_CLOCKS = 256
MAX_UNSUPPORTED_FIELDS = 16

_fields, _Text = _power.fields, _state.Text


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
    NEEDS_ROOT = _state.NEEDS_ROOT
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
    AVERAGE_POWER_SUPPORTED = 1 << 12


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
        watts: power until it is changed, and before the simulation began.
        load: load from the beginning; power and speed then follow the power limit and clocks.
        sensors: `Sensors`, or an object with the same attributes, or, where Zeus is installed, a
            name as in `ZEUS_SIMULATE_SENSORS`. By default those published for the part in `name`,
            or for an A100.
        counter_offset: joules on the counter when the simulation begins.
        power_usage_is: the sensor that nvmlDeviceGetPowerUsage reports.
        power_samples: how many refreshes of the instantaneous power nvmlDeviceGetSamples gives,
            for sensors with a period; 0 if unsupported.
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
    load: _response.Load | None = None

    sensors: Any = "part"
    counter_offset: float = 1000.0
    power_usage_is: Literal["instant", "average"] = "instant"
    power_samples: int = 0
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
        """Refuse what the library cannot simulate."""
        object.__setattr__(self, "sensors", _zeus.published(self.sensors, self.name, "a100"))
        if self.power_usage_is == "average" and self.sensors.average is None:
            raise ValueError("power_usage_is='average' needs sensors with an average")
        if self.power_samples and not self.sensors.power.period:
            raise ValueError("power_samples needs a power sensor with a period")
        if not self.min_power_limit <= self.default_power_limit <= self.max_power_limit:
            raise ValueError("default_power_limit must lie between the lowest and the highest")
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


class _Process(ctypes.Structure):
    _fields_ = [*_fields(ctypes.c_uint32, "pid", "is_graphics"), ("bytes", ctypes.c_uint64)]


class _Gpu(ctypes.Structure):
    """Must mirror `struct gpu` in nvml/state.h."""

    _fields_ = [
        *_fields(_Text, "name", "uuid", "serial"),
        ("mig_uuids", _Text * MAX_MIG_DEVICES),
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
        *_fields(
            ctypes.c_uint64, "memory_total", "memory_reserved", "memory_used", "power_samples"
        ),
        *_fields(ctypes.c_double, "memory_power_fraction", "module_power_extra"),
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
        ("unsupported", ctypes.c_uint8 * _state.MAX_FUNCTIONS),
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
        ("process_count", ctypes.c_uint64),
        ("processes", _Process * _state.MAX_PROCESSES),
        ("uses", _usage.Uses),
        ("response", _response.Response),
        ("power", _power.Power),
    ]


class _State(ctypes.Structure):
    """Must mirror `struct state` in nvml/state.h."""

    _fields_ = [
        ("header", _state.Header),
        *_fields(ctypes.c_double, "driver_latency", "realtime_offset"),
        ("cuda_version", ctypes.c_int32),
        ("unused", ctypes.c_uint32),
        *_fields(_Text, "driver_version", "nvml_version"),
        ("gpus", _Gpu * _state.MAX_GPUS),
    ]


_FUNCTIONS = _state.FunctionNumbers("nvml", nvmlInitWithFlags="nvmlInit")


def _milliwatts(watts: float) -> int:
    return round(watts * 1000)


def _describe(gpu: _Gpu, spec: GpuSpec, index: int) -> None:
    _state.fill(
        gpu,
        spec,
        uuid=f"GPU-5a1d0000-0000-4000-8000-{index:012x}",
        serial=f"16520210{index:05d}",
        pci_bus=0x10 + index,
        minor_number=index,
    )
    if spec.board_id is None:
        gpu.board_id = gpu.pci_bus << 8
    gpu.compute_major, gpu.compute_minor = spec.compute_capability
    gpu.flags = _flags_of(spec)
    gpu.limit_min_mw = _milliwatts(spec.min_power_limit)
    gpu.limit_max_mw = _milliwatts(spec.max_power_limit)
    gpu.limit_default_mw = gpu.limit_mw = _milliwatts(spec.default_power_limit)
    gpu.mig_count = len(spec.mig_uuids)
    for position, uuid in enumerate(spec.mig_uuids):
        gpu.mig_uuids[position].value = f"MIG-{uuid.removeprefix('MIG-')}".encode()
    _describe_clocks(gpu, spec)
    _state.describe_power(gpu.power, spec, index)
    if spec.sensors.counter is None:
        gpu.unsupported[_FUNCTIONS["nvmlDeviceGetTotalEnergyConsumption"]] = 1
    _response.forget(gpu.response)
    _write_unsupported_fields(gpu, spec.unsupported_fields)
    _write_processes(gpu, spec.compute_processes, spec.graphics_processes)


def _describe_clocks(gpu: _Gpu, spec: GpuSpec) -> None:
    memory = sorted(spec.memory_clocks, reverse=True)
    graphics = sorted(spec.graphics_clocks, reverse=True)
    gpu.memory_clocks[: len(memory)] = memory
    gpu.graphics_clocks[: len(graphics)] = graphics
    gpu.memory_clock_count, gpu.graphics_clock_count = len(memory), len(graphics)
    if spec.default_graphics_clock is None:
        gpu.default_graphics_clock = graphics[0]
    gpu.application_memory = memory[0]
    gpu.application_graphics = gpu.default_graphics_clock


def _flags_of(spec: GpuSpec) -> int:
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
        _Flag.AVERAGE_POWER_SUPPORTED: spec.sensors.average is not None,
    }
    return _state.chosen_flags(chosen)


def _write_unsupported_fields(gpu: _Gpu, fields: Sequence[int]) -> None:
    gpu.unsupported_field_count = 0
    gpu.unsupported_fields[: len(fields)] = list(fields)
    gpu.unsupported_field_count = len(fields)


def _write_processes(
    gpu: _Gpu, compute: Sequence[tuple[int, int]], graphics: Sequence[tuple[int, int]]
) -> None:
    if len(compute) + len(graphics) > _state.MAX_PROCESSES:
        raise ValueError(f"at most {_state.MAX_PROCESSES} processes")
    entries = [(pid, 0, used) for pid, used in compute] + [(pid, 1, used) for pid, used in graphics]
    for position, entry in enumerate(entries):
        gpu.processes[position] = _Process(*entry)
    gpu.process_count = len(entries)


class SimulatedNvml(_state.SimulatedState):
    """The state file of one simulated driver, seen from the side that decides what happens."""

    _layout = _State
    _magic = b"SIM-NVML"
    variable = "SIMULATED_NVML"
    _functions = _FUNCTIONS
    _code_of_errors = NvmlReturn.UNKNOWN
    _code_when_lost = NvmlReturn.GPU_IS_LOST
    _describe = staticmethod(_describe)

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
        created = cls._create(
            path,
            gpus,
            cuda_version=cuda_version,
            driver_latency=driver_latency,
            realtime_offset=time.time() - time.monotonic(),
            driver_version=driver_version.encode(),
            nvml_version=nvml_version.encode(),
        )
        for index, spec in enumerate(gpus):
            if spec.load is not None:
                created.set_load(index, spec.load)
        return created

    # What the GPUs report.

    def counter(self, gpu: int, instant: float) -> int:
        """What the energy counter shows at `instant`, in millijoules."""
        return max(0, int(1000.0 * self._counted_joules(gpu, instant)))

    def set_counter_offset(self, gpu: int, joules: float) -> None:
        """Shift the energy counter, for example as a reloaded driver does."""
        self._gpu(gpu).power.counter_offset = joules

    def set_load(self, gpu: int, load: _response.Load) -> float:
        """From now on `gpu` draws what `load` says under its knobs; returns that instant.

        Ends with the next `set_power` or `schedule`. As there, the power follows at once when a
        knob is turned, and its energy is known exactly.
        """
        with self._rewriting(gpu) as state:
            limits = state.limit_min_mw / 1000, state.limit_max_mw / 1000
            clocks = state.graphics_clocks[: state.graphics_clock_count]
            _response.describe(state.response, load, limits, clocks)
            return self._respond(state)

    def speed(self, gpu: int) -> float:
        """How fast the load runs under the knobs as they are; 1 without a load."""
        return self._gpu(gpu).response.speed

    def operation(self, gpu: int, watts: float) -> _response.Operation:
        """What the load would settle at under this power limit, its clocks as they are."""
        state = self._gpu(gpu)
        if not state.response.limit_knot_count:
            raise ValueError(f"GPU {gpu} has no load that answers to its knobs")
        return _response.operation(state.response, watts, _graphics_clock(state))

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

    # What clients have set.

    def power_limit(self, gpu: int) -> float:
        """The power limit in force, in watts."""
        return self._gpu(gpu).limit_mw / 1000

    def set_power_limit(self, gpu: int, watts: float) -> None:
        """Change the power limit behind the clients' back."""
        with self._rewriting(gpu) as state:
            state.limit_mw = _milliwatts(watts)
            if state.response.limit_knot_count:
                self._respond(state)

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

    def _respond(self, state: _Gpu) -> float:
        """Draw what follows from the knobs, as nvml/response.c does when a client turns one."""
        settled = _response.operation(state.response, state.limit_mw / 1000, _graphics_clock(state))
        now = time.monotonic()
        super()._draw(state, [(now, settled.watts)], now)
        state.response.speed = settled.speed
        return now

    def _draw(self, state: _Gpu, points: Sequence[tuple[float, float]], now: float) -> None:
        _response.forget(state.response)
        super()._draw(state, points, now)

    def _sensor_memory(self, state: _Gpu) -> float:
        dated = state.power_samples * state.power.instant.period
        return super()._sensor_memory(state) + dated


def _graphics_clock(gpu: _Gpu) -> int:
    """MHz that settings allow: `current_clock` in nvml/clocks.c."""
    clock = gpu.application_graphics
    if gpu.locked_graphics_max:
        clock = max(gpu.locked_graphics_min, min(clock, gpu.locked_graphics_max))
    return min(clock, gpu.graphics_clocks[0])

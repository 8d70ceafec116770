"""NVIDIA GPUs through NVML, by way of the vendor's own binding (`nvidia-ml-py`)."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from zeus.device._base import (
    AbsentGpuDriver,
    Capability,
    ClockRange,
    CurrentClocks,
    GpuDriver,
    GpuIdentity,
    GpuProcess,
    MemoryUse,
    PowerLimits,
    Problem,
    ProcessUsage,
    SupportedClocks,
    implausible,
    read_or_error,
    suppress_unsupported,
    unsupported,
)
from zeus.device._guard import Guard
from zeus.errors import CapabilityError, KnobError, Reason

T = TypeVar("T")
_Sample = tuple[float | CapabilityError, float | CapabilityError]

_CONTROL_CURE = (
    "an administrator starts the node agent (sudo zeus agent run, or systemctl enable --now "
    "zeus-agent); or run as root, or in a container with CAP_SYS_ADMIN"
)
_READ_CURE = "let this user read the /dev/nvidia* devices"
_INIT_TIMEOUT = 30.0  # seconds; without persistence mode a node of eight GPUs is slow

_MILLI = 1e-3
_MICRO = 1e-6
_NO_32 = 0xFFFFFFFF
_NO_64 = 0xFFFFFFFFFFFFFFFF
_MAX_GPUS = 1024  # far more than a machine has; a higher count is wrong
_HIGHEST_CLOCK = 100_000  # MHz
_SAME_SAMPLE = 0.001  # seconds within which two timestamps are of one sample
_MAX_AHEAD = 1.0  # seconds by which a sample's timestamp may lie in the future
_FIRST_COMPUTE_CAPABILITY_WITH_AVERAGED_POWER = (8, 6)


def discover() -> tuple[list[GpuDriver], list[Problem]]:
    """Find all NVIDIA GPUs of the machine, by PCI address.

    Raises:
        CapabilityError: If the driver cannot be used.
    """
    guard = Guard("the NVIDIA driver", _INIT_TIMEOUT)
    drivers: list[GpuDriver] = []
    for index in range(guard.call(_start)):
        try:
            drivers.append(guard.call(partial(_open, index)))
        except CapabilityError as error:
            identity = GpuIdentity(f"nvml-index-{index}", f"NVIDIA GPU {index}", "NVIDIA")
            drivers.append(AbsentGpuDriver(identity, error))
            if error.reason is Reason.HANGS:
                guard = Guard("the NVIDIA driver", _INIT_TIMEOUT)  # the others may still respond
    return drivers, []


def _start() -> int:
    """Load the library; returns the number of GPUs."""
    import pynvml  # noqa: PLC0415  (costs 25 ms; only for GPU discovery)

    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        raise _translated(error, "NVML", _READ_CURE) from None
    if count > _MAX_GPUS:
        raise _implausible("number of GPUs", count)
    return count


def _open(index: int) -> NvmlGpuDriver:
    import pynvml  # noqa: PLC0415

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        raise _translated(error, f"GPU {index}", _READ_CURE) from None
    return NvmlGpuDriver(handle, pynvml)


def _speed(handle: Any, nvml: Any) -> float:
    with contextlib.suppress(nvml.NVMLError):
        cores = nvml.nvmlDeviceGetNumGpuCores(handle)
        return float(cores * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
    return 0.0


def _mig_uuids(handle: Any, nvml: Any) -> Iterator[str]:
    with contextlib.suppress(nvml.NVMLError):
        if nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                # Slots need not be filled from the front.
                with contextlib.suppress(nvml.NVMLError):
                    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                    yield _text(nvml.nvmlDeviceGetUUID(mig))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _translated(error: Any, what: str, permission_cure: str) -> CapabilityError:
    import pynvml as nvml  # noqa: PLC0415

    reasons = {
        nvml.NVML_ERROR_NOT_SUPPORTED: Reason.UNSUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Reason.UNSUPPORTED,
        # Our arguments are valid for newer drivers: this one does not support them.
        nvml.NVML_ERROR_INVALID_ARGUMENT: Reason.UNSUPPORTED,
        nvml.NVML_ERROR_NO_DATA: Reason.UNSUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION: Reason.NO_PERMISSION,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: Reason.DRIVER_ABSENT,
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Reason.DRIVER_ABSENT,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Reason.DRIVER_ABSENT,
        nvml.NVML_ERROR_TIMEOUT: Reason.HANGS,
    }
    # Every other error means that the GPU does not respond properly: fallen off the bus, in need
    # of a reset, no longer listed.
    reason = reasons.get(error.value, Reason.LOST)
    cures = {
        Reason.NO_PERMISSION: permission_cure,
        Reason.DRIVER_ABSENT: "install or load the NVIDIA driver (nvidia-smi should work)",
        Reason.LOST: "see `dmesg` for Xid messages; a reset or reboot may bring it back",
    }
    return CapabilityError(reason, f"{what}: {error}", cures.get(reason, ""))


class NvmlGpuDriver(GpuDriver):
    """One NVIDIA GPU."""

    def __init__(self, handle: Any, nvml: Any) -> None:
        self._handle = handle
        self._nvml = nvml
        self.identity = GpuIdentity(
            key=_text(self._call("UUID", nvml.nvmlDeviceGetUUID)),
            name=_text(self._call("name", nvml.nvmlDeviceGetName)),
            vendor="NVIDIA",
            pci_address=self._pci_address(),
        )
        self.speed = _speed(handle, nvml)
        self.slice_uuids = tuple(_mig_uuids(handle, nvml))
        # Both are polled up to a hundred times a second: resolve everything once.
        self._read_counter = nvml.nvmlDeviceGetTotalEnergyConsumption
        self._read_instant: Callable[[], float] | None = None
        self._read_sample: Callable[[], _Sample] | None = None

    def seen_as_slice(self, slice_uuid: str) -> NvmlGpuDriver:
        """Return this GPU for a process that sees one MIG slice of it: slices have no meter."""
        driver = copy.copy(self)  # without another driver call, which may hang by now
        name = f"{self.identity.name} (whole GPU of {slice_uuid})"
        driver.identity = replace(self.identity, name=name, whole_module=True)
        return driver

    def _pci_address(self) -> str | None:
        try:
            pci = self._nvml.nvmlDeviceGetPciInfo(self._handle)
        except self._nvml.NVMLError:
            return None
        if _NO_32 in (pci.domain, pci.bus, pci.device):
            return None
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def _call(
        self, what: str, function: Callable[..., T], *arguments: Any, cure: str = _READ_CURE
    ) -> T:
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            raise _translated(error, what, cure) from None

    # --- readings ---------------------------------------------------------------------------

    def energy(self) -> float:
        try:
            millijoules = self._read_counter(self._handle)
        except self._nvml.NVMLError as error:
            raise _translated(error, Capability.ENERGY_COUNTER, _READ_CURE) from None
        return _joules(millijoules)

    def version(self) -> str:
        try:
            return str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return ""

    def sample(self) -> _Sample:
        if self._read_sample is not None:
            return self._read_sample()
        together, apart = self._sample_in_one_call(), super().sample
        found = together()
        errors = [reading for reading in found if isinstance(reading, CapabilityError)]
        if not errors:
            self._read_sample = together
            return found
        if any(error.reason is Reason.UNSUPPORTED for error in errors):
            self._read_sample = apart  # each has another driver call
        return apart()

    def _sample_in_one_call(self) -> Callable[[], _Sample]:
        """Return a reader of energy and power without a refresh between the two."""
        nvml = self._nvml
        fields = (nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, nvml.NVML_FI_DEV_POWER_INSTANT)
        scope = nvml.NVML_POWER_SCOPE_GPU

        def read() -> _Sample:
            try:
                counter, power = values()
            except CapabilityError as error:
                return error, error
            return (
                read_or_error(lambda: _joules(self._checked(counter).value.ullVal)),
                read_or_error(lambda: _watts(self._checked(power).value.uiVal)),
            )

        try:
            values = self._fields_reader(*((field, scope) for field in fields))
        except CapabilityError as error:
            refused = error
            return lambda: (refused, refused)
        return read

    def power_samples(self, since: float) -> list[tuple[float, float]]:
        """Power samples, which the driver timestamps by wall-clock time.

        Setting the wall clock in between shifts them.
        """
        nvml = self._nvml
        offset = time.time() - time.monotonic()
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(
                self._handle, nvml.NVML_TOTAL_POWER_SAMPLES, max(0, int((since + offset) / _MICRO))
            )
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:
                return []  # none since then
            raise _translated(error, "timestamped power samples", _READ_CURE) from None
        if kind != nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            raise _implausible("type of timestamped power samples", kind)
        # Unused entries of the ring buffer have no timestamp.
        stamps = [int(sample.timeStamp) for sample in samples if sample.timeStamp]
        latest = (time.time() + _MAX_AHEAD) / _MICRO
        if stamps != sorted(set(stamps)) or any(stamp > latest for stamp in stamps):
            raise _implausible("timestamp of a power sample", max(stamps))
        dated = [
            (sample.timeStamp * _MICRO - offset, _watts(sample.sampleValue.uiVal))
            for sample in samples
            if sample.timeStamp
        ]
        return [(instant, watts) for instant, watts in dated if instant > since]

    def instant_power(self) -> float:
        if self._read_instant is None:
            self._read_instant = self._choose_instant()
        return self._read_instant()

    def _choose_instant(self) -> Callable[[], float]:
        nvml = self._nvml
        with suppress_unsupported():
            field = self._field_reader(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_GPU)
            field()
            return field
        # Older drivers have one power reading. Its meaning depends on the chip: since GA10x it is a
        # mean over a second, before that (and on GA100) the instantaneous power.
        if self._compute_capability() >= _FIRST_COMPUTE_CAPABILITY_WITH_AVERAGED_POWER:
            raise unsupported(Capability.INSTANT_POWER, "this driver reports a mean over 1 s only")
        return self._power_usage

    def _compute_capability(self) -> tuple[int, int]:
        major, minor = self._call(
            "compute capability", self._nvml.nvmlDeviceGetCudaComputeCapability
        )
        if min(major, minor) < 0 or _NO_32 in (major, minor):
            raise _implausible("compute capability", major)
        return int(major), int(minor)

    def average_power(self) -> float:
        nvml = self._nvml
        with suppress_unsupported():
            return self._field_reader(nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_GPU)()
        if self._compute_capability() < _FIRST_COMPUTE_CAPABILITY_WITH_AVERAGED_POWER:
            raise unsupported(Capability.AVERAGE_POWER, "this GPU reports instantaneous power only")
        return self._power_usage()

    def memory_power(self) -> float:
        nvml = self._nvml
        return self._field_reader(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_MEMORY)()

    def _power_usage(self) -> float:
        milliwatts = self._call("power", self._nvml.nvmlDeviceGetPowerUsage)
        return _watts(milliwatts)

    def _field_reader(self, field: int, scope: int) -> Callable[[], float]:
        """Return a reader of one power field, in watts."""
        values = self._fields_reader((field, scope))
        return lambda: _watts(self._checked(values()[0]).value.uiVal)

    def _fields_reader(self, *fields: tuple[int, int]) -> Callable[[], Sequence[Any]]:
        """Return a reader of fields, each with its scope, that reuses its buffer between calls."""
        nvml, handle = self._nvml, self._handle
        # The binding's own wrapper rebuilds this array each time; the entry point it uses is
        # public in NVML and the same.
        try:
            entry = nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        except nvml.NVMLError as error:
            raise _translated(error, "power", _READ_CURE) from None
        count, check = ctypes.c_int(len(fields)), nvml._nvmlCheckReturn
        # Per thread: a sampler and a caller may read at the same time, and must not see a buffer
        # that the other's call is filling.
        memory = threading.local()

        def read() -> Sequence[Any]:
            try:
                values = memory.values
            except AttributeError:
                values = memory.values = (nvml.c_nvmlFieldValue_t * len(fields))()
                for value, (field, scope) in zip(values, fields, strict=True):
                    value.fieldId, value.scopeId = field, scope
            try:
                check(entry(handle, count, values))
            except nvml.NVMLError as error:
                raise self._field_error(error, fields[0][0]) from None
            return values  # type: ignore[no-any-return]

        return read

    def _checked(self, value: Any) -> Any:
        """Return a field that the driver has filled in.

        Raises:
            CapabilityError: If the driver reports an error for the field.
        """
        try:
            self._nvml._nvmlCheckReturn(value.nvmlReturn)
        except self._nvml.NVMLError as error:
            raise self._field_error(error, value.fieldId) from None
        return value

    def _field_error(self, error: Any, field: int) -> CapabilityError:
        # Fields were added to drivers over time: older drivers report an unknown one as invalid.
        if error.value == self._nvml.NVML_ERROR_INVALID_ARGUMENT:
            return unsupported("power field", f"{field} is unknown to the driver")
        counted = field == self._nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
        return _translated(error, Capability.ENERGY_COUNTER if counted else "power", _READ_CURE)

    def temperature(self) -> float:
        celsius = self._call(
            Capability.TEMPERATURE,
            self._nvml.nvmlDeviceGetTemperature,
            self._nvml.NVML_TEMPERATURE_GPU,
        )
        if not 0 <= celsius < 200:
            raise _implausible(Capability.TEMPERATURE, celsius)
        return float(celsius)

    def utilization(self) -> float:
        rates = self._call(Capability.UTILIZATION, self._nvml.nvmlDeviceGetUtilizationRates)
        if rates.gpu > 100:
            raise _implausible(Capability.UTILIZATION, rates.gpu)
        return float(rates.gpu) / 100

    def memory(self) -> MemoryUse:
        info = self._call(Capability.MEMORY, self._nvml.nvmlDeviceGetMemoryInfo)
        if info.used > info.total or info.total == _NO_64:
            raise _implausible(Capability.MEMORY, info.used)
        return MemoryUse(int(info.used), int(info.total))

    def processes(self) -> tuple[GpuProcess, ...]:
        nvml = self._nvml
        listed = list(self._call(Capability.PROCESSES, nvml.nvmlDeviceGetComputeRunningProcesses))
        with suppress_unsupported():  # compute-only parts have none
            listed += self._call(Capability.PROCESSES, nvml.nvmlDeviceGetGraphicsRunningProcesses)
        found: dict[int, GpuProcess] = {}
        for process in listed:
            pid, used = int(process.pid), process.usedGpuMemory
            if found.get(pid, GpuProcess(pid, None)).memory is None:  # in both lists, memory in one
                found[pid] = GpuProcess(pid, None if used in (None, _NO_64) else int(used))
        return tuple(found.values())

    def process_usage(self, since: float) -> ProcessUsage:
        """Usage by process, which the driver timestamps by wall-clock time.

        The driver answers with one mean per process over its samples since then, in whole percent,
        dated by the last sample in which the process ran.
        """
        nvml = self._nvml
        offset = time.time() - time.monotonic()
        # Samples are far apart, and the two clocks are not read at the same instant: the sample of
        # the instant `since` must not count again.
        seen = max(0, int((since + offset + _SAME_SAMPLE) / _MICRO))
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, seen)
        except nvml.NVMLError as error:
            # None since then, or more processes than a moment ago: as many as fit are not enough.
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INSUFFICIENT_SIZE):
                return ProcessUsage(since, since)
            raise _translated(error, "usage by process", _READ_CURE) from None
        latest = (time.time() + _MAX_AHEAD) / _MICRO
        # Drivers fill unused entries, and those of processes that died badly, with anything.
        valid = [
            sample
            for sample in samples
            if sample.pid and seen < sample.timeStamp <= latest and sample.smUtil <= 100
        ]
        shares: dict[int, float] = {}
        for sample in sorted(valid, key=lambda sample: sample.timeStamp):
            if sample.smUtil:
                shares[int(sample.pid)] = sample.smUtil / 100
        if not valid:
            return ProcessUsage(since, since)
        end = max(sample.timeStamp for sample in valid) * _MICRO - offset
        return ProcessUsage(since, max(since, end), shares)

    def current_clocks(self) -> CurrentClocks:
        nvml = self._nvml
        graphics = self._call(
            Capability.CLOCKS, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_GRAPHICS
        )
        try:
            memory = self._call("clock", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)
        except CapabilityError:
            memory = None
        return CurrentClocks(_clock(graphics), None if memory is None else _clock(memory))

    def supported_clocks(self) -> SupportedClocks:
        nvml = self._nvml
        memory = self._call(Capability.CLOCKS, nvml.nvmlDeviceGetSupportedMemoryClocks)
        graphics: set[int] = set()
        for clock in memory:
            try:
                graphics.update(
                    self._call("clocks", nvml.nvmlDeviceGetSupportedGraphicsClocks, clock)
                )
            except CapabilityError:
                continue
        return SupportedClocks(_highest_first(graphics), _highest_first(memory))

    def power_limit(self) -> float:
        return _watts(
            self._call(Capability.POWER_LIMIT, self._nvml.nvmlDeviceGetPowerManagementLimit)
        )

    def power_limits(self) -> PowerLimits:
        nvml = self._nvml
        low, high = self._call(
            Capability.POWER_LIMIT, nvml.nvmlDeviceGetPowerManagementLimitConstraints
        )
        default = self._call(Capability.POWER_LIMIT, nvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return PowerLimits(_watts(low), _watts(high), _watts(default))

    def persistence(self) -> bool:
        mode = self._call(Capability.PERSISTENCE, self._nvml.nvmlDeviceGetPersistenceMode)
        if mode not in (0, 1):
            raise _implausible(Capability.PERSISTENCE, mode)
        return bool(mode)

    # --- knobs ------------------------------------------------------------------------------

    def _set(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_INVALID_ARGUMENT:
                raise KnobError(f"the driver refuses {what} {arguments}: {error}") from None
            raise _translated(error, what, _CONTROL_CURE) from None

    def set_power_limit(self, watts: float) -> None:
        self._set(
            Capability.SET_POWER_LIMIT,
            self._nvml.nvmlDeviceSetPowerManagementLimit,
            round(watts / _MILLI),
        )

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        self._lock("Gpu", clock)

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        self._lock("Memory", clock)

    def _lock(self, domain: str, clock: ClockRange | None) -> None:
        if clock is None:
            reset = getattr(self._nvml, f"nvmlDeviceReset{domain}LockedClocks")
            self._set(Capability.LOCK_CLOCKS, reset)
        else:
            lock = getattr(self._nvml, f"nvmlDeviceSet{domain}LockedClocks")
            self._set(Capability.LOCK_CLOCKS, lock, clock.minimum, clock.maximum)

    def set_persistence(self, enabled: bool) -> None:
        self._set(Capability.PERSISTENCE, self._nvml.nvmlDeviceSetPersistenceMode, int(enabled))


def _joules(millijoules: int) -> float:
    if millijoules == _NO_64:
        raise _implausible(Capability.ENERGY_COUNTER, millijoules)
    return float(millijoules * _MILLI)


def _watts(milliwatts: int) -> float:
    if milliwatts == _NO_32:
        raise _implausible("power", milliwatts)
    return float(milliwatts) * _MILLI


def _clock(megahertz: int) -> int:
    if megahertz > _HIGHEST_CLOCK:
        raise _implausible(Capability.CLOCKS, megahertz)
    return int(megahertz)


def _highest_first(clocks: Sequence[int] | set[int]) -> tuple[int, ...]:
    return tuple(sorted(map(_clock, clocks), reverse=True))


def _implausible(what: str, value: int) -> CapabilityError:
    return implausible(what, f"the driver returned {value:#x}")

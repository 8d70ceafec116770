"""NVIDIA GPUs through NVML, by way of the vendor's own binding (`nvidia-ml-py`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.device.base import (
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
    SupportedClocks,
    unsupported,
)
from zeus.device.guard import Guard
from zeus.device.visible import Candidate
from zeus.errors import CapabilityError, KnobError, Reason

T = TypeVar("T")

_CONTROL_CURE = "run as root, or in a container with CAP_SYS_ADMIN"
_READ_CURE = "let this user read the /dev/nvidia* devices"
_INIT_TIMEOUT = 30.0  # seconds; without persistence mode a node of eight takes many

_MILLI = 1e-3
_NO_32 = 0xFFFFFFFF
_NO_64 = 0xFFFFFFFFFFFFFFFF
_FIRST_COMPUTE_CAPABILITY_WITH_AVERAGED_POWER = (8, 6)


def discover() -> tuple[list[GpuDriver], list[Candidate], list[Problem]]:
    """All NVIDIA GPUs of the machine by PCI address. Never raises.

    Returns:
        Drivers, what visibility rules need to know of each, and what stood in the way.
    """
    try:
        return Guard("the NVIDIA driver", _INIT_TIMEOUT).call(_discover)
    except CapabilityError as error:
        return [], [], [Problem("NVIDIA GPUs", error)]


def _discover() -> tuple[list[GpuDriver], list[Candidate], list[Problem]]:
    import pynvml  # noqa: PLC0415  (costs 25 ms; only who looks for GPUs pays)

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise _translated(error, "NVML", _READ_CURE) from None
    drivers: list[GpuDriver] = []
    candidates: list[Candidate] = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            driver: GpuDriver = NvmlGpuDriver(handle, pynvml)
            candidates.append(_candidate(handle, driver.identity.key, pynvml))
        except (CapabilityError, pynvml.NVMLError) as error:
            if not isinstance(error, CapabilityError):
                error = _translated(error, f"GPU {index}", _READ_CURE)
            identity = GpuIdentity(f"nvml-index-{index}", f"NVIDIA GPU {index}", "NVIDIA")
            driver = AbsentGpuDriver(identity, error)
            candidates.append(Candidate(identity.key))
        drivers.append(driver)
    return drivers, candidates, []


def _candidate(handle: Any, key: str, nvml: Any) -> Candidate:
    speed = 0.0
    slices: list[str] = []
    try:
        cores = nvml.nvmlDeviceGetNumGpuCores(handle)
        speed = cores * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    except nvml.NVMLError:
        pass
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                try:
                    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                    slices.append(_text(nvml.nvmlDeviceGetUUID(mig)))
                except nvml.NVMLError:
                    continue  # slots need not be filled from the front
    except nvml.NVMLError:
        pass
    return Candidate(key, speed, tuple(slices))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _translated(error: Any, what: str, permission_cure: str) -> CapabilityError:
    import pynvml as nvml  # noqa: PLC0415

    reasons = {
        nvml.NVML_ERROR_NOT_SUPPORTED: Reason.UNSUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Reason.UNSUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION: Reason.NO_PERMISSION,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: Reason.DRIVER_ABSENT,
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Reason.DRIVER_ABSENT,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Reason.DRIVER_ABSENT,
        nvml.NVML_ERROR_TIMEOUT: Reason.HANGS,
    }
    # Everything else means that the GPU does not answer as a GPU should: fallen off the bus,
    # in need of a reset, gone from the list.
    reason = reasons.get(error.value, Reason.LOST)
    cures = {
        Reason.NO_PERMISSION: permission_cure,
        Reason.DRIVER_ABSENT: "install or load the NVIDIA driver (nvidia-smi should work)",
        Reason.LOST: "see `dmesg` for Xid messages; a reset or reboot may bring it back",
    }
    return CapabilityError(reason, f"{what}: {error}", cures.get(reason, ""))


class NvmlGpuDriver(GpuDriver):
    """One NVIDIA GPU."""

    def __init__(self, handle: Any, nvml: Any, slice_uuid: str | None = None) -> None:
        """Wrap an NVML handle; `slice_uuid` says that the user sees only this MIG slice of it."""
        self._handle = handle
        self._nvml = nvml
        name = _text(self._call("name", nvml.nvmlDeviceGetName))
        uuid = _text(self._call("UUID", nvml.nvmlDeviceGetUUID))
        self.identity = GpuIdentity(
            key=uuid,
            name=name if slice_uuid is None else f"{name} (whole GPU of {slice_uuid})",
            vendor="NVIDIA",
            pci_address=self._pci_address(),
            whole_module=slice_uuid is not None,
        )
        # Both are asked up to a hundred times a second: look everything up once.
        self._read_counter = nvml.nvmlDeviceGetTotalEnergyConsumption
        self._read_instant: Callable[[], float] | None = None

    def seen_as_slice(self, slice_uuid: str) -> NvmlGpuDriver:
        """The same GPU for somebody who sees one MIG slice of it: slices have no meter."""
        return NvmlGpuDriver(self._handle, self._nvml, slice_uuid)

    def _pci_address(self) -> str | None:
        try:
            pci = self._nvml.nvmlDeviceGetPciInfo(self._handle)
        except self._nvml.NVMLError:
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
        if millijoules == _NO_64:
            raise _implausible(Capability.ENERGY_COUNTER, millijoules)
        return float(millijoules * _MILLI)

    def instant_power(self) -> float:
        if self._read_instant is None:
            self._read_instant = self._choose_instant()
        return self._read_instant()

    def _choose_instant(self) -> Callable[[], float]:
        nvml = self._nvml
        field = self._field_reader(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_GPU)
        try:
            field()
            return field
        except CapabilityError as error:
            if error.reason is not Reason.UNSUPPORTED:
                raise
        # Older drivers have one power reading. What it means depends on the chip: since GA10x it
        # is a mean over a second, before that (and on GA100) the power now.
        if self._compute_capability() >= _FIRST_COMPUTE_CAPABILITY_WITH_AVERAGED_POWER:
            raise unsupported(Capability.INSTANT_POWER, "this driver reports a mean over 1 s only")
        return self._power_usage

    def _compute_capability(self) -> tuple[int, int]:
        major, minor = self._call(
            "compute capability", self._nvml.nvmlDeviceGetCudaComputeCapability
        )
        return int(major), int(minor)

    def average_power(self) -> float:
        nvml = self._nvml
        try:
            return self._field_reader(nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_GPU)()
        except CapabilityError as error:
            if error.reason is not Reason.UNSUPPORTED:
                raise
        if self._compute_capability() < _FIRST_COMPUTE_CAPABILITY_WITH_AVERAGED_POWER:
            raise unsupported(Capability.AVERAGE_POWER, "this GPU reports power now, no mean")
        return self._power_usage()

    def memory_power(self) -> float:
        nvml = self._nvml
        return self._field_reader(nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_MEMORY)()

    def _power_usage(self) -> float:
        milliwatts = self._call("power", self._nvml.nvmlDeviceGetPowerUsage)
        return _watts(milliwatts)

    def _field_reader(self, field: int, scope: int) -> Callable[[], float]:
        """A reader of one power field that reuses its memory from call to call."""
        nvml = self._nvml
        values = (nvml.c_nvmlFieldValue_t * 1)()
        values[0].fieldId, values[0].scopeId = field, scope
        value, handle = values[0], self._handle
        # The binding's own wrapper builds this array anew each time; the entry point it uses is
        # public in NVML and the same.
        entry = nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        one, pointer = ctypes.c_int(1), ctypes.byref(values)
        check = nvml._nvmlCheckReturn

        def read() -> float:
            try:
                check(entry(handle, one, pointer))
                check(value.nvmlReturn)
            except nvml.NVMLError as error:
                # The field was added to drivers over time: those that know it not call it invalid.
                if error.value == nvml.NVML_ERROR_INVALID_ARGUMENT:
                    raise unsupported("power field", f"{field} is unknown to the driver") from None
                raise _translated(error, "power", _READ_CURE) from None
            return _watts(value.value.uiVal)

        return read

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
        return MemoryUse(int(info.used), int(info.total))

    def processes(self) -> tuple[GpuProcess, ...]:
        nvml = self._nvml
        found: dict[int, GpuProcess] = {}
        for query in (
            nvml.nvmlDeviceGetComputeRunningProcesses,
            nvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for process in self._call(Capability.PROCESSES, query):
                used = process.usedGpuMemory
                used = None if used in (None, _NO_64) else int(used)
                found[int(process.pid)] = GpuProcess(int(process.pid), used)
        return tuple(found.values())

    def current_clocks(self) -> CurrentClocks:
        nvml = self._nvml
        graphics = self._call(
            Capability.CLOCKS, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_GRAPHICS
        )
        try:
            memory = self._call("clock", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)
        except CapabilityError:
            memory = None
        return CurrentClocks(int(graphics), None if memory is None else int(memory))

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
        return SupportedClocks(
            tuple(sorted(map(int, graphics), reverse=True)),
            tuple(sorted(map(int, memory), reverse=True)),
        )

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
        return bool(self._call(Capability.PERSISTENCE, self._nvml.nvmlDeviceGetPersistenceMode))

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
        nvml = self._nvml
        if clock is None:
            self._set(Capability.LOCK_CLOCKS, nvml.nvmlDeviceResetGpuLockedClocks)
        else:
            self._set(
                Capability.LOCK_CLOCKS,
                nvml.nvmlDeviceSetGpuLockedClocks,
                clock.minimum,
                clock.maximum,
            )

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        nvml = self._nvml
        if clock is None:
            self._set(Capability.LOCK_CLOCKS, nvml.nvmlDeviceResetMemoryLockedClocks)
        else:
            self._set(
                Capability.LOCK_CLOCKS,
                nvml.nvmlDeviceSetMemoryLockedClocks,
                clock.minimum,
                clock.maximum,
            )

    def set_persistence(self, enabled: bool) -> None:
        self._set(Capability.PERSISTENCE, self._nvml.nvmlDeviceSetPersistenceMode, int(enabled))


def _watts(milliwatts: int) -> float:
    if milliwatts == _NO_32:
        raise _implausible("power", milliwatts)
    return float(milliwatts) * _MILLI


def _implausible(what: str, value: int) -> CapabilityError:
    return CapabilityError(Reason.IMPLAUSIBLE, f"{what}: the driver returned {value:#x}")

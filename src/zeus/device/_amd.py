"""AMD GPUs, through AMD's own Python binding `amdsmi` (the extra `amd`).

The binding uses microwatts, hertz, MiB and counter steps, and some boards share one sensor between
two GPUs; this file hides all of that. `amd_binding` loads and calls the binding.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.device._amd_binding import (
    ALL_64_BITS,
    NOT_FILLED_IN,
    GpuHandle,
    UnusableLibraryError,
    filled_in,
    load_binding,
    start,
)
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
    clock_refused,
    implausible,
    limit_refused,
    suppress_unsupported,
    unsupported,
)
from zeus.device._driver_time import DriverTime
from zeus.device._engine_time import EngineTime
from zeus.device._guard import Guard
from zeus.errors import CapabilityError, KnobError, Reason

_DISCOVERY_TIMEOUT = 30.0  # seconds; a suspended node of eight GPUs takes a few

_MICRO = 1e-6
_NANO = 1e-9
_HERTZ_PER_MHZ = 1_000_000
_MEBIBYTE = 2**20

# No GPU package comes near these; a reading beyond them is invalid.
_IMPOSSIBLE_WATTS = 10_000
_POSSIBLE_CELSIUS = (-60, 250)

# PCI device numbers of the MI250 and MI250X. Each is a board of two dies, which frameworks see as
# two GPUs. The board has one power sensor, one energy counter and one power cap, all of them the
# first die's; the second die reads zero everywhere. The interface does not report this: it
# follows from the part number, or the name. (The MI210, 0x740f, is the same chip with one die.)
_TWO_DIE_PARTS = frozenset({"0x7408", "0x740c"})
_TWO_DIE_NAME = "MI250"


@dataclass(frozen=True)
class _ClockDomain:
    """The binding's names of one clock: that of the type, and that for setting limits."""

    what: str
    type_name: str
    limit_name: str


# Performance levels: the driver chooses the clocks, or it keeps them within the bounds set.
_AUTOMATIC, _MANUAL = "AUTO", "MANUAL"

_GRAPHICS = _ClockDomain("graphics clock", "GFX", "sclk")
_MEMORY = _ClockDomain("memory clock", "MEM", "mclk")


class AmdGpuDriver(GpuDriver):
    """One AMD GPU (or one die of a board, or one partition of a package) behind its handle.

    Attributes:
        identity: The key is the UUID from the binding. `whole_module` is set on both dies
            of a two-die board and on the partitions of a package.
        visible_uuid: Its name in `ROCR_VISIBLE_DEVICES` and PyTorch, "GPU-" and the chip's serial
            number in hexadecimal; the key if the chip has none.
    """

    def __init__(self, handle: GpuHandle) -> None:
        """Read the identity of the GPU.

        Raises:
            CapabilityError: If it does not respond, or cannot be identified.
        """
        self._handle = handle
        self._binding = handle.binding
        self._call = handle.call
        chip = self._call("amdsmi_get_gpu_asic_info")
        name = handle.product_name(str(chip.get("market_name", "N/A")))
        self._shares_board = chip.get("device_id") in _TWO_DIE_PARTS or _TWO_DIE_NAME in name
        self.identity = GpuIdentity(
            key=handle.key(),
            name=name,
            vendor="AMD",
            pci_address=handle.pci_address,
            whole_module=self._shares_board or handle.is_partition(),
        )
        serial = str(chip.get("asic_serial", "N/A"))
        self.visible_uuid = self.identity.key if serial == "N/A" else _visible_uuid(serial)
        # The level that locking a clock replaced, to return to.
        self._level_before_lock = _AUTOMATIC
        self._locked_here: set[_ClockDomain] = set()
        self._driver_time = DriverTime()
        self._engine_time = EngineTime()

    # Energy and power.

    def energy(self) -> float:
        return self._count()[0]

    def timed_energy(self) -> tuple[float, float]:
        joules, timestamp = self._count()
        return joules, self._driver_time.instant(joules, timestamp, time.monotonic())

    def _count(self) -> tuple[float, int]:
        """Return joules, and their timestamp by the driver in nanoseconds."""
        count = self._call("amdsmi_get_energy_count")
        steps, microjoules = count["energy_accumulator"], count["counter_resolution"]
        if steps == ALL_64_BITS:
            raise unsupported(Capability.ENERGY_COUNTER, "this part does not report it")
        if not (math.isfinite(microjoules) and microjoules > 0):
            raise implausible(Capability.ENERGY_COUNTER, f"{microjoules} µJ per step")
        self._refuse_zero_of_second_die(Capability.ENERGY_COUNTER, steps)
        return steps * microjoules * _MICRO, count.get("timestamp", 0)

    def instant_power(self) -> float:
        """Current power of the whole package, in watts."""
        return self._power(Capability.INSTANT_POWER, "current_socket_power")

    def average_power(self) -> float:
        """Watts of the whole package, averaged by the driver."""
        return self._power(Capability.AVERAGE_POWER, "average_socket_power")

    def _power(self, what: Capability, field: str) -> float:
        watts = filled_in(what, self._call("amdsmi_get_power_info")[field])
        if watts > _IMPOSSIBLE_WATTS:
            raise implausible(what, f"{watts} W")
        self._refuse_zero_of_second_die(what, watts)
        return float(watts)

    def _refuse_zero_of_second_die(self, what: Capability, reading: float) -> None:
        if self._shares_board and reading == 0:
            raise unsupported(what, "the first die of this board reports it for both")

    # Other readings.

    def temperature(self) -> float:
        """Degrees Celsius, at the hottest spot or, where that has no sensor, at the edge."""
        try:
            return self._temperature("HOTSPOT")
        except CapabilityError as error:
            if error.reason not in (Reason.UNSUPPORTED, Reason.IMPLAUSIBLE):
                raise
        return self._temperature("EDGE")

    def _temperature(self, sensor: str) -> float:
        celsius = self._call(
            "amdsmi_get_temp_metric",
            getattr(self._binding.AmdSmiTemperatureType, sensor),
            self._binding.AmdSmiTemperatureMetric.CURRENT,
        )
        celsius = filled_in(Capability.TEMPERATURE, celsius)
        if not _POSSIBLE_CELSIUS[0] <= celsius <= _POSSIBLE_CELSIUS[1]:
            raise implausible(Capability.TEMPERATURE, f"{celsius} °C")
        return float(celsius)

    def utilization(self) -> float:
        """Share of recent time during which the compute engines were busy, 0 to 1."""
        what = Capability.UTILIZATION
        percent = filled_in(what, self._call("amdsmi_get_gpu_activity")["gfx_activity"])
        if not 0 <= percent <= 100:
            raise implausible(what, f"{percent} %")
        return percent / 100

    def memory(self) -> MemoryUse:
        what = Capability.MEMORY
        with suppress_unsupported():
            kind = self._binding.AmdSmiMemoryType.VRAM
            total = self._call("amdsmi_get_gpu_memory_total", kind)
            used = self._call("amdsmi_get_gpu_memory_usage", kind)
            return MemoryUse(used=filled_in(what, used), total=filled_in(what, total))
        # The other call rounds to whole MiB.
        usage = self._call("amdsmi_get_gpu_vram_usage")
        used, total = (filled_in(what, usage[field]) for field in ("vram_used", "vram_total"))
        return MemoryUse(used=used * _MEBIBYTE, total=total * _MEBIBYTE)

    def processes(self) -> tuple[GpuProcess, ...]:
        return tuple(_process(entry) for entry in self._call("amdsmi_get_gpu_process_list"))

    def process_usage(self, since: float) -> ProcessUsage:
        """Usage by process, from the time of the graphics engine that the driver adds up."""
        seconds: dict[int, float] = {}
        for entry in self._call("amdsmi_get_gpu_process_list"):
            nanoseconds = entry["engine_usage"]["gfx"]
            if nanoseconds not in NOT_FILLED_IN:
                seconds[entry["pid"]] = nanoseconds * _NANO
        # The kernel adds up nothing for compute queues on some parts.
        if seconds and not any(seconds.values()) and self.utilization() > 0:
            raise unsupported("usage by process", "this part does not report engine time")
        return self._engine_time.usage(since, time.monotonic(), seconds)

    # The power limit.

    def power_limit(self) -> float:
        watts: float = self._power_cap()["power_cap"] * _MICRO
        return watts

    def power_limits(self) -> PowerLimits:
        cap = self._power_cap()
        return PowerLimits(
            minimum=cap["min_power_cap"] * _MICRO,
            maximum=cap["max_power_cap"] * _MICRO,
            default=cap["default_power_cap"] * _MICRO,
        )

    def set_power_limit(self, watts: float) -> None:
        """Set the power limit. The kernel rounds down to whole watts."""
        try:
            self._handle.control("amdsmi_set_power_cap", 0, round(watts / _MICRO))
        except KnobError:
            raise limit_refused(self.identity.name, self.power_limits(), watts) from None

    def _power_cap(self) -> dict[str, int]:
        cap: dict[str, int] = self._call("amdsmi_get_power_cap_info")
        # A part without a power cap reports zero, as does the second die of a board.
        if cap["max_power_cap"] == 0 or cap["power_cap"] in (0, *NOT_FILLED_IN):
            raise unsupported(Capability.POWER_LIMIT)
        return cap

    # Clocks.

    def current_clocks(self) -> CurrentClocks:
        graphics = self._current_clock(_GRAPHICS)
        if graphics is None:
            raise unsupported(Capability.CLOCKS, "no graphics clock is reported")
        return CurrentClocks(graphics, self._current_clock(_MEMORY))

    def _current_clock(self, domain: _ClockDomain) -> int | None:
        with suppress_unsupported():
            info = self._call("amdsmi_get_clock_info", self._clock_type(domain))
            mhz: int | str = info["clk"]
            return None if mhz in NOT_FILLED_IN or isinstance(mhz, str) else mhz
        return None

    def supported_clocks(self) -> SupportedClocks:
        """The clocks that can be locked, in MHz; memory clocks are empty if there are none.

        Parts with finely adjustable clocks list only their lowest and highest (and, between them,
        the current one): every clock in the range can be locked on those.
        """
        graphics = self._supported_clocks(_GRAPHICS)
        with suppress_unsupported():
            return SupportedClocks(graphics, self._supported_clocks(_MEMORY))
        return SupportedClocks(graphics, ())

    def _supported_clocks(self, domain: _ClockDomain) -> tuple[int, ...]:
        listed = self._call("amdsmi_get_clk_freq", self._clock_type(domain))["frequency"]
        clocks = {
            hertz // _HERTZ_PER_MHZ
            for hertz in listed
            if hertz >= _HERTZ_PER_MHZ and hertz not in NOT_FILLED_IN
        }
        # While a clock is locked, Instinct parts list no clock beyond the lock.
        offered = self._offered_range(domain)
        if offered is not None:
            clocks |= {offered.minimum, offered.maximum}
        if not clocks:
            raise unsupported(Capability.CLOCKS, f"no {domain.what} is listed")
        return tuple(sorted(clocks, reverse=True))

    def locked_graphics_clock(self) -> ClockRange | None:
        return self._lock_in_force(_GRAPHICS)

    def locked_memory_clock(self) -> ClockRange | None:
        return self._lock_in_force(_MEMORY)

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        """Lock the graphics clock; `None` unlocks.

        The driver needs distinct bounds, so a lock on one clock is a range of 1 MHz.
        """
        self._lock(_GRAPHICS, clock)

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        self._lock(_MEMORY, clock)

    def _lock(self, domain: _ClockDomain, clock: ClockRange | None) -> None:
        if clock is None:
            self._unlock(domain)
            return
        level = self._performance_level()
        if level != _MANUAL:
            self._level_before_lock = level if level != "UNKNOWN" else _AUTOMATIC
        try:
            self._set_bounds(domain, self._with_room(domain, clock))
        except (CapabilityError, KnobError) as error:
            if level != _MANUAL:
                # Setting bounds has already left the old level; report the first error.
                with contextlib.suppress(CapabilityError, KnobError):
                    self._leave_manual_level()
            if isinstance(error, CapabilityError):
                raise
            clocks = self._supported_clocks(domain)
            raise clock_refused(self.identity.name, domain.what, clocks, clock) from error
        self._locked_here.add(domain)

    def _unlock(self, domain: _ClockDomain) -> None:
        other = _MEMORY if domain is _GRAPHICS else _GRAPHICS
        offered = self._offered_range(domain)
        if offered is not None and self._lock_in_force(domain) is not None:
            # On Radeon parts the bounds outlive the manual level, so they are widened as well.
            self._set_bounds(domain, offered)
        self._locked_here.discard(domain)
        # Both clocks share the level: it stays manual while the other one is locked.
        if other not in self._locked_here and self._lock_in_force(other) is None:
            self._leave_manual_level()

    def _leave_manual_level(self) -> None:
        levels = self._binding.AmdSmiDevPerfLevel
        level = getattr(levels, self._level_before_lock, levels.AUTO)
        self._handle.control("amdsmi_set_gpu_perf_level", level)
        self._level_before_lock = _AUTOMATIC

    def _set_bounds(self, domain: _ClockDomain, clock: ClockRange) -> None:
        """Set both bounds, in an order in which the lower never exceeds the upper."""
        try:
            self._set_bound(domain, "max", clock.maximum)
        except KnobError:
            # The new range may lie wholly below the old one; then the lower bound goes first.
            self._set_bound(domain, "min", clock.minimum)
            self._set_bound(domain, "max", clock.maximum)
        else:
            self._set_bound(domain, "min", clock.minimum)

    def _set_bound(self, domain: _ClockDomain, which: str, mhz: int) -> None:
        self._handle.control("amdsmi_set_gpu_clk_limit", domain.limit_name, which, mhz)

    def _with_room(self, domain: _ClockDomain, clock: ClockRange) -> ClockRange:
        if clock.minimum < clock.maximum:
            return clock
        lowest = min(self._supported_clocks(domain))
        minimum = max(lowest, clock.maximum - 1)
        return ClockRange(minimum, max(clock.maximum, minimum + 1))

    def _lock_in_force(self, domain: _ClockDomain) -> ClockRange | None:
        with suppress_unsupported():
            level = self._performance_level()
            bounds = self._clock_range(f"curr_{domain.limit_name}_range")
            return bounds if level == _MANUAL and bounds != self._offered_range(domain) else None
        return None

    def _offered_range(self, domain: _ClockDomain) -> ClockRange | None:
        with suppress_unsupported():
            return self._clock_range(f"{domain.limit_name}_freq_limits")
        return None

    def _clock_range(self, field: str) -> ClockRange | None:
        bounds = self._call("amdsmi_get_gpu_od_volt_info")[field]
        hertz = [bounds["lower_bound"], bounds["upper_bound"]]
        if any(bound in NOT_FILLED_IN for bound in hertz) or hertz[1] < _HERTZ_PER_MHZ:
            return None
        return ClockRange(*(bound // _HERTZ_PER_MHZ for bound in hertz))

    def _performance_level(self) -> str:
        level: str = self._call("amdsmi_get_gpu_perf_level")
        return level.removeprefix("AMDSMI_DEV_PERF_LEVEL_")

    def _clock_type(self, domain: _ClockDomain) -> Any:
        return getattr(self._binding.AmdSmiClkType, domain.type_name)


def discover(root: Path = Path("/")) -> tuple[list[GpuDriver], list[Problem]]:
    """Find the AMD GPUs of this machine, in HIP's order.

    Never prints. A GPU that does not respond is listed nevertheless, so that those after it keep
    their number.

    Args:
        root: Parent of the `sys` and `dev` folders, which show whether an AMD GPU is present.

    Raises:
        CapabilityError: If the driver cannot be used, although there is a GPU or a library.
    """
    try:
        return Guard("the AMD driver", _DISCOVERY_TIMEOUT).call(_discover)
    except CapabilityError as error:
        # Without a GPU no driver is needed, but an unusable library is an installation error.
        is_mistake = isinstance(error, UnusableLibraryError)
        if is_mistake or error.reason is not Reason.DRIVER_ABSENT or _has_amd_gpu(root):
            raise
        return [], []


def _discover() -> tuple[list[GpuDriver], list[Problem]]:
    return _list_gpus(start(load_binding()))


def _has_amd_gpu(root: Path) -> bool:
    return (root / "sys/class/kfd").exists() or (root / "dev/kfd").exists()


def _list_gpus(handles: list[GpuHandle]) -> tuple[list[GpuDriver], list[Problem]]:
    drivers: list[GpuDriver] = []
    problems: list[Problem] = []
    for number, handle in enumerate(handles):
        try:
            drivers.append(AmdGpuDriver(handle))
        except CapabilityError as error:
            pci_address = handle.pci_address
            name = f"AMD GPU at {pci_address}" if pci_address else f"AMD GPU {number}"
            identity = GpuIdentity(pci_address or name, name, "AMD", pci_address)
            drivers.append(AbsentGpuDriver(identity, error))
            problems.append(Problem(name, error))
    return drivers, problems


def _visible_uuid(serial: str) -> str:
    return f"GPU-{serial.removeprefix('0x').lower()}"


def _process(entry: dict[str, Any]) -> GpuProcess:
    # A process that uses a GPU uses some of its memory: zero means that it cannot be read.
    memory: int = entry["memory_usage"]["vram_mem"] or entry["mem"]
    name: str = entry["name"]
    known = memory > 0 and memory not in NOT_FILLED_IN
    return GpuProcess(entry["pid"], memory if known else None, None if name == "N/A" else name)

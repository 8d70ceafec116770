"""Vendor-independent interface of devices: their readings and knobs.

A *driver* is a back end: one class per vendor library overrides what its hardware offers, in
joules, watts, MHz and degrees Celsius. Methods that it does not override are unsupported. Every
failure is a `CapabilityError` that says why and affects only that reading. Callers use `Gpu`, which
has the same methods, protected against driver calls that hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar, overload

from zeus._former import missing_attribute
from zeus.errors import CapabilityError, KnobError, Reason, UnknownDeviceError, ZeusError

if TYPE_CHECKING:
    from zeus.device._records import RemoteHoldKeeper

T = TypeVar("T")


class Capability(StrEnum):
    """A reading or a knob that a GPU may support."""

    ENERGY_COUNTER = "energy counter"
    INSTANT_POWER = "instantaneous power"
    AVERAGE_POWER = "average power"
    MEMORY_POWER = "memory power"
    TEMPERATURE = "temperature"
    UTILIZATION = "utilization"
    MEMORY = "memory use"
    PROCESSES = "processes"
    CLOCKS = "clocks"
    POWER_LIMIT = "power limit"
    PERSISTENCE = "persistence mode"
    SET_POWER_LIMIT = "power limit control"
    LOCK_CLOCKS = "clock control"


@dataclass(frozen=True)
class Support:
    """Whether one capability can be used here, and if not, why and how to fix it.

    Attributes:
        available: Whether it can be used.
        reason: Kind of obstacle, if not.
        detail: The obstacle in words.
        cure: How to fix it, if that is known.
    """

    available: bool
    reason: Reason | None = None
    detail: str = ""
    cure: str = ""

    @classmethod
    def refused(cls, error: CapabilityError) -> Support:
        """Return the lack of support that an error describes."""
        return cls(False, error.reason, error.detail, error.cure)


@dataclass(frozen=True)
class PowerLimits:
    """The power limits a GPU accepts, in watts.

    Attributes:
        minimum: The lowest.
        maximum: The highest.
        default: The limit after a restart of the driver.
    """

    minimum: float
    maximum: float
    default: float


@dataclass(frozen=True)
class SupportedClocks:
    """The clocks a GPU can be locked to, in MHz, highest first.

    Attributes:
        graphics: Clocks of the computing units.
        memory: Clocks of the memory; empty if it cannot be locked.
    """

    graphics: tuple[int, ...]
    memory: tuple[int, ...]


@dataclass(frozen=True)
class ClockRange:
    """A lock on a clock: it stays between two bounds, in MHz.

    Attributes:
        minimum: The lower bound.
        maximum: The upper bound, which may be equal.
    """

    minimum: int
    maximum: int


@dataclass(frozen=True)
class CurrentClocks:
    """The clocks a GPU runs at now, in MHz.

    Attributes:
        graphics: Clock of the computing units.
        memory: Clock of the memory; `None` if it is not reported.
    """

    graphics: int
    memory: int | None


@dataclass(frozen=True)
class MemoryUse:
    """GPU memory, in bytes.

    Attributes:
        used: What is allocated.
        total: What there is.
    """

    used: int
    total: int


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU.

    Attributes:
        pid: Its number.
        memory: Bytes that it has allocated; `None` where the driver does not report it.
        name: Its name, where the driver knows it.
    """

    pid: int
    memory: int | None
    name: str | None = None


@dataclass(frozen=True)
class ProcessUsage:
    """Time for which processes used a GPU in an interval, as far as the driver has sampled it.

    Attributes:
        begin: Begin of the interval, an instant of `time.monotonic()`.
        end: End of the interval; equal to `begin` while the driver has no sample after it, be it
            that none is due or that nothing ran.
        shares: Share of the interval in which kernels of a process ran, 0 to 1, by process number.
            Processes that are left out ran none.
    """

    begin: float
    end: float
    shares: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuIdentity:
    """Identity of a GPU: the `key` is permanent, the rest is for display.

    Attributes:
        key: UUID if there is one, else PCI address; knobs are always set by it.
        name: Product name.
        vendor: Such as "NVIDIA" or "AMD".
        pci_address: Such as "0000:3b:00.0".
        whole_module: Set when the readings cover more than the device the framework sees
            (a MIG slice, one die of two): they are those of the whole board.
    """

    key: str
    name: str
    vendor: str
    pci_address: str | None = None
    whole_module: bool = False


def unsupported(what: Capability | str, detail: str = "") -> CapabilityError:
    """Return the error for something the hardware or its driver does not offer."""
    return CapabilityError(Reason.UNSUPPORTED, f"{what}{': ' + detail if detail else ''}")


class suppress_unsupported:
    """Context manager that suppresses the error of something unsupported, and no other."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, CapabilityError) and error.reason is Reason.UNSUPPORTED


def implausible(what: Capability | str, value: str) -> CapabilityError:
    """Return the error for an impossible value."""
    return CapabilityError(Reason.IMPLAUSIBLE, f"{what}: {value}")


def limit_refused(gpu: str, limits: PowerLimits, watts: float) -> KnobError:
    """Return the error for a power limit that a GPU, by its name, does not accept."""
    return KnobError(
        f"{limits.minimum:g} W <= power_limit <= {limits.maximum:g} W must hold for {gpu}, "
        f"but got {watts:g} W"
    )


def clock_refused(gpu: str, what: str, clocks: Sequence[int], clock: ClockRange) -> KnobError:
    """Return the error for a clock that a GPU, by its name, cannot be locked to."""
    return KnobError(
        f"{min(clocks)} MHz <= lowest <= highest <= {max(clocks)} MHz must hold for the {what} of "
        f"{gpu}, but got ({clock.minimum}, {clock.maximum}) MHz"
    )


def call_driver(call: Callable[[], T]) -> T:
    """Call a driver; an error that it must not raise counts as one implausible value.

    A driver of another distribution may break its contract, and that must cost this value only:
    readers try again after an implausible one.
    """
    try:
        return call()
    except ZeusError:
        raise
    except Exception as error:
        detail = f"the driver raised {type(error).__name__}: {error}"
        raise CapabilityError(Reason.IMPLAUSIBLE, detail) from error


def read_or_error(reading: Callable[[], float]) -> float | CapabilityError:
    """Return a reading, or the error in its place."""
    try:
        return call_driver(reading)
    except CapabilityError as error:
        return error


class GpuDriver:
    """Back end of one GPU.

    Every method may raise `CapabilityError` and may hang; setters also raise `KnobError` for a
    value that the driver does not accept.
    """

    identity: GpuIdentity
    #: Its name in the vendor's visibility variables, where that is not `identity.key`.
    visible_uuid: str = ""
    #: Any number that grows with its throughput, for runtimes that count the fastest GPU as the
    #: first; 0 if unknown.
    speed: float = 0.0
    #: UUIDs of the slices that it is partitioned into.
    slice_uuids: tuple[str, ...] = ()
    #: Seconds between updates of the energy counter on this part, if known; a first guess only.
    counter_period: float | None = None
    #: Seconds between refreshes of the power meter, if known; 0 for a live one.
    meter_period: float | None = None
    #: Real drivers may hang; the simulated one returns at once.
    may_hang: bool = True
    #: Whether other processes see the same device, so that its knobs outlive this one.
    shared: bool = True
    #: Whether only this user's processes see it, as a simulated one.
    private: bool = False
    #: Keeps the holds on its knobs, in place of a journal of this process.
    holds: RemoteHoldKeeper | None = None

    def seen_as_slice(self, slice_uuid: str) -> GpuDriver:
        """Return the same GPU for a program that sees only one slice of it.

        Args:
            slice_uuid: One of `slice_uuids`.
        """
        raise unsupported("slices of a GPU", slice_uuid)

    def version(self) -> str:
        """Driver version, which decides how sensors behave; empty if not reported."""
        return ""

    def energy(self) -> float:
        """Joules since some fixed moment; updated in ticks."""
        raise unsupported(Capability.ENERGY_COUNTER)

    def timed_energy(self) -> tuple[float, float]:
        """Joules as in `energy`, and the `time.monotonic()` instant of the last counter refresh."""
        raise unsupported("timestamps of the energy counter")

    def sample(self) -> tuple[float | CapabilityError, float | CapabilityError]:
        """Read `energy` and `instant_power`, in one driver call where there is one.

        Returns:
            Joules and watts; a reading that failed is replaced by its error.
        """
        return read_or_error(self.energy), read_or_error(self.instant_power)

    def power_samples(self, since: float) -> list[tuple[float, float]]:
        """Power samples that the driver has recorded by itself.

        Args:
            since: Only samples later than this `time.monotonic()` instant, in seconds.

        Returns:
            Instants of `time.monotonic()`, ascending, and watts.
        """
        raise unsupported("timestamped power samples")

    def instant_power(self) -> float:
        """Current power in watts."""
        raise unsupported(Capability.INSTANT_POWER)

    def average_power(self) -> float:
        """Watts, averaged by the driver over about a second."""
        raise unsupported(Capability.AVERAGE_POWER)

    def memory_power(self) -> float:
        """Watts drawn by the GPU's memory."""
        raise unsupported(Capability.MEMORY_POWER)

    def temperature(self) -> float:
        """Temperature in degrees Celsius."""
        raise unsupported(Capability.TEMPERATURE)

    def utilization(self) -> float:
        """Share of the last sampling period during which a kernel ran, 0 to 1."""
        raise unsupported(Capability.UTILIZATION)

    def memory(self) -> MemoryUse:
        """Device memory in bytes, used and total."""
        raise unsupported(Capability.MEMORY)

    def processes(self) -> tuple[GpuProcess, ...]:
        """Processes that use this GPU."""
        raise unsupported(Capability.PROCESSES)

    def process_usage(self, since: float) -> ProcessUsage:
        """How long each process used this GPU.

        Drivers sample it every 1/6 s to 1 s, so that an interval ends that long ago at most.

        Args:
            since: The `end` of the previous answer, or any recent `time.monotonic()` instant.
        """
        raise unsupported("usage by process")

    def power_limit(self) -> float:
        """The current power limit, in watts."""
        raise unsupported(Capability.POWER_LIMIT)

    def power_limits(self) -> PowerLimits:
        """Range and default of the power limit, in watts."""
        raise unsupported(Capability.POWER_LIMIT)

    def set_power_limit(self, watts: float) -> None:
        """Set the power limit, in watts."""
        raise unsupported(Capability.SET_POWER_LIMIT)

    def current_clocks(self) -> CurrentClocks:
        """Current clocks, in MHz."""
        raise unsupported(Capability.CLOCKS)

    def supported_clocks(self) -> SupportedClocks:
        """Clocks that can be locked, in MHz."""
        raise unsupported(Capability.CLOCKS)

    def locked_graphics_clock(self) -> ClockRange | None:
        """The current lock in MHz, or `None` if unlocked or if the driver cannot report it."""
        return None

    def locked_memory_clock(self) -> ClockRange | None:
        """The current lock in MHz, or `None` if unlocked or if the driver cannot report it."""
        return None

    def lock_graphics_clock(self, clock: ClockRange | None) -> None:
        """Lock the graphics clock; `None` unlocks."""
        raise unsupported(Capability.LOCK_CLOCKS)

    def lock_memory_clock(self, clock: ClockRange | None) -> None:
        """Lock the memory clock; `None` unlocks."""
        raise unsupported(Capability.LOCK_CLOCKS)

    def persistence(self) -> bool:
        """Whether the driver stays loaded while no process uses the GPU."""
        raise unsupported(Capability.PERSISTENCE)

    def set_persistence(self, enabled: bool) -> None:
        """Keep the driver loaded if `enabled`, so that knobs survive between processes."""
        raise unsupported(Capability.PERSISTENCE)


class AbsentGpuDriver(GpuDriver):
    """A GPU that is listed but does not respond: every method raises the same error."""

    def __init__(self, identity: GpuIdentity, error: CapabilityError) -> None:
        self.identity = identity
        self._error = error

    def _refuse(self, *_: object) -> None:
        raise self._error.fresh()

    def __getattribute__(self, name: str) -> object:
        if name.startswith("_") or name not in _QUESTIONS:
            return super().__getattribute__(name)
        return super().__getattribute__("_refuse")


_QUESTIONS = frozenset(
    name for name, member in vars(GpuDriver).items() if callable(member) and name[0] != "_"
)


class CpuDriver:
    """Back end of one CPU package. Corrects counter wraparound, if polled often enough."""

    #: Seconds in which the counter can wrap at most once, at any power a package can draw.
    wrap_period: float = float("inf")

    def energy(self) -> float:
        """Joules of the package, monotonic: wraparound is corrected."""
        raise unsupported("package energy counter")

    def dram_energy(self) -> float:
        """Joules of the memory attached to this package."""
        raise unsupported("DRAM energy counter")


class Cpu:
    """One CPU package (socket).

    Attributes:
        index: Number of the package.
        name: Its name on this platform.
        driver: The back end.
    """

    def __init__(self, index: int, name: str, driver: CpuDriver) -> None:
        self.index = index
        self.name = name
        self.driver = driver

    def __repr__(self) -> str:
        return f"<Cpu {self.index}: {self.name}>"

    def energy(self) -> float:
        """Joules of the package since some fixed moment."""
        return self.driver.energy()

    def dram_energy(self) -> float:
        """Joules of its DRAM since some fixed moment."""
        return self.driver.dram_energy()


class Soc:
    """A system on a chip whose parts share one power meter (Apple silicon, Jetson).

    Attributes:
        name: Product name.
        total_rail: The part that feeds all others, which therefore must not be added to them.
        estimated: Whether its values are the chip's own estimate rather than metered.
    """

    name: str = "SoC"
    total_rail: str | None = None
    estimated: bool = False

    def energies(self) -> dict[str, float] | None:
        """Joules of each part since some fixed moment, or `None` where only power is metered."""
        return None

    def powers(self) -> dict[str, float] | None:
        """Watts of each part now, or `None` where only energy is metered."""
        return None


@dataclass(frozen=True)
class Problem:
    """Something that could not be used on this machine, and how to fix it.

    Attributes:
        what: Name of the device or kind of devices.
        error: Why, and how to fix it.
    """

    what: str
    error: CapabilityError

    def __str__(self) -> str:
        return f"{self.what}: {self.error}"


class _Device(Protocol):
    index: int


D = TypeVar("D", bound=_Device)


class DeviceSet(Sequence[D]):
    """Devices of one kind in index order, and the problems with those that cannot be used.

    Args:
        devices: The devices that can be used.
        problems: One for each that cannot, or for all of a kind.
        hidden: What hides others, such as "CUDA_VISIBLE_DEVICES=1 hides 3 of 4 GPUs".
    """

    def __init__(
        self, devices: Sequence[D] = (), problems: Sequence[Problem] = (), hidden: str = ""
    ) -> None:
        self._devices: tuple[D, ...] = tuple(devices)
        self.problems = tuple(problems)
        self._hidden = hidden

    if not TYPE_CHECKING:  # a type checker is to report names that do not exist

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(self, name)

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[D, ...]: ...
    def __getitem__(self, index: int | slice) -> D | tuple[D, ...]:
        return self._devices[index]

    def __len__(self) -> int:
        return len(self._devices)

    def __iter__(self) -> Iterator[D]:
        return iter(self._devices)

    def __repr__(self) -> str:
        return f"DeviceSet({list(self._devices)})"

    def select(self, indices: Sequence[int] | None) -> tuple[D, ...]:
        """Return the devices with these indices, in this order; all of them for `None`.

        Raises:
            UnknownDeviceError: If an index is repeated or matches no device here.
        """
        if indices is None:
            return self._devices
        known = {device.index: device for device in self._devices}
        wrong = [index for index in indices if isinstance(index, bool) or index not in known]
        if wrong:
            rule = f"must be among {sorted(known)}" if known else "must be empty without devices"
            reasons = [self._hidden, *self.problems] if self._hidden else self.problems
            raise UnknownDeviceError(
                f"device indices {rule}, but got {wrong}"
                + "".join(f"; {reason}" for reason in reasons)
            )
        if len(set(indices)) != len(indices):
            raise UnknownDeviceError(f"device indices must be distinct, but got {list(indices)}")
        return tuple(known[index] for index in indices)

"""The readings of a GPU, protected against driver calls that hang."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from zeus.device._base import (
    ClockRange,
    CurrentClocks,
    GpuDriver,
    GpuProcess,
    MemoryUse,
    PowerLimits,
    ProcessUsage,
    SupportedClocks,
    call_driver,
)
from zeus.device._guard import Guard
from zeus.device._records import Entry
from zeus.errors import CapabilityError

T = TypeVar("T")


class GuardedGpu:
    """One GPU, numbered as the frameworks do: the methods of its driver, each with a time limit.

    Attributes:
        index: The ordinal that frameworks use for it (after `CUDA_VISIBLE_DEVICES` and the like).
            Where GPUs of several vendors are visible, it goes on from one vendor to the next.
        ordinal: Its number among the visible GPUs of its vendor.
        driver: The back end, for callers in a thread of their own that may hang.
    """

    def __init__(self, index: int, driver: GpuDriver, ordinal: int | None = None) -> None:
        self.index = index
        self.ordinal = index if ordinal is None else ordinal
        self.driver = driver
        self.identity = driver.identity
        #: Holds on a GPU that no other process sees.
        self.held: dict[str, list[Entry]] = {}
        self._guard = Guard(self.identity.name) if driver.may_hang else None

    @property
    def name(self) -> str:
        """Product name."""
        return self.identity.name

    @property
    def meter_period(self) -> float | None:
        """Seconds between refreshes of the power meter, if known; 0 for a live one."""
        return self.driver.meter_period

    @property
    def key(self) -> str:
        """UUID or PCI address: the same GPU for every process and container."""
        return self.identity.key

    def __repr__(self) -> str:
        return f"<Gpu {self.index}: {self.name} {self.key}>"

    def _ask(self, question: Callable[[], T]) -> T:
        call = partial(call_driver, question)
        return call() if self._guard is None else self._guard.call(call)

    def energy(self) -> float:
        """Joules since some fixed moment; the counter updates in ticks of 20-100 ms."""
        return self._ask(self.driver.energy)

    def instant_power(self) -> float:
        """Current power in watts."""
        return self._ask(self.driver.instant_power)

    def version(self) -> str:
        """Driver version; empty if the driver does not report it."""
        return self._ask(self.driver.version)

    def sample(self) -> tuple[float | CapabilityError, float | CapabilityError]:
        """Energy and instantaneous power, in one driver call where there is one."""
        return self._ask(self.driver.sample)

    def timed_energy(self) -> tuple[float, float]:
        """Joules, and the `time.monotonic()` instant of the counter's last refresh."""
        return self._ask(self.driver.timed_energy)

    def power_samples(self, since: float) -> list[tuple[float, float]]:
        """Power samples of the driver after an instant: `time.monotonic()` instants and watts."""
        return self._ask(lambda: self.driver.power_samples(since))

    def average_power(self) -> float:
        """Watts, averaged by the driver over about a second."""
        return self._ask(self.driver.average_power)

    def memory_power(self) -> float:
        """Watts drawn by the GPU's memory."""
        return self._ask(self.driver.memory_power)

    def temperature(self) -> float:
        """Temperature in degrees Celsius."""
        return self._ask(self.driver.temperature)

    def utilization(self) -> float:
        """Share of recent time during which a kernel ran, 0 to 1."""
        return self._ask(self.driver.utilization)

    def memory(self) -> MemoryUse:
        """Device memory in bytes, used and total."""
        return self._ask(self.driver.memory)

    def processes(self) -> tuple[GpuProcess, ...]:
        """Processes that use this GPU."""
        return self._ask(self.driver.processes)

    def process_usage(self, since: float) -> ProcessUsage:
        """How long each process used this GPU after an instant of `time.monotonic()`."""
        return self._ask(lambda: self.driver.process_usage(since))

    def power_limit(self) -> float:
        """The current power limit, in watts."""
        return self._ask(self.driver.power_limit)

    def power_limits(self) -> PowerLimits:
        """Range and default of the power limit, in watts."""
        return self._ask(self.driver.power_limits)

    def current_clocks(self) -> CurrentClocks:
        """Current clocks, in MHz."""
        return self._ask(self.driver.current_clocks)

    def supported_clocks(self) -> SupportedClocks:
        """Clocks that can be locked, in MHz."""
        return self._ask(self.driver.supported_clocks)

    def locked_graphics_clock(self) -> ClockRange | None:
        """The current lock in MHz, or `None` if unlocked or if the driver cannot report it."""
        return self._ask(self.driver.locked_graphics_clock)

    def locked_memory_clock(self) -> ClockRange | None:
        """The current lock in MHz, or `None` if unlocked or if the driver cannot report it."""
        return self._ask(self.driver.locked_memory_clock)

    def persistence(self) -> bool:
        """Whether the driver stays loaded while no process uses the GPU."""
        return self._ask(self.driver.persistence)

    def begin(self, query: Callable[[GpuDriver], T]) -> Callable[[], T]:
        """Start several driver calls as one, with one time limit.

        Args:
            query: Calls methods of the driver that it is given.

        Returns:
            A function that waits for the result; so several GPUs are read at once.

        Raises:
            CapabilityError: If an earlier call still hangs.
        """
        if self._guard is not None:
            return self._guard.begin(lambda: query(self.driver))
        result = query(self.driver)
        return lambda: result

    def apply(self, setter: Callable[[], None]) -> None:
        """Run a driver setter under the guard. For holds only: other callers use `Gpu.hold`."""
        self._ask(setter)

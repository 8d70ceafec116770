"""One reading of all devices of a node.

One thread reads all devices in turn, which is the cheapest way; if one of them stalls, the others
are read in threads of their own, so that a device that hangs delays no other: its values are absent
and its collector reports failure. A value that a device does not support is absent as well, which
is no failure. Counters of GPUs need no background work; counters that wrap and devices that only
meter power are polled by the node's sampler.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zeus.clock import Clock
from zeus.device import Capability, Cpu, Gpu, Node, PowerLimits, Soc
from zeus.device._base import CurrentClocks, GpuDriver, GpuIdentity, MemoryUse
from zeus.device._guard import Guard
from zeus.errors import CapabilityError, Reason
from zeus.monitor._host import WraparoundChannel
from zeus.monitor._sampler import Channel, Client, sampler_of
from zeus.monitor._samples import Method
from zeus.telemetry._counters import DeviceCounter, MeanPower, PowerIntegral, SinceStart
from zeus.telemetry._holders import Holder, Holders

T = TypeVar("T")

INSTANT, AVERAGE, MEAN = "instant", "average", "mean"
"""How a power was obtained: now; by the driver over a second; since the previous reading."""

# Seconds between samples of power meters that are integrated. Errors of single samples average out
# over the minutes that a database shows.
_INTEGRATION_PERIOD = 1.0
_ASK_AGAIN = 100  # readings after which a GPU is asked again for what it did not support
_STALL = 0.5  # seconds for all devices together; drivers answer in milliseconds
_GONE = (Reason.LOST, Reason.HANGS)  # further calls would fail alike
EXPECTED = (Reason.UNSUPPORTED, Reason.DRIVER_ABSENT)
"""Obstacles that no operator can remove."""


@dataclass(frozen=True)
class GpuReading:
    """Reading of one GPU; a value that is unknown is `None`.

    Attributes:
        index: Number of the GPU as frameworks count.
        identity: Key, name, vendor and PCI address.
        energy: Joules of its counter, or integrated since the collector started.
        energy_method: Which of the two: "counter" or "integrated".
        power: Watts.
        power_method: "instant", or "average" over about a second by the driver.
        memory_power: Watts of its memory.
        power_limit: Watts in force.
        power_limits: Bounds and default of the limit.
        clocks: Current clocks, in MHz.
        temperature: Degrees Celsius.
        utilization: Share of recent time in which a kernel ran.
        memory: Bytes used and in all.
        holders: Processes that hold its knobs, and at which values.
    """

    index: int
    identity: GpuIdentity
    energy: float | None = None
    energy_method: str = Method.COUNTER.value
    power: float | None = None
    power_method: str = INSTANT
    memory_power: float | None = None
    power_limit: float | None = None
    power_limits: PowerLimits | None = None
    clocks: CurrentClocks | None = None
    temperature: float | None = None
    utilization: float | None = None
    memory: MemoryUse | None = None
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class CpuReading:
    """Reading of one CPU package and its memory; a value that is unknown is `None`.

    Energies are joules since the collector started, powers are means since the previous reading.
    """

    index: int
    name: str
    energy: float | None = None
    power: float | None = None
    dram_energy: float | None = None
    dram_power: float | None = None


@dataclass(frozen=True)
class SocReading:
    """Reading of a system on a chip: joules and watts by part, and how they were obtained."""

    name: str
    total_part: str | None
    energies: Mapping[str, float] = field(default_factory=dict)
    energy_method: str = Method.COUNTER.value
    powers: Mapping[str, float] = field(default_factory=dict)
    power_method: str = INSTANT


@dataclass(frozen=True)
class CollectorStatus:
    """Result of one collector.

    Attributes:
        name: Its name: that of a device, or of a source of other metrics.
        success: Whether it could read all that it has.
        seconds: Time that it took.
        error: Why not.
    """

    name: str
    success: bool
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class NodeReading:
    """Readings of all devices of a node at about one instant.

    Attributes:
        at: Instant, in seconds of the node's clock.
        gpus: GPUs that responded.
        cpus: CPU packages that responded.
        soc: The system on a chip, if there is one and it responded.
        collectors: Result of each collector.
    """

    at: float
    gpus: tuple[GpuReading, ...]
    cpus: tuple[CpuReading, ...]
    soc: SocReading | None
    collectors: tuple[CollectorStatus, ...]


class NodeReader(Client):
    """Reads the devices of a node, as often as it is asked.

    Args:
        node: The node.
        continuous: Whether it will be asked again. If not, the counters of CPUs are returned as
            the kernel shows them, and nothing is integrated.
    """

    def __init__(self, node: Node, *, continuous: bool = True) -> None:
        self._clock = node.clock
        self._holders = Holders(node)
        self._problems = _serious(node)
        self._devices: list[_GpuDevice | _CpuDevice | _SocDevice] = [
            *(_GpuDevice(gpu, node.clock, continuous=continuous) for gpu in distinct_gpus(node)),
            *(_CpuDevice(cpu, node.clock, continuous=continuous) for cpu in node.cpus),
        ]
        if node.soc is not None:
            self._devices.append(_SocDevice(node.soc, node.clock, continuous=continuous))
        self._channels = tuple(
            device.channel for device in self._devices if device.channel is not None
        )
        self._may_hang = not node.clock.virtual and not all(
            isinstance(device, _GpuDevice) and not device.may_hang for device in self._devices
        )
        self._guard = _common_guard()
        self._slow: set[str] = set()  # names of devices that stalled
        self._lock = threading.Lock()
        self._sampler = sampler_of(node)
        if self._channels:
            self._sampler.join(self)
            self._sampler.wake()

    @property
    def collectors(self) -> tuple[str, ...]:
        """Names of its collectors."""
        return ("discovery", "holds", *(device.name for device in self._devices))

    def channels_wanted(self, now: float) -> tuple[Channel, ...]:  # noqa: ARG002
        """Return what the sampler has to poll between readings."""
        return self._channels

    def close(self) -> None:
        """End background work."""
        if self._channels:
            self._sampler.leave(self)
            self._channels = ()

    def read(self) -> NodeReading:
        """Read all devices; takes at most a few seconds, even if one hangs."""
        with self._lock:  # each device keeps what it showed before
            return self._read()

    def _read(self) -> NodeReading:
        results = self._results()
        holders, status = self._read_holders()
        statuses = [self._discovery(), status, *(result.status for result in results)]
        found = [result.reading for result in results]
        return NodeReading(
            self._clock.now(),
            tuple(_with_holders(each, holders) for each in found if isinstance(each, GpuReading)),
            tuple(each for each in found if isinstance(each, CpuReading)),
            next((each for each in found if isinstance(each, SocReading)), None),
            tuple(statuses),
        )

    def _results(self) -> list[_Result]:
        """Read all devices in one thread, which is the cheapest; and each in its own if one stalls.

        A device that stalled is read in its own thread until it answers as quickly as others.
        """
        found: dict[str, _Result] = {}
        together = [device for device in self._devices if device.name not in self._slow]
        stopped = threading.Event()

        def read_together() -> None:
            for device in together:
                if stopped.is_set():
                    return
                found[device.name] = _result_of(device.name, device.read)

        apart = [device for device in self._devices if device.name in self._slow]
        pending = [(device, device.begin()) for device in apart]
        if not self._may_hang:
            read_together()
        else:
            try:
                self._guard.call(read_together)
            except CapabilityError:
                stopped.set()
                self._guard = _common_guard()  # the thread of the other is stuck
                left = [device for device in together if device.name not in found]
                self._slow |= {device.name for device in left[:1]}
                pending += [(device, device.begin()) for device in left]
        for device, wait in pending:
            result = found[device.name] = _result_of(device.name, wait)
            if result.status.seconds < _STALL / 2 and result.reading is not None:
                self._slow.discard(device.name)
        return [found[device.name] for device in self._devices]

    def _discovery(self) -> CollectorStatus:
        return CollectorStatus("discovery", not self._problems, 0.0, "; ".join(self._problems))

    def _read_holders(self) -> tuple[dict[str, tuple[Holder, ...]], CollectorStatus]:
        begun = time.perf_counter()
        try:
            holders, error = self._holders.read()
        except OSError as obstacle:
            holders, error = {}, str(obstacle)
        seconds = time.perf_counter() - begun
        return holders, CollectorStatus("holds", not error, seconds, error)


def distinct_gpus(node: Node) -> list[Gpu]:
    """Return the GPUs, each once: slices of a GPU have the readings of the whole."""
    found: dict[str, Gpu] = {}
    for gpu in node.gpus:
        found.setdefault(gpu.key, gpu)
    return list(found.values())


def _serious(node: Node) -> tuple[str, ...]:
    """Return the problems with devices that an operator can solve."""
    problems = (*node.problems, *node.gpus.problems, *node.cpus.problems)
    texts = (str(each) for each in problems if each.error.reason not in EXPECTED)
    return tuple(dict.fromkeys(texts))


def _common_guard() -> Guard:
    return Guard("a device", _STALL)


@dataclass(frozen=True)
class _Result:
    """Reading of a device, if there is one, and how that went."""

    reading: GpuReading | CpuReading | SocReading | None
    status: CollectorStatus


def _result_of(
    name: str, read: Callable[[], tuple[GpuReading | CpuReading | SocReading, str]]
) -> _Result:
    begun = time.perf_counter()
    try:
        reading, error = read()
    except CapabilityError as obstacle:
        seconds = time.perf_counter() - begun
        return _Result(None, CollectorStatus(name, False, seconds, str(obstacle)))
    except Exception as surprise:  # the other devices are still read
        error = f"{type(surprise).__name__}: {surprise}"
        return _Result(None, CollectorStatus(name, False, time.perf_counter() - begun, error))
    return _Result(reading, CollectorStatus(name, not error, time.perf_counter() - begun, error))


def _with_holders(gpu: GpuReading, holders: dict[str, tuple[Holder, ...]]) -> GpuReading:
    found = holders.get(gpu.identity.key)
    if found:
        object.__setattr__(gpu, "holders", found)  # a copy would cost more than the reading
    return gpu


class _Queries:
    """Asks one thing after the other, and keeps the first error that is no lack of support."""

    def __init__(self) -> None:
        self.error: CapabilityError | None = None
        self._gone = False

    def run(self, query: Callable[[], T]) -> T | None:
        if self._gone:
            return None
        try:
            answer = query()
        except CapabilityError as error:
            self.failed(error)
            return None
        # A driver that returns no number has no value.
        return None if isinstance(answer, float) and not math.isfinite(answer) else answer

    def taken(self, answer: float | CapabilityError) -> float | None:
        """Return a value that was read, or keep the error in its place."""
        if isinstance(answer, CapabilityError):
            self.failed(answer)
            return None
        return answer if math.isfinite(answer) else None

    def failed(self, error: CapabilityError) -> None:
        if error.reason is not Reason.UNSUPPORTED:
            self.error = self.error or error
        self._gone = self._gone or error.reason in _GONE

    @property
    def text(self) -> str:
        return "" if self.error is None else str(self.error)


class _GpuDevice:
    def __init__(self, gpu: Gpu, clock: Clock, *, continuous: bool) -> None:
        self.name = f"gpu{gpu.index}"
        self._gpu = gpu
        self._clock = clock
        self._counter = DeviceCounter()
        self._limits: PowerLimits | None = None
        self._unsupported: set[str] = set()
        self._readings = 0
        self._integral: PowerIntegral | None = None
        if continuous and _lacks_counter(gpu):
            self._integral = PowerIntegral(self._watts, clock, _INTEGRATION_PERIOD)
        self.channel: Channel | None = self._integral

    @property
    def may_hang(self) -> bool:
        return self._gpu.driver.may_hang

    def begin(self) -> Callable[[], tuple[GpuReading, str]]:
        """Start reading in a thread of its own; the result waits for it."""
        try:
            return self._gpu.begin(self._read)
        except CapabilityError as error:
            return _raiser(error)

    def read(self) -> tuple[GpuReading, str]:
        """Read now, in the caller's thread."""
        return self._read(self._gpu.driver)

    def _watts(self) -> dict[str, float]:
        gpu = self._gpu
        try:
            return {"": gpu.instant_power()}
        except CapabilityError as error:
            if error.reason is not Reason.UNSUPPORTED:
                raise
        return {"": gpu.average_power()}

    def _read(self, driver: GpuDriver) -> tuple[GpuReading, str]:
        queries = _Queries()
        self._readings += 1
        if self._readings % _ASK_AGAIN == 0:
            self._unsupported.clear()
        energy, power = map(queries.taken, driver.sample())
        if energy is not None:
            energy = self._counter.update(self._clock.now(), energy)
        method = Method.COUNTER
        if energy is None and self._integral is not None:
            energy, method = self._integral.joules.get(""), Method.INTEGRATED
        averaged = power is None
        if averaged:
            power = self._ask(queries, "average power", driver.average_power)
        if self._limits is None:  # they do not change
            self._limits = self._ask(queries, "power limits", driver.power_limits)
        reading = GpuReading(
            self._gpu.index,
            self._gpu.identity,
            energy,
            method.value,
            power,
            AVERAGE if averaged else INSTANT,
            self._ask(queries, "memory power", driver.memory_power),
            self._ask(queries, "power limit", driver.power_limit),
            self._limits,
            self._ask(queries, "clocks", driver.current_clocks),
            self._ask(queries, "temperature", driver.temperature),
            self._ask(queries, "utilization", driver.utilization),
            self._ask(queries, "memory", driver.memory),
        )
        return reading, queries.text

    def _ask(self, queries: _Queries, what: str, query: Callable[[], T]) -> T | None:
        """Ask the driver, unless it did not support this a short while ago."""
        if what in self._unsupported:
            return None
        return queries.run(_marking(self._unsupported, what, query))


def _marking(unsupported: set[str], what: str, query: Callable[[], T]) -> Callable[[], T]:
    def asked() -> T:
        try:
            return query()
        except CapabilityError as error:
            if error.reason is Reason.UNSUPPORTED:
                unsupported.add(what)
            raise

    return asked


def _raiser(error: CapabilityError) -> Callable[[], Any]:
    def refuse() -> Any:
        raise error

    return refuse


def _lacks_counter(gpu: Gpu) -> bool:
    return gpu.support(Capability.ENERGY_COUNTER).reason is Reason.UNSUPPORTED


class _Guarded:
    """Runs the reading of a device that has no guard of its own."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._guard = None if clock.virtual else Guard(name)

    def begin(self, read: Callable[[], T]) -> Callable[[], T]:
        """Start reading; the result waits for it."""
        if self._guard is None:
            return read
        try:
            return self._guard.begin(read)
        except CapabilityError as error:
            return _raiser(error)


class _CpuDevice:
    def __init__(self, cpu: Cpu, clock: Clock, *, continuous: bool) -> None:
        self.name = f"cpu{cpu.index}"
        self._cpu = cpu
        self._clock = clock
        self._guarded = _Guarded(cpu.name, clock)
        self._continuous = continuous
        self._totals = {part: SinceStart() for part in ("package", "dram")}
        self._powers = {part: MeanPower() for part in ("package", "dram")}
        self.channel: Channel | None = None
        if continuous and math.isfinite(cpu.driver.wrap_period):
            self.channel = WraparoundChannel(cpu, clock)
        with contextlib.suppress(CapabilityError):
            self._guarded.begin(self.read)()  # the first reading is the zero of the totals

    def begin(self) -> Callable[[], tuple[CpuReading, str]]:
        """Start reading in a thread of its own; the result waits for it."""
        return self._guarded.begin(self.read)

    def read(self) -> tuple[CpuReading, str]:
        """Read now, in the caller's thread."""
        queries = _Queries()
        cpu = self._cpu
        energy, power = self._values("package", queries.run(cpu.energy))
        dram_energy, dram_power = self._values("dram", queries.run(cpu.dram_energy))
        reading = CpuReading(cpu.index, cpu.name, energy, power, dram_energy, dram_power)
        return reading, queries.text

    def _values(self, part: str, joules: float | None) -> tuple[float | None, float | None]:
        if joules is None:
            return None, None
        power = self._powers[part].update(self._clock.now(), joules)
        return self._totals[part].update(joules) if self._continuous else joules, power


class _SocDevice:
    def __init__(self, soc: Soc, clock: Clock, *, continuous: bool) -> None:
        self.name = "soc"
        self._soc = soc
        self._clock = clock
        self._guarded = _Guarded(soc.name, clock)
        self._counters: dict[str, DeviceCounter] = {}
        self._means: dict[str, MeanPower] = {}
        self._integral: PowerIntegral | None = None
        if continuous and self._meters_power():
            self._integral = PowerIntegral(self._watts, clock, _INTEGRATION_PERIOD)
        self.channel: Channel | None = self._integral

    def begin(self) -> Callable[[], tuple[SocReading, str]]:
        """Start reading in a thread of its own; the result waits for it."""
        return self._guarded.begin(self.read)

    def _meters_power(self) -> bool:
        try:
            return self._guarded.begin(self._soc.powers)() is not None
        except CapabilityError:
            return True  # it exists, but cannot be read now

    def _watts(self) -> dict[str, float]:
        return self._guarded.begin(self._soc.powers)() or {}

    def read(self) -> tuple[SocReading, str]:
        """Read now, in the caller's thread."""
        powers = self._soc.powers()
        soc = SocReading(self._soc.name, self._soc.total_rail)
        if powers is not None:
            joules = dict(self._integral.joules) if self._integral is not None else {}
            soc = SocReading(
                soc.name, soc.total_part, joules, Method.INTEGRATED.value, powers, INSTANT
            )
        else:
            soc = self._counted(soc, self._soc.energies() or {})
        return soc, ""

    def _counted(self, soc: SocReading, energies: dict[str, float]) -> SocReading:
        now = self._clock.now()
        method = Method.ESTIMATED if self._soc.estimated else Method.COUNTER
        totals, powers = {}, {}
        for part, joules in energies.items():
            totals[part] = self._counters.setdefault(part, DeviceCounter()).update(now, joules)
            watts = self._means.setdefault(part, MeanPower()).update(now, joules)
            if watts is not None:
                powers[part] = watts
        return SocReading(soc.name, soc.total_part, totals, method.value, powers, MEAN)

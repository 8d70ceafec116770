"""Power over time of GPUs, CPU packages and their memory, and systems on a chip."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from zeus.errors import CapabilityError, Reason, UnknownDeviceError
from zeus.monitor import _ranks as ranks
from zeus.monitor._sensors import CounterChannel, Pace, Samples, SensorChannel, SensorMonitor
from zeus.monitor._timeline import Timeline

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Cpu, Gpu, Soc
    from zeus.device._node import Node

_USUAL_TICK = 0.1  # seconds; default for unknown sensors
_AVERAGED_PERIOD = 0.1  # seconds; a mean over a second changes little in less
_CPU_PERIOD = 0.1  # seconds; a hundred ticks of the counter
_SOC_PERIOD = 0.1  # seconds; boards' power monitors average over about as long
_SOC = "soc"
_SAME_MOMENT = 2e-3  # seconds; requests to a chip this close together share one reading


class PowerDomain(StrEnum):
    """Kinds of GPU power."""

    #: The whole device, instantaneous.
    DEVICE_INSTANT = "device_instant"
    #: The whole device, averaged by the driver over about a second.
    DEVICE_AVERAGE = "device_average"
    #: The device's memory, averaged likewise.
    MEMORY_AVERAGE = "memory_average"


_READS: dict[PowerDomain, Callable[[Gpu], float]] = {
    PowerDomain.DEVICE_INSTANT: lambda gpu: gpu.instant_power(),
    PowerDomain.DEVICE_AVERAGE: lambda gpu: gpu.average_power(),
    PowerDomain.MEMORY_AVERAGE: lambda gpu: gpu.memory_power(),
}


class CpuDomain(StrEnum):
    """Kinds of CPU power."""

    #: The package.
    PACKAGE = "cpu"
    #: The memory attached to it.
    DRAM = "dram"


class PowerMonitor(SensorMonitor):
    """Records the power of GPUs, CPUs and a system on a chip over time.

    Args:
        gpu_indices: GPUs to monitor, numbered as frameworks do. By default all that are visible; in
            a process started by a launcher with one rank per GPU, this rank's GPU.
        update_period: Seconds between samples. By default as often as each sensor has new values,
            but at most every 10 ms, and less often if sampling would cost too much CPU time.
        max_samples_per_gpu: Samples to keep per device and domain, 100 000 by default. Beyond
            that older samples grow coarser; their energy is kept.
        power_domains: Kinds of GPU power to monitor; by default all.
        cpu_indices: CPU packages to monitor. By default all; under a launcher only in the first
            rank of a node. Their counters are read at least as often as they may wrap around.
        node: Monitor this node, for instance a simulated one, instead of this machine.

    Attributes:
        soc_parts: Monitored parts of the system on a chip, if this machine is one; under a
            launcher only in the first rank of a node.

    Raises:
        ValueError: If an index names no device, a domain is not known, or a bound is too small.
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        update_period: float | None = None,
        max_samples_per_gpu: int | None = None,
        power_domains: Sequence[PowerDomain | str] | None = None,
        *,
        cpu_indices: Sequence[int] | None = None,
        node: Node | None = None,
    ) -> None:
        super().__init__(gpu_indices, update_period, max_samples_per_gpu, node)
        domains = _domains(power_domains)
        if cpu_indices is None and not ranks.owns_host():
            cpu_indices = []
        self.cpus = self.node.cpus.select(cpu_indices)
        self.cpu_indices = [cpu.index for cpu in self.cpus]
        for gpu in self.gpus:
            for domain in domains:
                pace = self._gpu_pace(gpu, domain)
                self._add_gpu_sensor(domain, gpu, _READS[domain], pace)
        for cpu in self.cpus:
            self._add_counter(CpuDomain.PACKAGE, cpu, cpu.energy)
            self._add_counter(CpuDomain.DRAM, cpu, cpu.dram_energy)
        self.soc_parts = self._add_soc(self.node.soc) if self.node.soc and ranks.owns_host() else []
        self._start()

    @property
    def device_domains(self) -> dict[int, PowerDomain]:
        """The domain that `get_power` and `get_energy` use for each GPU.

        Instantaneous power if the GPU reports it, else the driver's average.
        """
        chosen: dict[int, PowerDomain] = {}
        for domain in (PowerDomain.DEVICE_INSTANT, PowerDomain.DEVICE_AVERAGE):
            for index, _ in self._of(domain):
                chosen.setdefault(index, domain)
        return {index: chosen[index] for index in self.gpu_indices if index in chosen}

    def get_power(self, time: float | None = None) -> dict[int, float] | None:
        """Return the watts of each GPU, at an instant or in the latest sample.

        Between samples power is interpolated linearly; before the first and after the last it is
        held.

        Args:
            time: Instant, of `time.monotonic()` or `time.time()`; `None` for the latest sample.

        Returns:
            Watts by GPU index. A GPU whose power is unknown is absent; `None` if all are.
        """
        return self._values(self._devices(), time)

    def get_energy(self, start_time: float, end_time: float) -> dict[int, float] | None:
        """Return the joules of each GPU between two instants: the integral of its power.

        Between samples power is interpolated linearly, also across a time in which the GPU did not
        respond; before the first and after the last it is held.

        Args:
            start_time: Instant, of `time.monotonic()` or `time.time()`.
            end_time: Likewise, not before.

        Returns:
            Joules by GPU index. A GPU whose power is unknown is absent; `None` if all are.

        Raises:
            ValueError: If the end is before the start.
        """
        return self._integrals(self._devices(), start_time, end_time)

    def get_power_timeline(
        self,
        power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, Samples]:
        """Return the samples of one domain.

        Args:
            power_domain: Which kind of power.
            gpu_index: Only this GPU.
            start_time: From this instant on, of `time.monotonic()` or `time.time()`.
            end_time: Up to this instant.

        Returns:
            Instants (monotonic seconds) and watts by GPU index. A GPU without this domain is
            absent; see `unavailable`.

        Raises:
            ValueError: If the end is before the start, the GPU is not monitored, or the domain is
                unknown.
        """
        (domain,) = _domains([power_domain])
        return self._timelines(domain, gpu_index, self.gpu_indices, start_time, end_time)

    def get_all_power_timelines(
        self,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[PowerDomain, dict[int, Samples]]:
        """Return `get_power_timeline` for every domain that at least one GPU has.

        Args:
            gpu_index: As in `get_power_timeline`.
            start_time: As in `get_power_timeline`.
            end_time: As in `get_power_timeline`.
        """
        found = {
            domain: self.get_power_timeline(domain, gpu_index, start_time, end_time)
            for domain in PowerDomain
        }
        return {domain: timelines for domain, timelines in found.items() if timelines}

    def get_cpu_timeline(
        self,
        domain: CpuDomain | str = CpuDomain.PACKAGE,
        cpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, Samples]:
        """Return the power of CPU packages or their memory.

        Args:
            domain: "cpu" for the package, "dram" for its memory.
            cpu_index: Only this package.
            start_time: From this instant on, of `time.monotonic()` or `time.time()`.
            end_time: Up to this instant.

        Returns:
            Instants (monotonic seconds) and watts by package; each value is the mean since the
            previous instant.

        Raises:
            ValueError: If the end is before the start or the package is not monitored.
        """
        return self._timelines(CpuDomain(domain), cpu_index, self.cpu_indices, start_time, end_time)

    def get_cpu_energy(
        self, start_time: float, end_time: float, domain: CpuDomain | str = CpuDomain.PACKAGE
    ) -> dict[int, float] | None:
        """Return the joules of CPU packages or their memory between two instants, by counters.

        Args:
            start_time: Instant, of `time.monotonic()` or `time.time()`.
            end_time: Likewise, not before.
            domain: "cpu" for the package, "dram" for its memory.

        Returns:
            Joules by package; one whose energy is unknown is absent; `None` if all are.

        Raises:
            ValueError: If the end is before the start.
        """
        return self._integrals(self._of(CpuDomain(domain)), start_time, end_time)

    def get_soc_timeline(
        self,
        part: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[str, Samples]:
        """Return the power of the parts of a system on a chip.

        Args:
            part: Only this one of `soc_parts`.
            start_time: From this instant on, of `time.monotonic()` or `time.time()`.
            end_time: Up to this instant.

        Returns:
            Instants (monotonic seconds) and watts by part. On a board with a rail that feeds all
            others, that rail contains them. Where the chip counts energy, each value is the mean
            since the previous instant.

        Raises:
            ValueError: If the end is before the start or the part is not monitored.
        """
        if part is not None and part not in self.soc_parts:
            raise UnknownDeviceError(f"part must be among {self.soc_parts}, but got {part!r}")
        low, high = self._span(start_time, end_time)
        return {
            name: sensor.timeline.samples(low, high)
            for name, sensor in self._chip_sensors()
            if part in (None, name)
        }

    def get_soc_energy(self, start_time: float, end_time: float) -> dict[str, float] | None:
        """Return the joules of the parts of a system on a chip between two instants.

        Args:
            start_time: Instant, of `time.monotonic()` or `time.time()`.
            end_time: Likewise, not before.

        Returns:
            Joules by part as in `get_soc_timeline`; one whose energy is unknown is absent; `None`
            if all are.

        Raises:
            ValueError: If the end is before the start.
        """
        return self._integrals(self._chip_sensors(), start_time, end_time)

    def _chip_sensors(self) -> Iterator[tuple[str, SensorChannel]]:
        for part in self.soc_parts:
            for _, sensor in self._of(f"{_SOC} {part}"):
                yield part, sensor

    def _add_soc(self, soc: Soc) -> list[str]:
        """Monitor all parts that the chip reports now."""
        try:
            powers = soc.powers()
            parts = list(powers if powers is not None else soc.energies() or ())
        except CapabilityError as error:
            self._absent[_SOC, 0] = error
            return []
        counts = powers is None
        read = soc.energies if counts else soc.powers
        reading = _ChipReading(lambda: read() or {}, self._clock)
        for part in parts:
            pace = self._pace(_SOC_PERIOD)
            timeline = Timeline(self._max_samples, level=counts)
            of_part = partial(reading.of, part)
            kind = CounterChannel if counts else SensorChannel
            self._add(f"{_SOC} {part}", 0, kind(of_part, self._clock, pace, timeline))
        return parts

    def _gpu_pace(self, gpu: Gpu, domain: PowerDomain) -> Pace:
        if domain is PowerDomain.DEVICE_INSTANT:
            return self._pace(gpu.driver.counter_period or _USUAL_TICK, learns=True)
        return self._pace(_AVERAGED_PERIOD)

    def _add_counter(self, domain: CpuDomain, cpu: Cpu, read: Callable[[], float]) -> None:
        pace = self._pace(_CPU_PERIOD, longest=cpu.driver.wrap_period / 3)
        timeline = Timeline(self._max_samples, level=True)
        self._add(domain, cpu.index, CounterChannel(read, self._clock, pace, timeline))

    def _devices(self) -> Iterator[tuple[int, SensorChannel]]:
        for index, domain in self.device_domains.items():
            yield from self._of(domain, index)


class _ChipReading:
    """The parts of a system on a chip, which are read all at once for requests at one moment."""

    def __init__(self, read: Callable[[], Mapping[str, float]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._at = -math.inf
        self._values: Mapping[str, float] = {}

    def of(self, part: str) -> float:
        """Return the value of a part; raise `CapabilityError` if it does not respond now."""
        with self._lock:
            if not 0 <= self._clock.now() - self._at < _SAME_MOMENT:
                self._values = self._read()
                self._at = self._clock.now()
            value = self._values.get(part)
        if value is None:
            raise CapabilityError(Reason.LOST, f"{part} does not answer")
        return value


def _domains(names: Sequence[PowerDomain | str] | None) -> list[PowerDomain]:
    if names is None:
        return list(PowerDomain)
    wrong = [name for name in names if name not in list(PowerDomain)]
    if wrong:
        known = ", ".join(PowerDomain)
        raise ValueError(f"power domains must be among {known}, but got {wrong}")
    return [PowerDomain(name) for name in dict.fromkeys(names)]

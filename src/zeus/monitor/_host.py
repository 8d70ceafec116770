"""Energy of devices other than GPUs: CPU packages, their memory, systems on a chip.

Their counters are quick to read and tick a thousand times per second, so they are read at the
window's edges. Where only power is metered (Jetson), the sampler integrates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeus.device._base import read_or_error
from zeus.errors import CapabilityError, Reason
from zeus.monitor._measurement import CPU, DRAM, SOC, Reading
from zeus.monitor._sampler import Channel
from zeus.monitor._samples import Energy, Method
from zeus.monitor._timeline import Timeline

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Cpu, Node, Soc

_TICK = 1e-3  # seconds; RAPL counters move about this often
_RAIL_PERIOD = 0.02  # seconds between polls of power rails
_RAIL_SAMPLES = 8000  # kept per rail
_MAX_GAP = 1.0  # seconds without a sample after which a rail is no longer extrapolated
_WHOLE = "chip"  # stands for all parts until the chip has named them
_BY_THE_CHIP = "by the chip's own power model"


#: Counters at one instant: joules, or the error, by domain and index.
HostSnapshot = dict[tuple[str, int | str], float | CapabilityError]


class HostMeter:
    """Reads everything on the node that is not a GPU."""

    def __init__(self, node: Node, cpu_indices: Sequence[int] | None) -> None:
        from zeus.state._files import boot_id  # noqa: PLC0415  (devices are not needed before)

        self.cpus = node.cpus.select(cpu_indices)
        # Every machine has a package 0; those of two machines must stay distinct.
        self._machine = boot_id()
        self._soc = node.soc
        self._with_dram = [cpu for cpu in self.cpus if _has_dram(cpu)]
        # Parts of a chip with counters, as last reported.
        self._parts: tuple[str, ...] = ()
        self._rails = (
            RailChannel(node.soc, node.clock) if node.soc and _meters_power(node.soc) else None
        )
        #: Channels that the sampler must poll periodically.
        self.channels: tuple[Channel, ...] = tuple(
            WraparoundChannel(cpu, node.clock)
            for cpu in self.cpus
            if math.isfinite(cpu.driver.wrap_period)
        ) + ((self._rails,) if self._rails else ())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.cpus and self._soc is None

    def snapshot(self) -> HostSnapshot:
        """Read all counters now."""
        values: HostSnapshot = {(CPU, cpu.index): read_or_error(cpu.energy) for cpu in self.cpus}
        for cpu in self._with_dram:
            values[DRAM, cpu.index] = read_or_error(cpu.dram_energy)
        if self._soc is not None and self._rails is None:
            for part, joules in self._chip(self._soc).items():
                values[SOC, part] = joules
        return values

    def _chip(self, soc: Soc) -> dict[str, float] | dict[str, CapabilityError]:
        try:
            energies = soc.energies() or {}
        except CapabilityError as error:
            return dict.fromkeys(self._parts or (_WHOLE,), error)
        self._parts = tuple(energies)
        return energies

    def readings(
        self, begin: HostSnapshot, end: HostSnapshot, begin_at: float, end_at: float
    ) -> tuple[Reading, ...]:
        """Return the differences of two snapshots as readings."""
        names: dict[int | str, str] = {cpu.index: cpu.name for cpu in self.cpus}
        soc_name = self._soc.name if self._soc else ""
        estimates = self._soc is not None and self._soc.estimated
        return tuple(
            Reading.of(
                domain,
                index,
                soc_name if domain == SOC else names.get(index, ""),
                _difference(
                    begin.get((domain, index)),
                    value,
                    end_at - begin_at,
                    estimated=estimates and domain == SOC,
                ),
                key=f"{self._machine} {domain}-{index}",
            )
            for (domain, index), value in end.items()
        )

    def settled(self, end: float) -> bool:
        """Return whether the energy of a window that ended at this instant is final."""
        return self._rails is None or self._rails.settled(end)

    def completed(
        self, readings: tuple[Reading, ...], begin: float, end: float
    ) -> tuple[Reading, ...]:
        """Add the readings of power rails, which only the sampler has."""
        if self._rails is None or self._soc is None:
            return readings
        total = self._soc.total_rail
        rails = self._rails.energies(begin, end)
        return readings + tuple(
            Reading.of(
                SOC,
                rail,
                self._soc.name,
                energy,
                key=f"{self._machine} soc-{rail}",
                # The board's input feeds the other rails.
                contained=total is not None and total in rails and rail != total,
            )
            for rail, energy in rails.items()
        )


def _meters_power(soc: Soc) -> bool:
    try:
        return soc.powers() is not None
    except CapabilityError:
        return True  # it exists, but cannot be read now


def _has_dram(cpu: Cpu) -> bool:
    try:
        cpu.dram_energy()
    except CapabilityError as error:
        return error.reason is not Reason.UNSUPPORTED
    return True


def _difference(
    begin: float | CapabilityError | None,
    end: float | CapabilityError,
    duration: float,
    *,
    estimated: bool,
) -> Energy:
    if isinstance(begin, CapabilityError):
        return Energy(None, Method.UNAVAILABLE, note=str(begin))
    if isinstance(end, CapabilityError):
        return Energy(None, Method.UNAVAILABLE, note=str(end))
    if begin is None:
        return Energy(None, Method.UNAVAILABLE, note="not readable when the window began")
    joules = end - begin
    power = joules / duration if duration > 0 else 0.0
    method, note = (Method.ESTIMATED, _BY_THE_CHIP) if estimated else (Method.COUNTER, "")
    return Energy(joules, method, max(power * _TICK, 1e-6), note)


class WraparoundChannel(Channel):
    """Reads a CPU's counters often enough that no wraparound goes unnoticed."""

    def __init__(self, cpu: Cpu, clock: Clock) -> None:
        self._cpu = cpu
        self._clock = clock
        self._pause = min(cpu.driver.wrap_period / 3, 60.0)

    def poll(self) -> None:
        """Read and discard: the driver undoes wraparound."""
        for read in (self._cpu.energy, self._cpu.dram_energy):
            read_or_error(read)  # an error is reported by the window that reads it
        self.due = self._clock.now() + self._pause


class RailChannel(Channel):
    """Integrates the power rails of a system on a chip, each separately: one may fail alone."""

    def __init__(self, soc: Soc, clock: Clock) -> None:
        self._soc = soc
        self._clock = clock
        self.trouble: CapabilityError | None = None
        self._polled = -math.inf
        self._rails: dict[str, Timeline] = {}

    def poll(self) -> None:
        """Read all rails once."""
        begun = self._clock.now()
        try:
            powers = self._soc.powers() or {}
            self.trouble = None
        except CapabilityError as error:
            self.trouble = error
            self.due = begun + 1.0
            return
        instant = (begun + self._clock.now()) / 2
        for rail, watts in powers.items():
            if rail not in self._rails:
                self._rails[rail] = Timeline(_RAIL_SAMPLES)
            self._rails[rail].append(instant, watts)
        self._polled = instant
        self.due = instant + _RAIL_PERIOD * self.backoff

    def expedite(self, due: float) -> None:
        """Poll no later than this instant."""
        self.due = min(self.due, due)

    def settled(self, end: float) -> bool:
        """Return whether all rails have been read after an instant, or do not respond."""
        return self.trouble is not None or self._polled >= end

    def energies(self, begin: float, end: float) -> dict[str, Energy]:
        """Return joules per rail over a window."""
        if not self._rails:
            return {self._soc.total_rail or _WHOLE: self._unavailable()}
        return {rail: self._energy(rail, begin, end) for rail in list(self._rails)}

    def _energy(self, rail: str, begin: float, end: float) -> Energy:
        timeline = self._rails[rail]
        last, joules = timeline.last(), timeline.integral(begin, end)
        if last is None or joules is None or end - last[0] > _MAX_GAP:
            return self._unavailable()
        # The samples on either side of an edge show how power changed there.
        margin = _RAIL_PERIOD * max(self.backoff, 1.0) * 1.5
        around = [watts for _, watts in timeline.samples(begin - margin, end + margin)]
        spread = (max(around) - min(around)) * _RAIL_PERIOD if around else 0.0
        inside = timeline.samples(begin, end)
        method = Method.INTEGRATED if inside else Method.ESTIMATED
        return Energy(joules, method, max(spread, 1e-3), "integrated from rail power")

    def _unavailable(self) -> Energy:
        note = "the power rails do not respond" if self.trouble is None else str(self.trouble)
        return Energy(None, Method.UNAVAILABLE, note=note)

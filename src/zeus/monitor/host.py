"""Energy of what is not a GPU: CPU packages, their memory, systems on a chip.

Their counters are quick to read and tick a thousand times a second, so they are read at the
window's edges. Where only power is metered (Jetson), the sampler integrates it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zeus.errors import CapabilityError, Reason
from zeus.monitor.measurement import CPU, DRAM, SOC, Reading
from zeus.monitor.track import Energy, Method

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Cpu, Node, Soc
    from zeus.monitor.sampler import Channel

_TICK = 1e-3  # seconds; RAPL counters move about this often
_RAIL_PERIOD = 0.02  # seconds between looks at power rails
_MANY_LOOKS = 8000


@dataclass(frozen=True)
class HostSnapshot:
    """Counters at one instant: joules or the obstacle, per (domain, index)."""

    values: dict[tuple[str, int | str], float | CapabilityError]


class HostMeter:
    """Reads everything on the node that is not a GPU."""

    def __init__(self, node: Node, cpu_indices: Sequence[int] | None) -> None:
        self.cpus = node.cpus.select(cpu_indices)
        self._soc = node.soc
        self._with_dram = [cpu for cpu in self.cpus if _has_dram(cpu)]
        self._rails = (
            RailTrack(node.soc, node.clock) if node.soc and node.soc.powers() is not None else None
        )
        #: What the sampler must look at from time to time.
        self.channels: tuple[Channel, ...] = tuple(
            WrapKeeper(cpu, node.clock)
            for cpu in self.cpus
            if math.isfinite(cpu.driver.wrap_period)
        ) + ((self._rails,) if self._rails else ())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.cpus and self._soc is None

    def snapshot(self) -> HostSnapshot:
        """Read all counters now."""
        values: dict[tuple[str, int | str], float | CapabilityError] = {}
        for cpu in self.cpus:
            try:
                values[CPU, cpu.index] = cpu.energy()
            except CapabilityError as error:
                values[CPU, cpu.index] = error
        for cpu in self._with_dram:
            try:
                values[DRAM, cpu.index] = cpu.dram_energy()
            except CapabilityError as error:
                values[DRAM, cpu.index] = error
        if self._soc is not None and self._rails is None:
            for part, joules in (self._soc.energies() or {}).items():
                values[SOC, part] = joules
        return HostSnapshot(values)

    def readings(
        self, begin: HostSnapshot, end: HostSnapshot, begin_at: float, end_at: float
    ) -> tuple[Reading, ...]:
        """Differences of two snapshots."""
        names: dict[int | str, str] = {cpu.index: cpu.name for cpu in self.cpus}
        soc_name = self._soc.name if self._soc else ""
        return tuple(
            Reading.of(
                domain,
                index,
                soc_name if domain == SOC else names.get(index, ""),
                _difference(begin.values.get((domain, index)), value, end_at - begin_at),
                key=f"{domain}-{index}",
            )
            for (domain, index), value in end.values.items()
        )

    def completed(
        self, readings: tuple[Reading, ...], begin: float, end: float
    ) -> tuple[Reading, ...]:
        """Add what only the sampler knows."""
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
                key=f"soc-{rail}",
                # The board's input feeds the other rails.
                contained=total is not None and total in rails and rail != total,
            )
            for rail, energy in rails.items()
        )


def _has_dram(cpu: Cpu) -> bool:
    try:
        cpu.dram_energy()
    except CapabilityError as error:
        return error.reason is not Reason.UNSUPPORTED
    return True


def _difference(
    begin: float | CapabilityError | None, end: float | CapabilityError, duration: float
) -> Energy:
    for value in (begin, end):
        if isinstance(value, CapabilityError):
            return Energy(None, Method.UNAVAILABLE, note=str(value))
    if begin is None or isinstance(begin, CapabilityError) or isinstance(end, CapabilityError):
        return Energy(None, Method.UNAVAILABLE, note="not readable when the window began")
    joules = end - begin
    power = joules / duration if duration > 0 else 0.0
    return Energy(joules, Method.COUNTER, max(power * _TICK, 1e-6))


class WrapKeeper:
    """Looks at a CPU's counters often enough that no wraparound goes unnoticed."""

    def __init__(self, cpu: Cpu, clock: Clock) -> None:
        self._cpu = cpu
        self._clock = clock
        self._pause = min(cpu.driver.wrap_period / 3, 60.0)
        self.due = math.inf
        self.thrift = 1.0
        self.settles = False
        self.trouble: CapabilityError | None = None

    def look(self) -> None:
        """Read and forget: the driver undoes wraparound."""
        for read in (self._cpu.energy, self._cpu.dram_energy):
            try:
                read()
            except CapabilityError:
                continue  # told by the window that asks
        self.due = self._clock.now() + self._pause

    def hurry(self, due: float) -> None:
        """Windows read the counters themselves."""

    def forget(self, before: float) -> None:
        """Nothing is kept."""


class RailTrack:
    """Integrates the power rails of a system on a chip."""

    def __init__(self, soc: Soc, clock: Clock) -> None:
        self._soc = soc
        self._clock = clock
        self.due = math.inf
        self.thrift = 1.0
        self.settles = True
        self.trouble: CapabilityError | None = None
        self._instants: list[float] = []
        self._watts: dict[str, list[float]] = {}
        self._joules: dict[str, list[float]] = {}

    def look(self) -> None:
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
            past = self._watts.setdefault(rail, [0.0] * len(self._instants))
            sums = self._joules.setdefault(rail, [0.0] * len(self._instants))
            gained = (watts + past[-1]) / 2 * (instant - self._instants[-1]) if past else 0.0
            sums.append((sums[-1] if sums else 0.0) + gained)
            past.append(watts)
        self._instants.append(instant)
        self.due = instant + _RAIL_PERIOD * self.thrift

    def hurry(self, due: float) -> None:
        """Look at this instant already."""
        self.due = min(self.due, due)

    def forget(self, before: float) -> None:
        """Keep every second of the old looks, once there are many.

        They are only ever the far end of a long window, for which they are still close enough.
        """
        if len(self._instants) < _MANY_LOOKS:
            return
        half = bisect_left(self._instants, before)
        for numbers in (self._instants, *self._watts.values(), *self._joules.values()):
            numbers[:half] = numbers[:half:2]

    def energies(self, begin: float, end: float) -> dict[str, Energy]:
        """Joules per rail over a window."""
        return {rail: self._energy(rail, begin, end) for rail in self._watts}

    def _energy(self, rail: str, begin: float, end: float) -> Energy:
        if self.trouble is not None:
            return Energy(None, Method.UNAVAILABLE, note=str(self.trouble))
        joules = self._at(rail, end) - self._at(rail, begin)
        watts = self._watts[rail]
        low, high = bisect_left(self._instants, begin), bisect_left(self._instants, end)
        around = watts[max(low - 1, 0) : high + 1]
        spread = (max(around) - min(around)) * _RAIL_PERIOD if around else 0.0
        method = Method.INTEGRATED if high > low else Method.ESTIMATED
        return Energy(joules, method, max(spread, 1e-3), "integrated from rail power")

    def _at(self, rail: str, instant: float) -> float:
        at = bisect_left(self._instants, instant)
        watts, joules = self._watts[rail], self._joules[rail]
        if at == 0:
            return joules[0] - watts[0] * (self._instants[0] - instant)
        if at == len(self._instants):
            return joules[-1] + watts[-1] * (instant - self._instants[-1])
        share = (instant - self._instants[at - 1]) / (self._instants[at] - self._instants[at - 1])
        return joules[at - 1] + share * (joules[at] - joules[at - 1])

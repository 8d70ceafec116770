"""Checks of the energy counters of a CPU package and its memory (RAPL)."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from zeus.device._rapl import EnergyCounter, RaplCpuDriver
from zeus.errors import CapabilityError
from zeus.verify import _checks as names
from zeus.verify._checks import Check, Why, impossible, judged

if TYPE_CHECKING:
    from zeus.clock import Clock
    from zeus.device import Cpu

_GAP = 2e-4  # seconds between polls
_FEW = 10  # refreshes
_PERIOD = 1e-3
"""Seconds between refreshes of RAPL counters, as Intel documents them."""


def check_counter(cpu: Cpu, clock: Clock, seconds: float, *, dram: bool) -> list[Check]:
    """Check the counter of a package or of its memory, while this process keeps a core busy."""
    read = cpu.dram_energy if dram else cpu.energy
    try:
        begin, first = clock.now(), read()
        polls = _poll(read, clock, seconds)
    except CapabilityError as error:
        return [impossible(names.CPU_PERIOD, error)]
    joules = [value for _, value in polls]
    instants = [
        instant for (_, before), (instant, after) in pairwise(polls) if after != before
    ]  # fmt: skip
    decreases = sum(later < earlier for earlier, later in pairwise(joules))
    power = (joules[-1] - first) / (polls[-1][0] - begin) if len(polls) > 1 else math.nan
    return [
        _period(instants, len(polls), seconds),
        judged(names.CPU_DECREASES, float(decreases), detail=f"in {len(polls)} polls"),
        *([] if math.isnan(power) else [judged(names.CPU_LOAD, power)]),
        *_range(cpu, power, dram=dram),
    ]


def _poll(read: Callable[[], float], clock: Clock, seconds: float) -> list[tuple[float, float]]:
    polls = []
    end = clock.now() + seconds
    while clock.now() < end:
        joules = read()
        polls.append((clock.now(), joules))
        due = clock.now() + _GAP
        if clock.virtual:
            clock.sleep(_GAP)
        while clock.now() < due:
            pass  # busy, so that power is that of a core under load
    return polls


def _period(instants: list[float], polls: int, seconds: float) -> Check:
    if len(instants) < _FEW:
        return impossible(names.CPU_PERIOD, Why.CONSTANT if polls > _FEW else Why.FEW_POLLS)
    gap = median(later - earlier for earlier, later in pairwise(instants))
    detail = f"{len(instants)} refreshes seen"
    return judged(names.CPU_PERIOD, gap, seconds / polls, _PERIOD, detail)


def _range(cpu: Cpu, power: float, *, dram: bool) -> list[Check]:
    driver = cpu.driver
    if not isinstance(driver, RaplCpuDriver):
        return []
    counters: tuple[EnergyCounter, ...] = driver.dram if dram else driver.dies
    if not counters:
        return []
    joules = min(counter.range_uj for counter in counters) / 1e6
    detail = f"wraps every {joules / power:.0f} s at this power" if power > 0 else ""
    return [judged(names.CPU_WRAP, joules, detail=detail)]

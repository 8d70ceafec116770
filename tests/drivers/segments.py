"""The exact power that a simulated GPU draws, in segments, and the energy that this adds up to.

The controller writes the segments and answers from them what a perfect measurement would find; the
C side (common/physics.c) integrates the same numbers in the same order, to the last bit. Instants
are seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

MAX_SEGMENTS = 4096
# When the segments run out of room, this many of the oldest go at once.
_DROP_AT_LEAST = 1024


def fields(kind: type, *names: str) -> list[tuple[str, type]]:
    """Several fields of one type, for a structure's `_fields_`."""
    return [(name, kind) for name in names]


class Segment(ctypes.Structure):
    """Must mirror `struct segment` in common/layout.h."""

    _fields_ = fields(ctypes.c_double, "start", "watts", "joules")


class Power(ctypes.Structure):
    """Must mirror `struct power` in common/layout.h."""

    _fields_ = [
        *fields(
            ctypes.c_double,
            "tick_period",
            "tick_phase",
            "tick_jitter",
            "counter_offset",
            "counter_gain",
            "average_window",
        ),
        *fields(ctypes.c_uint64, "sequence", "dropped_segments", "segment_count"),
        ("segments", Segment * MAX_SEGMENTS),
    ]


def scatter(number: int, salt: int) -> float:
    """A number in [0, 1) that depends on its arguments only; the C side computes the same."""
    mask = 2**64 - 1
    mixed = number * 0xDF7C85303DD46B6B + salt * 0xF820571E8B29C9DD + 0x3C4F9A1D70E6B285
    mixed &= mask
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1 & mask
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9 & mask
    mixed ^= mixed >> 32
    return (mixed >> 11) * 2.0**-53


def begin(power: Power, watts: float, now: float) -> None:
    """Draw `watts`, as if it had always been so."""
    power.segments[0] = Segment(start=now, watts=watts, joules=0.0)
    power.segment_count = 1


def watts_at(power: Power, instant: float) -> float:
    """The watts drawn at one instant."""
    return _segment_at(power, instant).watts


def joules_at(power: Power, instant: float) -> float:
    """The joules drawn since the simulation began, negative before that."""
    segment = _segment_at(power, instant)
    return segment.joules + segment.watts * (instant - segment.start)


def energy_between(power: Power, start: float, end: float) -> float:
    """The joules drawn from one instant to another.

    Raises:
        ValueError: If the power of that time is no longer known.
    """
    if power.dropped_segments and min(start, end) < power.segments[0].start:
        raise ValueError("this part of the power history has been dropped to make room")
    return joules_at(power, end) - joules_at(power, start)


def last_tick(power: Power, index: int, instant: float) -> float:
    """The instant of the last refresh of the counter of GPU `index`, at or before `instant`."""
    if power.tick_period <= 0:
        return instant
    tick = math.floor((instant - power.tick_phase) / power.tick_period)
    last = _tick_instant(power, index, tick)
    return last if last <= instant else _tick_instant(power, index, tick - 1)


def counted_joules(power: Power, index: int, instant: float) -> float:
    """What the energy counter of GPU `index` stands for, before it is rounded to its unit."""
    joules = joules_at(power, last_tick(power, index, instant))
    return power.counter_offset + power.counter_gain * joules


def schedule(power: Power, points: Sequence[tuple[float, float]], needed_since: float) -> None:
    """Draw what (instant, watts) `points` say from the first on, keeping the history before it.

    Args:
        power: what is rewritten; nobody may read it meanwhile.
        points: in ascending order, at least one.
        needed_since: sensors still report what was drawn from this instant on, so that has to
            stay when older segments make room.
    """
    first = points[0][0]
    joules = joules_at(power, first)
    kept = _segment_number(power, first)
    if power.segments[kept].start < first:
        kept += 1
    kept = _make_room(power, kept, len(points), needed_since)
    for position, (start, watts) in enumerate(points):
        if position:
            before = power.segments[kept + position - 1]
            joules = before.joules + before.watts * (start - before.start)
        power.segments[kept + position] = Segment(start=start, watts=watts, joules=joules)
    power.segment_count = kept + len(points)


def _make_room(power: Power, kept: int, wanted: int, needed_since: float) -> int:
    """Drop the oldest of the `kept` segments if need be; returns how many are left."""
    missing = kept + wanted - MAX_SEGMENTS
    if missing <= 0:
        return kept
    droppable = _segment_number(power, needed_since)
    dropped = min(max(missing, _DROP_AT_LEAST), droppable, kept)
    if dropped < missing:
        raise ValueError(f"at most {MAX_SEGMENTS} power segments that are still of use")
    size = ctypes.sizeof(Segment)
    base = ctypes.addressof(power.segments)
    ctypes.memmove(base, base + dropped * size, (kept - dropped) * size)
    power.dropped_segments += dropped
    return kept - dropped


def _segment_number(power: Power, instant: float) -> int:
    """The last segment that starts at or before `instant`; the first reaches back for ever."""
    low, high = 0, power.segment_count
    while high - low > 1:
        middle = (low + high) // 2
        if power.segments[middle].start <= instant:
            low = middle
        else:
            high = middle
    return low


def _segment_at(power: Power, instant: float) -> Segment:
    return power.segments[_segment_number(power, instant)]


def _tick_instant(power: Power, index: int, tick: int) -> float:
    instant = power.tick_phase + tick * power.tick_period
    if power.tick_jitter > 0:
        instant += power.tick_jitter * scatter(tick, index)
    return instant

"""The exact power that a simulated GPU draws, in segments, and the energy that this adds up to.

The controller writes the segments and answers from them what a perfect measurement would find; the
C side (common/physics.c) integrates the same numbers in the same order, to the last bit. Instants
are seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import partial

from simulated_drivers import _zeus
from simulated_drivers._sensors import Sensor

MAX_SEGMENTS = 4096
# When the segments run out of room, this many of the oldest go at once.
_DROP_AT_LEAST = 1024
_DROPPED = "this part of the power history has been dropped to make room"


def fields(kind: type, *names: str) -> list[tuple[str, type]]:
    """Several fields of one type, for a structure's `_fields_`."""
    return [(name, kind) for name in names]


class Segment(ctypes.Structure):
    """Must mirror `struct segment` in common/layout.h."""

    _fields_ = fields(ctypes.c_double, "start", "watts", "joules", "swing", "period", "on")


class Count(ctypes.Structure):
    """Must mirror `struct count` in common/layout.h."""

    _fields_ = [("refresh", ctypes.c_int64), ("joules", ctypes.c_double)]


class Power(ctypes.Structure):
    """Must mirror `struct power` in common/layout.h."""

    _fields_ = [
        *fields(Sensor, "counter", "instant", "average"),
        ("counter_offset", ctypes.c_double),
        ("counted", Count),
        *fields(
            ctypes.c_uint64, "changes_of_past", "sequence", "dropped_segments", "segment_count"
        ),
        ("segments", Segment * MAX_SEGMENTS),
    ]


def begin(power: Power, watts: float, now: float) -> None:
    """Draw `watts`, as if it had always been so."""
    power.segments[0] = Segment(start=now, watts=watts, joules=0.0)
    power.segment_count = 1
    if power.counter.part_time:
        power.counted.refresh = _last_refresh(power, now)


def watts_at(power: Power, instant: float) -> float:
    """The watts drawn at one instant."""
    segment = _segment_at(power, instant)
    elapsed = instant - segment.start
    period = segment.period
    if period and elapsed - math.floor(elapsed / period) * period < segment.on:
        return segment.watts + segment.swing
    return segment.watts


def joules_at(power: Power, instant: float) -> float:
    """The joules drawn since the simulation began, negative before that."""
    return _joules_up_to(_segment_at(power, instant), instant)


def energy_between(power: Power, start: float, end: float) -> float:
    """The joules drawn from one instant to another.

    Raises:
        ValueError: If the power of that time is no longer known.
    """
    if power.dropped_segments and min(start, end) < power.segments[0].start:
        raise ValueError(_DROPPED)
    return joules_at(power, end) - joules_at(power, start)


def last_tick(power: Power, instant: float) -> float:
    """The instant of the last refresh of the energy counter, at or before `instant`."""
    if not power.counter.period:
        return instant
    number = _last_refresh(power, instant)
    return _zeus.model(power.counter).refresh(number, power.counter.salt)


def counted_joules(power: Power, instant: float) -> float:
    """What the energy counter stands at, before it is rounded to its unit.

    Raises:
        ValueError: If the counter is a part-time one and the power of that time no longer known.
    """
    counter, counted = power.counter, power.counted
    if not counter.part_time:
        joules = _zeus.model(counter).energy(partial(joules_at, power), instant, counter.salt)
        return power.counter_offset + joules
    number = _last_refresh(power, instant)
    if number < counted.refresh:
        raise ValueError(_DROPPED)
    return power.counter_offset + _count_up_to(power, number)


def sensed_watts(power: Power, sensor: Sensor, instant: float) -> float:
    """What one of the power sensors shows at an instant."""
    return _zeus.model(sensor).power(partial(joules_at, power), instant, sensor.salt)


def schedule(
    power: Power, points: Sequence[tuple[float, float]], now: float, memory: float
) -> None:
    """Draw what (instant, watts) `points` say from the first on, keeping the history before it.

    Args:
        power: what is rewritten; must not be read meanwhile.
        points: in ascending order, at least one.
        now: the present; points before it change what was drawn already.
        memory: sensors still report what was drawn so many seconds ago, so that has to stay when
            older segments make room.
    """
    first = points[0][0]
    if first < now:
        power.changes_of_past += 1
    joules = joules_at(power, first)
    kept = _segment_number(power, first)
    if power.segments[kept].start < first:
        kept += 1
    kept = _make_room(power, kept, len(points), now - memory)
    for position, (start, watts) in enumerate(points):
        if position:
            joules = _joules_up_to(power.segments[kept + position - 1], start)
        power.segments[kept + position] = Segment(start=start, watts=watts, joules=joules)
    power.segment_count = kept + len(points)


def swing(power: Power, watts: float, period: float, on: float) -> None:
    """Draw so many watts more in the first `on` seconds of every period of the last segment.

    Computed, not scheduled: a load of any period for any time takes one segment.
    """
    last = power.segments[power.segment_count - 1]
    last.swing, last.period, last.on = watts, period, on


def _make_room(power: Power, kept: int, wanted: int, needed_since: float) -> int:
    """Drop the oldest of the `kept` segments if need be; returns how many are left."""
    missing = kept + wanted - MAX_SEGMENTS
    if missing <= 0:
        return kept
    droppable = _segment_number(power, needed_since)
    dropped = min(max(missing, _DROP_AT_LEAST), droppable, kept)
    if dropped < missing:
        raise ValueError(f"at most {MAX_SEGMENTS} power segments that are still of use")
    _count_before(power, power.segments[dropped].start)
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


def _joules_up_to(segment: Segment, instant: float) -> float:
    elapsed = instant - segment.start
    joules = segment.joules + segment.watts * elapsed
    if segment.period:
        cycles = math.floor(elapsed / segment.period)
        rest = min(elapsed - cycles * segment.period, segment.on)
        joules += segment.swing * (cycles * segment.on + rest)
    return joules


def _last_refresh(power: Power, instant: float) -> int:
    return _zeus.model(power.counter).last_refresh(instant, power.counter.salt)


def _count_up_to(power: Power, number: int) -> float:
    """Return what a part-time counter has counted by a refresh, added up in one order."""
    counter = _zeus.model(power.counter)
    joules = power.counted.joules
    for refresh in range(power.counted.refresh + 1, number + 1):
        joules += counter.increment(partial(joules_at, power), refresh, power.counter.salt)
    return joules


def _count_before(power: Power, instant: float) -> None:
    """Count what a part-time counter sees before an instant: `count_before` in common/sensors.c."""
    counter = power.counter
    if counter.part_time:
        number = _last_refresh(power, instant + counter.lag + counter.part_time)
        number = max(number, power.counted.refresh)
        power.counted = Count(number, _count_up_to(power, number))

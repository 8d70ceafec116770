"""A load that is switched on and off at known instants."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

_SHORT, _LONG = (0.03, 0.16), (0.4, 1.0)  # seconds
_LONG_SHARE = 0.15


class Segment(NamedTuple):
    """Time in which a load runs, or does not."""

    seconds: float
    on: bool


class Edge(NamedTuple):
    """An instant at which a load began to run, or stopped."""

    instant: float
    on: bool


def irregular(seconds: float, rng: random.Random) -> list[Segment]:
    """Return segments in turns on and off, of lengths that repeat in step with no sensor.

    Short ones show windows and lags of milliseconds, long ones means over a second.
    """
    segments: list[Segment] = []
    left = seconds
    while left > 0:
        length = rng.uniform(*(_LONG if rng.random() < _LONG_SHARE else _SHORT))
        segments.append(Segment(min(length, left), len(segments) % 2 == 0))
        left -= length
    return segments


def quick(seconds: float, rng: random.Random) -> list[Segment]:
    """Return shorter segments, for sensors that are refreshed every few milliseconds."""
    count = max(int(seconds / 0.03), 1)
    return [Segment(rng.uniform(0.02, 0.04), number % 2 == 0) for number in range(count)]


class SquareWave:
    """The share of time in which a load ran.

    Args:
        edges: When it began and stopped, ascending; it did not run before.
    """

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._instants = [edge.instant for edge in edges]
        self._on = [1.0 if edge.on else 0.0 for edge in edges]
        self._seconds: list[float] = []
        total, since, on = 0.0, 0.0, 0.0
        for edge in edges:
            total += on * (edge.instant - since)
            self._seconds.append(total)
            since, on = edge.instant, float(edge.on)

    def __bool__(self) -> bool:
        return bool(self._instants)

    def seconds(self, instant: float) -> float:
        """Return for how long the load had run up to an instant."""
        at = bisect_right(self._instants, instant) - 1
        if at < 0:
            return 0.0
        return self._seconds[at] + self._on[at] * (instant - self._instants[at])

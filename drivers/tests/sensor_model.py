"""What sensors should show, worked out apart from the drivers and their controllers."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from zeus.device._sensors import Sensor

Points = Sequence[tuple[float, float]]


def unrest(seconds: float, shortest: float = 0.004) -> list[tuple[float, float]]:
    """(instant, watts) of a load that changes at odd instants, from a little ago on.

    Each power lasts from `shortest` to five times as long.
    """
    generator = random.Random(0)
    points = [(time.monotonic() - 3, 100.0)]
    while points[-1][0] < points[0][0] + 3 + seconds:
        later = points[-1][0] + generator.uniform(shortest, 5 * shortest)
        points.append((later, generator.uniform(60, 400)))
    return points


class Drawn:
    """The joules that a load adds up to."""

    def __init__(self, points: Points) -> None:
        self._starts = [instant for instant, _ in points]
        self._watts = [watts for _, watts in points]
        self._joules = [0.0]
        for (start, watts), (end, _) in pairwise(points):
            self._joules.append(self._joules[-1] + watts * (end - start))

    def __call__(self, instant: float) -> float:
        """Joules since the first instant."""
        place = max(0, bisect_right(self._starts, instant) - 1)
        return self._joules[place] + self._watts[place] * (instant - self._starts[place])

    def watts(self, instant: float) -> float:
        """Power at an instant, for meters that show that: a mean may straddle a change."""
        return self._watts[max(0, bisect_right(self._starts, instant) - 1)]


def counted(sensor: Sensor, drawn: Drawn, since: int, number: int, salt: int) -> float:
    """What a counter adds from one of its refreshes to another."""
    if sensor.part_time:
        return sum(sensor.increment(drawn, n, salt) for n in range(since + 1, number + 1))
    ends = (sensor.refresh(n, salt) - sensor.lag for n in (since, number))
    first, last = map(drawn, ends)
    return sensor.gain * (last - first)


def same_refresh(sensor: Sensor, before: float, after: float, salt: int) -> int | None:
    """The number of the refresh that was the last all the time between two instants, if one was."""
    number = sensor.last_refresh(before, salt)
    return number if sensor.last_refresh(after, salt) == number else None

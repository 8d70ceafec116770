"""A sensor's values over time, in bounded memory.

A timeline returns the value at an instant and the integral between two instants. It is given
instants and values, and depends on no clock and no device.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left, bisect_right


class Timeline:
    """Samples in order of time, with their running integral.

    Between samples the value is interpolated linearly; before the first and after the last it is
    held. A *level* timeline is for values that are means over the time since the previous sample
    (such as a counter's difference): there the value jumps at each sample.

    When full, every second sample of the older half is merged into its neighbor: the older the
    samples, the coarser they are, but none of their integral is lost. It stays exact at the
    remaining samples, and inside a merged interval counts as spread evenly over it. Thread-safe.

    Args:
        capacity: Maximum number of samples to keep, at least 2.
        level: Whether a value is the mean since the previous sample.
    """

    def __init__(self, capacity: int, *, level: bool = False) -> None:
        if not capacity >= 2:
            raise ValueError(f"`capacity >= 2` must hold, but got {capacity}")
        self._capacity = capacity
        self._level = level
        self._instants = array("d")
        self._values = array("d")
        self._integral = array("d")  # from the first sample to each
        self._merged = 0  # intervals that end at this sample or before have been merged
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._instants)

    def append(self, instant: float, value: float) -> None:
        """Add a sample. One older than the last is late and ignored.

        Two samples at one instant are a step: the first value ends there, the second begins.
        """
        with self._lock:
            joined = 0.0
            if self._instants:
                gap = instant - self._instants[-1]
                if gap < 0:
                    return
                mean = value if self._level else (self._values[-1] + value) / 2
                joined = self._integral[-1] + mean * gap
            self._instants.append(instant)
            self._values.append(value)
            self._integral.append(joined)
            if len(self._instants) > self._capacity:
                self._thin()

    def last(self) -> tuple[float, float] | None:
        """Return the latest instant and value; `None` if there is no sample."""
        with self._lock:
            return (self._instants[-1], self._values[-1]) if self._instants else None

    def samples(self, start: float = -math.inf, end: float = math.inf) -> list[tuple[float, float]]:
        """Return instants and values of the samples from `start` to `end`, both included."""
        with self._lock:
            low = bisect_left(self._instants, start)
            high = bisect_right(self._instants, end)
            return list(zip(self._instants[low:high], self._values[low:high], strict=True))

    def value_at(self, instant: float) -> float | None:
        """Return the value at an instant; `None` if there is no sample."""
        with self._lock:
            if not self._instants:
                return None
            right = bisect_right(self._instants, instant)
            if right in (0, len(self._instants)):
                return self._values[max(right - 1, 0)]
            if self._level:
                return self._values[right]
            share = self._share(right, instant)
            return (1 - share) * self._values[right - 1] + share * self._values[right]

    def integral(self, start: float, end: float) -> float | None:
        """Return the integral from `start` to `end` in value times seconds; `None` if empty."""
        with self._lock:
            if not self._instants:
                return None
            return self._integral_at(end) - self._integral_at(start)

    def _share(self, right: int, instant: float) -> float:
        """Return the elapsed share, at an instant, of the interval that ends at sample `right`."""
        before = self._instants[right - 1]
        return (instant - before) / (self._instants[right] - before)

    def _integral_at(self, instant: float) -> float:
        instants, values, integral = self._instants, self._values, self._integral
        right = bisect_right(instants, instant)
        if right == 0:
            return integral[0] - values[0] * (instants[0] - instant)
        before = right - 1
        if right == len(instants):
            return integral[before] + values[before] * (instant - instants[before])
        share = self._share(right, instant)
        if self._level or right <= self._merged:
            return integral[before] + share * (integral[right] - integral[before])
        reached = values[before] + share * (values[right] - values[before])
        return integral[before] + (values[before] + reached) / 2 * (instant - instants[before])

    def _thin(self) -> None:
        """Drop every second sample of the older half, but not its part of the integral."""
        half = (len(self._instants) + 2) // 4 * 2  # even, and at least 2, so that one goes
        for numbers in (self._instants, self._values, self._integral):
            numbers[:half] = numbers[:half:2]
        self._merged = half // 2
        if self._level:
            for right in range(1, self._merged + 1):
                gap = self._instants[right] - self._instants[right - 1]
                if gap > 0:
                    gained = self._integral[right] - self._integral[right - 1]
                    self._values[right] = gained / gap

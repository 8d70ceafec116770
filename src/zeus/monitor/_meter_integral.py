"""Energy from a power meter alone, for GPUs without an energy counter.

A meter shows each value from one refresh to the next, so the integral is a sum over refreshes, at
the instants when they came. Were it a trapezoid between polls, its delay would depend on when polls
happen to be, and these follow the load: they begin and end with windows.
"""

from __future__ import annotations

import math
from collections import deque

_MEMORY = 0.02  # weight of the latest reading in the spread of recent ones
_SLOWEST = 0.1  # seconds; a value that lasts longer than this need not have been refreshed late
_LOCATED = 2.0  # widths of their locations, by which refreshes are apart that show a period
_MANY_GAPS = 16  # between refreshes, from which the period is taken


class MeterIntegral:
    """Integrates the readings of one power meter."""

    def __init__(self) -> None:
        self.joules = 0.0
        #: Variance (J²) of the joules: refreshes that no poll saw, or that are poorly located.
        self.variance = 0.0
        self._until: float | None = None
        self._period = math.inf  # seconds between refreshes
        self._refreshed = (math.nan, 0.0)  # the last instant, and how wide it is located
        self._gaps: deque[float] = deque(maxlen=_MANY_GAPS)
        self._mean = math.nan
        self._spread = 0.0  # variance (W²) of recent readings

    @property
    def delay(self) -> float:
        """Seconds by which the integral lags what the meter shows: half of each value's time."""
        return 0.0 if math.isinf(self._period) else min(self._period, _SLOWEST) / 2

    def add_unchanged(self, polled: float, watts: float) -> None:
        """Add the time up to a poll that showed the previous reading."""
        self._add(polled, watts)

    def add_live(self, polled: float, before: float, after: float) -> None:
        """Add the time between two polls of a meter that shows the present power."""
        self._learn(after)
        seconds = 0.0 if self._until is None else max(polled - self._until, 0.0)
        self._add(polled, (before + after) / 2)
        self.variance += (seconds * (after - before)) ** 2 / 12  # it changed at some instant

    def add_refresh(
        self, located: tuple[float, float], polled: float, before: float, after: float
    ) -> None:
        """Add the time up to a poll that showed a new reading.

        Args:
            located: Instants between which the meter was refreshed.
            polled: Instant of the poll.
            before: The previous reading, in watts.
            after: The new one.
        """
        low, high = located
        refreshed = min(max((low + high) / 2, self._until or polled), polled)
        self._learn(after)
        self._learn_period(low, high)
        self._add(refreshed, before)
        self._add(polled, after)
        self.variance += ((high - low) * (after - before)) ** 2 / 12

    def _add(self, until: float, watts: float) -> None:
        seconds = 0.0 if self._until is None else max(until - self._until, 0.0)
        self._until = until if self._until is None else max(until, self._until)
        self.joules += watts * seconds
        if seconds > self._period:
            # Refreshes in between were not seen, each of which may have differed.
            missed = seconds - self._period
            self.variance += missed * self._period * self._spread

    def _learn(self, watts: float) -> None:
        if math.isnan(self._mean):
            self._mean = watts
        off = watts - self._mean
        self._mean += _MEMORY * off
        self._spread += _MEMORY * (off * off - self._spread)

    def _learn_period(self, low: float, high: float) -> None:
        refreshed, width = self._refreshed
        self._refreshed = (low + high) / 2, high - low
        gap = (low + high) / 2 - refreshed
        if gap > _LOCATED * (width + high - low):
            self._gaps.append(gap)
            # Some are several periods long: constant power shows no refresh.
            self._period = sorted(self._gaps)[len(self._gaps) // 4]

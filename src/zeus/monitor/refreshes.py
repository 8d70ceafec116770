"""When a sensor that is refreshed every so often was refreshed.

Polling shows only that a refresh fell between two polls. Refreshes are nearly periodic, so that
each such bracket narrows where the next must lie. They jitter, too: an expected bracket is widened
by as much as refreshes have been seen to stray, before it is intersected with what was seen.
"""

from __future__ import annotations

import math

_LEAST_JITTER = 1e-4  # seconds
_CALMER = 0.98  # by which the jitter that is allowed for shrinks with every refresh that fits
_POLLS = 0.95  # of what is remembered about polls, with every poll
_FRESH = 0.9  # of polls show a refresh, where the sensor is quicker than polls
_LOST = 0.5  # of a period: beyond, refreshes cannot be counted any more


class RefreshModel:
    """Follows the refreshes of one sensor. All times in seconds of the monotonic clock.

    Attributes:
        period: Seconds between refreshes; `None` until two have been seen.
    """

    def __init__(self) -> None:
        self.period: float | None = None
        self._low = self._high = -math.inf
        self._period_width = math.inf
        self._jitter = _LEAST_JITTER
        #: Share of polls that show a refresh, of late, and the shortest time between two that did.
        self._busy = 0.0
        self._shortest = math.inf
        # A refresh seen long ago: the longer ago, the sharper the period.
        self._anchor = (-math.inf, -math.inf)
        self._since_anchor = 0

    def unchanged(self) -> None:
        """A poll showed no refresh."""
        self._busy *= _POLLS

    @property
    def fresh(self) -> bool:
        """Whether every poll shows a refresh: the sensor is quicker than whoever polls it."""
        return self._busy > _FRESH

    @property
    def periodic(self) -> bool:
        """Whether refreshes come about where they are expected."""
        return self.period is not None and not self.fresh and self._jitter < self.period / 8

    def observe(self, low: float, high: float) -> tuple[float, float]:
        """A refresh fell into this bracket: between the poll before and this one.

        Returns:
            The narrowest bracket that is known for it.
        """
        if self._busy > _FRESH / 2:
            self._shortest = min(1.01 * self._shortest, high - low)
        self._busy = _POLLS * self._busy + 1 - _POLLS
        if self.fresh:
            # It was refreshed within the shortest time in which it is known to be.
            self._restart(high - min(self._shortest, high - low), high)
            return self._low, self._high
        if not math.isfinite(self._low):
            return self._restart(low, high)
        gap = (low + high - self._low - self._high) / 2
        spread = (high - low + self._high - self._low) / 2
        period = self.period
        if period is None or gap < 0.7 * period - spread:
            # The first, or there were refreshes between those that were taken for neighbors.
            self.period, self._period_width = max(gap, 1e-6), max(spread, 1e-6)
            return self._restart(low, high)
        count = max(1, round(gap / period))
        if count * self._period_width + spread > _LOST * period:
            if count == 1 and spread < self._period_width:
                self.period, self._period_width = gap, spread
            return self._restart(low, high)
        self._since_anchor += count
        self._sharpen_period(low, high)
        assert self.period is not None
        allowed = self._jitter + count * self._period_width
        expected_low = self._low + count * self.period - allowed
        expected_high = self._high + count * self.period + allowed
        if max(low, expected_low) > min(high, expected_high):
            self._jitter = min(1.5 * self._jitter + 2e-4, self.period / 4)
            self._low, self._high = low, high
            return low, high
        self._jitter = max(_CALMER * self._jitter, _LEAST_JITTER)
        self._low, self._high = max(low, expected_low), min(high, expected_high)
        return self._low, self._high

    def _restart(self, low: float, high: float) -> tuple[float, float]:
        self._low, self._high = self._anchor = low, high
        self._since_anchor = 0
        return low, high

    def _sharpen_period(self, low: float, high: float) -> None:
        assert self.period is not None
        count = self._since_anchor
        least = (low - self._anchor[1] - self._jitter) / count
        most = (high - self._anchor[0] + self._jitter) / count
        least = max(least, self.period - self._period_width)
        most = min(most, self.period + self._period_width)
        if least <= most:
            self.period, self._period_width = (least + most) / 2, (most - least) / 2
            # Never for sure: clocks drift against each other.
            self._period_width = max(self._period_width, 1e-5 * self.period)
        else:
            self._period_width = 2 * self._period_width + 1e-4 * self.period
            self._anchor, self._since_anchor = (low, high), 0

    def next_after(self, instant: float) -> tuple[float, float] | None:
        """Bracket of the first refresh after an instant, by prediction."""
        if self.period is None:
            return None
        count = math.floor((instant - (self._low + self._high) / 2) / self.period) + 1
        allowed = self._jitter + count * self._period_width
        return (
            self._low + count * self.period - allowed,
            self._high + count * self.period + allowed,
        )

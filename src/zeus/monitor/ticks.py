"""When a counter that moves in ticks moved last, and when it will move next.

Polling shows only that a tick fell between two looks. Ticks are periodic, so every such bracket
narrows both the period and the phase; a look at the predicted instant halves what is left. Brackets
are kept as intervals, never as estimates with a tuned filter: if a tick is not where it must be,
the hardware is not that regular, and the bracket that was seen stands alone.
"""

from __future__ import annotations

import math


class TickModel:
    """Follows the ticks of one counter. All times in seconds of the monotonic clock."""

    def __init__(self) -> None:
        #: Bracket of the latest tick that was seen.
        self.low = -math.inf
        self.high = math.inf
        self._period_low = 0.0
        self._period_high = math.inf
        # A tick seen long ago: the longer ago, the sharper the period.
        self._anchor: tuple[float, float] | None = None
        self._ticks_since_anchor = 0

    @property
    def period(self) -> float | None:
        """Seconds between ticks, once two have been seen."""
        if not math.isfinite(self._period_high):
            return None
        return (self._period_low + self._period_high) / 2

    def observe(self, low: float, high: float, longest_gap: float) -> tuple[float, float]:
        """A tick fell into this bracket.

        Args:
            low: Instant of the last look before it.
            high: Instant of the first look after it.
            longest_gap: Longest time between two looks since the tick observed before.

        Returns:
            The narrowest bracket known for the tick.
        """
        if self._anchor is None:
            return self._restart(low, high)
        period = self.period
        gap = (low + high) / 2 - (self.low + self.high) / 2
        if period is None:
            if longest_gap > gap / 2 or low - self.high < (high - self.low) / 3:
                return self._restart(low, high)  # there may have been more ticks in between
            self._period_low = max(0.0, low - self.high)
            self._period_high = high - self.low
            self._ticks_since_anchor = 1
            self.low, self.high = low, high
            return low, high
        count = max(1, round(gap / period))
        if count * (self._period_high - self._period_low) > period / 2:
            return self._restart(low, high, keep_period=True)  # lost count of the ticks
        expected_low = self.low + count * self._period_low
        expected_high = self.high + count * self._period_high
        if max(low, expected_low) > min(high, expected_high):
            return self._restart(low, high)
        self._ticks_since_anchor += count
        self._sharpen_period(low, high)
        self.low, self.high = max(low, expected_low), min(high, expected_high)
        return self.low, self.high

    def _restart(
        self, low: float, high: float, *, keep_period: bool = False
    ) -> tuple[float, float]:
        self.low, self.high = low, high
        self._anchor = (low, high)
        self._ticks_since_anchor = 0
        if not keep_period:
            self._period_low, self._period_high = 0.0, math.inf
        return low, high

    def _sharpen_period(self, low: float, high: float) -> None:
        assert self._anchor is not None
        ticks = self._ticks_since_anchor
        period_low = max(self._period_low, (low - self._anchor[1]) / ticks)
        period_high = min(self._period_high, (high - self._anchor[0]) / ticks)
        if period_low <= period_high:
            self._period_low, self._period_high = period_low, period_high
        else:
            self._anchor, self._ticks_since_anchor = (low, high), 0

    def last_before(self, instant: float) -> tuple[float, float] | None:
        """Bracket of the last tick at or before an instant, by prediction."""
        period = self.period
        if period is None:
            return None
        count = math.floor((instant - (self.low + self.high) / 2) / period)
        return self.low + count * self._period_low, self.high + count * self._period_high

    def next_after(self, instant: float) -> tuple[float, float] | None:
        """Bracket of the first tick after an instant, by prediction."""
        period = self.period
        if period is None:
            return None
        count = math.floor((instant - (self.low + self.high) / 2) / period) + 1
        return self.low + count * self._period_low, self.high + count * self._period_high

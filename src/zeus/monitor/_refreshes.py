"""Estimates when a periodically refreshed sensor was refreshed.

Polling shows only that a refresh fell between two polls. Refreshes are nearly periodic, so each
such bracket narrows where the next must lie. They also jitter: an expected bracket is widened by
the jitter observed so far, before it is intersected with the observed one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_MIN_JITTER = 1e-4  # seconds
_TIGHT = 0.004  # seconds between two polls that confirm where a refresh is
_FIRST_CONFIRM = 0.2  # seconds until that is to be confirmed again,
_MANY_WIDE = 100  # refreshes without being confirmed despite attempts
_LONGEST_CONFIRM = 100  # periods, after it was confirmed repeatedly
_NEIGHBORS = 2  # periods between two refreshes that were seen consecutively
_SUGGESTED = 1e-3  # of a period, by which it may differ from another sensor's
_LONGEST_PERIOD = 0.3  # seconds
_RELIED_ON = 6  # refreshes as expected between polls that are not far apart, which fit any
_MANY_FITS = 12  # after which a sensor counts as periodic
_MAX_JITTER = 0.15  # of the period
_CALMER = 0.98  # factor by which the allowed jitter shrinks with every refresh that fits
_POLLS = 0.95  # decay of the statistics about polls, per poll
_CLOSE = 0.015  # seconds between polls that are close, whatever the period
_FRESH = 0.9  # share of polls that show a refresh, where the sensor is quicker than polls
_TOO_SOON = 0.6  # of a period, after the last one
_EITHER = 0.2  # of an expected bracket, from which a match is ambiguous
_OVERDUE = 0.002  # seconds after which an expected refresh is given up
_MANY_LOST = 10  # after which a period is given up
_LOST = 0.5  # of a period: beyond, refreshes can no longer be counted


class _Fit(NamedTuple):
    """Overlap of an observed bracket with an expected one."""

    share: float  # share of the expected bracket that overlaps
    number: int  # which refresh is expected there, counted from the last one
    low: float  # begin of the intersection; `high` is its end
    high: float


class RefreshModel:
    """Tracks the refreshes of one sensor. All times in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.period: float | None = None  # between refreshes; `None` until two have been seen
        self._low = self._high = -math.inf
        self._period_width = math.inf
        self._jitter = _MIN_JITTER
        self._confirmed = -math.inf
        self._confirm_after = _FIRST_CONFIRM
        self._wide = 0  # refreshes that were seen since it was confirmed
        self._lost = 0
        self._fits = 0  # recent refreshes that came where they were expected
        self._agreed = 0  # likewise, seen less exactly
        #: Share of recent polls that show a refresh, and the shortest time between two that did.
        self._busy = 0.0
        self._shortest = math.inf
        # A refresh seen long ago: the longer ago, the sharper the period.
        self._anchor = (-math.inf, -math.inf)
        self._since_anchor = 0

    def unchanged(self) -> None:
        """Record a poll that showed no refresh."""
        self._busy *= _POLLS

    @property
    def fresh(self) -> bool:
        """Whether every poll shows a refresh: the sensor is quicker than its polling."""
        return self._busy > _FRESH

    @property
    def periodic(self) -> bool:
        """Whether refreshes come about where they are expected."""
        if self.period is None or self.fresh or self._fits < _MANY_FITS:
            return False
        if self.period > _LONGEST_PERIOD:
            return False  # no sensor is that slow
        return self._jitter + self._period_width < self.period / 8

    def suggest(self, other: RefreshModel) -> None:
        """Try another sensor's period if none was found: load that seldom changes shows none."""
        period = other.period
        if period is None:
            return
        known = self.period is not None and self.period < 1.5 * period
        if known or self.fresh or self._fits or math.isinf(self._low):
            return
        self.period = period
        self._period_width = max(_SUGGESTED * period, other._period_width)
        self._since_anchor, self._anchor = 0, (self._low, self._high)

    def unconfirmed(self, now: float) -> bool:
        """Return whether no refresh has been seen between two close polls for a while.

        Polls far apart show a refresh at any phase, even an unexpected one.
        """
        return now - self._confirmed > self._confirm_after

    def observe(self, low: float, high: float) -> tuple[float, float]:
        """Record a refresh between the previous poll and this one; return its narrowest bracket."""
        self._note_polls(low, high)
        if self.fresh:
            # It was refreshed within the shortest known refresh time.
            return self._restart(high - min(self._shortest, high - low), high)
        if self.period is None:
            return self._begin_period(low, high)
        # The poll shows the last refresh expected by then.
        shortest = max(self.period - self._period_width, self.period / 2)
        count = math.floor((high + self._jitter - self._low) / shortest)
        if count < 1 and high - self._low < _TOO_SOON * self.period:
            # There were refreshes between those assumed to be neighbors.
            return self._begin_period(low, high)
        if count * self._period_width + (self._high - self._low) / 2 > _LOST * self.period:
            self._lost += 1  # which one it is, is ambiguous
            if self._lost > _MANY_LOST:
                self._forget_period()
            return self._begin_period(low, high)
        # Unless that one lies after the poll: then it is the one before.
        last, before = self._fit(count, low, high), self._fit(count - 1, low, high)
        if last and before and last.share < 1 - _EITHER:
            if last.share > _EITHER:
                # It may be either. The phase stays as it was, and nothing is learned about it. If
                # it was the earlier one, the later is still to be seen.
                self._since_anchor += count - 1
                self._low, self._high = self._expected(count - 1)
                return (before.low, last.high) if self._agreed >= _RELIED_ON else (low, high)
            last = None
        fit = last or before
        return self._take_fit(fit, low, high) if fit else self._take_misfit(count, low, high)

    def _note_polls(self, low: float, high: float) -> None:
        """Learn from the distance of the two polls around a refresh."""
        self._wide += 1
        if high - low < _TIGHT:
            self._confirmed, self._wide = high, 0
            longest = _LONGEST_CONFIRM * (self.period or 0.0)
            self._confirm_after = max(min(2 * self._confirm_after, longest), _FIRST_CONFIRM)
        if self._busy > _FRESH / 2:
            self._shortest = min(1.01 * self._shortest, high - low)
        if high - low < max(_CLOSE, (self.period or 0.0) / 2):
            # Polls far apart show a refresh each, however slow the sensor is.
            self._busy = _POLLS * self._busy + 1 - _POLLS

    def _take_fit(self, fit: _Fit, low: float, high: float) -> tuple[float, float]:
        """Narrow the phase and the period by a refresh that came where it was expected."""
        assert self.period is not None
        expected_low, expected_high = self._expected(fit.number)
        # Load that changes regularly matches, too, but not every time.
        near = fit.number <= _NEIGHBORS or fit.number * self._period_width < self.period / 8
        if high - low < max(_TIGHT, self.period / 8) and near:
            self._fits = min(self._fits + 1, 4 * _MANY_FITS)
            self._lost = 0
        elif self._wide > _MANY_WIDE:
            self._fits = self._wide = 0  # it may be anywhere: search for it again
        if high - low < max(_TIGHT, self.period / 6) and near:
            self._agreed = min(self._agreed + 1, 4 * _RELIED_ON)
        self._since_anchor += fit.number
        # A refresh deviates from its phase by the jitter, but the phase stays.
        self._low = min(max(expected_low, low - self._jitter), expected_high)
        self._high = max(min(expected_high, high + self._jitter), self._low)
        self._sharpen_period(low, high)
        self._jitter = max(_CALMER * self._jitter, _MIN_JITTER)
        return (fit.low, fit.high) if self._agreed >= _RELIED_ON else (low, high)

    def _take_misfit(self, count: int, low: float, high: float) -> tuple[float, float]:
        """Allow for a refresh that came where none was expected, or give the period up."""
        assert self.period is not None
        self._fits, self._agreed = self._fits // 2, max(self._agreed - 2, 0)
        self._confirm_after = _FIRST_CONFIRM
        self._jitter = 1.5 * self._jitter + 2e-4
        self._lost += 1
        if self._jitter > _MAX_JITTER * self.period or self._lost > _MANY_LOST:
            self._forget_period()
        elif high - low <= _LOST * self.period:
            # Either the refresh jittered, or the period is off by this much.
            expected_low, expected_high = self._expected(max(count, 1))
            self._period_width += max(expected_low - high, low - expected_high, 0.0) / max(count, 1)
        return self._restart(low, high)

    def _forget_period(self) -> None:
        self.period, self._period_width, self._jitter = None, math.inf, _MIN_JITTER
        self._fits = self._agreed = self._lost = 0

    def _begin_period(self, low: float, high: float) -> tuple[float, float]:
        if math.isfinite(self._low):
            gap = (low + high - self._low - self._high) / 2
            spread = (high - low + self._high - self._low) / 2
            too_long = self.period is not None and gap < _TOO_SOON * self.period
            # A period twice as long, because a refresh was missed, is detected as too long later.
            if too_long or spread < self._period_width:
                self.period, self._period_width = max(gap, 1e-6), max(spread, 1e-6)
        return self._restart(low, high)

    def _fit(self, count: int, low: float, high: float) -> _Fit | None:
        """Return the overlap of an observed bracket with the expected one of a refresh, if any."""
        expected_low, expected_high = self._expected(count)
        expected_low -= self._jitter
        expected_high += self._jitter
        a, b = max(low, expected_low), min(high, expected_high)
        if count < 1 or a > b:
            return None
        return _Fit((b - a) / (expected_high - expected_low), count, a, b)

    def _expected(self, count: int) -> tuple[float, float]:
        """Return the bracket of the `count`-th refresh after the last, without jitter."""
        assert self.period is not None
        allowed = count * self._period_width
        later = count * self.period
        return self._low + later - allowed, self._high + later + allowed

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
            # Never exact: clocks drift against each other.
            self._period_width = max(self._period_width, 1e-5 * self.period)
        else:
            self._period_width = 2 * self._period_width + 1e-4 * self.period
            self._anchor, self._since_anchor = (low, high), 0

    def next_after(self, instant: float) -> tuple[float, float] | None:
        """Predict the bracket of the next refresh that may still come after an instant."""
        if self.period is None or self.fresh:
            return None
        low, high = self._expected(1)
        late = high + self._jitter
        if late < instant < late + _OVERDUE:
            return instant, late + _OVERDUE  # not seen yet, and not given up
        if late < instant:
            low, high = self._expected(math.ceil((instant - late) / self.period) + 1)
        return low - self._jitter, high + self._jitter

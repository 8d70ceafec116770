"""When a sensor is refreshed: period, phase and jitter, found from where its value changed.

Nothing is assumed of the period. A refresh that leaves the value as it was is not seen, so that
distances between changes are multiples of the period; it is the largest one of which they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from zeus._student import student_factor
from zeus.verify._recording import Change

_FEW = 8  # distances that must fit
_NEAR = 3  # periods between two changes, up to which their distance is judged
_FITS = 0.9  # share of the distances
_JITTER = 0.13  # of a period, by which a refresh may be late
_SHARPEST = 0.2  # of a period: polls further apart do not show it
_MANY = 400  # changes that are used to choose a period
_DRIFT = 1e-5  # of the period: clocks drift against each other
_OFF = 0.3  # of a period, beyond which a change does not fit


class Refreshes(NamedTuple):
    """Periodic refreshes; all times in seconds.

    The refresh of number `n` is at `phase + n * period`, give or take half the jitter.
    Uncertainties are for 19 of 20.
    """

    period: float
    period_uncertainty: float
    phase: float
    phase_uncertainty: float
    jitter: float
    seen: int

    def at(self, number: int) -> float:
        """Return the mean instant of a refresh."""
        return self.phase + number * self.period

    def number(self, instant: float) -> int:
        """Return the number of the last refresh before an instant."""
        return math.floor((instant - self.phase) / self.period)


def find_refreshes(changes: Sequence[Change], hint: float | None = None) -> Refreshes | None:
    """Return the refreshes that explain changes of a value; `None` if none do.

    Args:
        changes: Where the value changed.
        hint: The period, if it is known roughly from denser polls.
    """
    if len(changes) <= _FEW:
        return None
    widths = sorted(change.high - change.low for change in changes)
    # Where a host paused, a change may have been anywhere, and there may have been several.
    for widest in (1.5 * widths[len(widths) // 4], 2.5 * widths[len(widths) // 2]):
        narrow = [each for each in changes if each.high - each.low <= widest]
        if len(narrow) > _FEW and (found := _found(narrow, hint)) is not None:
            return found
    return None


def _found(changes: Sequence[Change], hint: float | None) -> Refreshes | None:
    middles = [(each.low + each.high) / 2 for each in changes]
    half = median(each.high - each.low for each in changes) / 2
    if hint is not None:
        return _fitted(middles, half, hint)
    gaps = [later - earlier for earlier, later in pairwise(middles[:_MANY])]
    candidates = sorted(
        {gap / number for gap in gaps for number in range(1, _NEAR + 1)}, reverse=True
    )
    tried = math.inf
    for candidate in candidates:
        if 2 * half > _SHARPEST * candidate:
            return None  # and so are all that are shorter
        if candidate > 0.995 * tried:
            continue
        tried = candidate
        period = _confirmed(gaps, half, candidate)
        found = None if period is None else _fitted(middles, half, period)
        if found is not None:
            return found
    return None


def _confirmed(gaps: Sequence[float], half: float, period: float) -> float | None:
    """Return a period more accurately, if nearby changes are multiples of it apart."""
    allowed = 2 * half + _JITTER * period
    near = [gap for gap in gaps if gap < (_NEAR + 0.5) * period]
    fitting = [
        (gap, number)
        for gap in near
        if (number := round(gap / period)) and abs(gap - number * period) <= allowed
    ]
    if len(fitting) < max(_FEW, _FITS * len(near)):
        return None
    return sum(gap for gap, _ in fitting) / sum(number for _, number in fitting)


def _fitted(middles: Sequence[float], half: float, period: float) -> Refreshes | None:
    numbers = [0]
    for earlier, later in pairwise(middles):
        # Counted from each to the next: the period is not known well enough for more.
        numbers.append(numbers[-1] + max(round((later - earlier) / period), 0))
    pairs = list(zip(numbers, middles, strict=True))
    for _ in range(3):
        phase, period = _line(pairs)
        if period <= 0:
            return None
        numbers = [round((middle - phase) / period) for middle in middles]
        pairs = [
            (number, middle)
            for number, middle in zip(numbers, middles, strict=True)
            if abs(middle - phase - number * period) <= _OFF * period
        ]
        if len(pairs) <= max(_FEW, _FITS * len(middles)):
            return None
    if len({number for number, _ in pairs}) <= _FEW:
        return None
    fitting = [(number, middle - phase - number * period) for number, middle in pairs]
    return _stated(fitting, half, phase, period)


def _line(pairs: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return intercept and slope of the line through points."""
    count = len(pairs)
    mean_number = sum(number for number, _ in pairs) / count
    mean = sum(middle for _, middle in pairs) / count
    spread = sum((number - mean_number) ** 2 for number, _ in pairs)
    if not spread:
        return mean, 0.0
    slope = sum((number - mean_number) * (middle - mean) for number, middle in pairs) / spread
    return mean - slope * mean_number, slope


def _stated(
    fitting: Sequence[tuple[int, float]], half: float, phase: float, period: float
) -> Refreshes:
    count = len(fitting)
    factor = student_factor(count - 2)
    # A poll gap is uniform; what scatters beyond is jitter.
    least = half**2 / 3
    scatter = max(sum(off**2 for _, off in fitting) / (count - 2), least)
    mean = sum(number for number, _ in fitting) / count
    spread = sum((number - mean) ** 2 for number, _ in fitting)
    # The phase is that of the refresh in the middle, where it is known best.
    middle = round(mean)
    return Refreshes(
        period,
        factor * math.sqrt(scatter / spread) + _DRIFT * period,
        phase + middle * period,
        factor * math.sqrt(scatter / count),
        math.sqrt(12 * max(scatter - 1.3 * least, 0.0)),
        count,
    )

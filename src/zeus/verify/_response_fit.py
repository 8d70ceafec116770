"""Over which time a reading is a mean, and how late it is: a fit to a load of known instants.

A reading is taken as the mean of power over `window` seconds that ended `lag` seconds before it,
and power as one of two levels. Both times are found by least squares, by zooming in on all that
explain the readings about as well as the best: that region is also what is stated as uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from zeus.verify._load_pattern import SquareWave

_LEAST_WINDOW = 2e-4  # seconds; shorter ones count as instantaneous
_LEAST_LAG = -0.004  # seconds: instants of edges and refreshes are known to some ms
WINDOWS = (
    _LEAST_WINDOW, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15,
    0.2, 0.3, 0.45, 0.65, 0.85, 1.0, 1.2, 1.5,
)  # fmt: skip
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
_LAGS = (*(_LEAST_LAG + 0.006 * n for n in range(18)), 0.13, 0.17, 0.22, 0.3)
_FINE = 9  # values of each time in a step of the zoom
_ZOOMS = 16
_RESOLVED = 0.5  # of the zoomed range that is plausible, from which it need not be zoomed further
_BEST = 6  # points that stay in the range, plausible or not: between them may be better ones
_SHARP = 2e-4  # seconds, or a share: a range that need not be zoomed further
_PLAUSIBLE = 3.84  # difference in squared errors, in variances: 95 % of one time
_FEWEST = 20  # readings
_EXPLAINED = 0.8  # share of the variance
_MOST = 250  # readings; more only take time


class Reading(NamedTuple):
    """A value, and the instant at which it was made.

    The mean is over `span * window`: a counter's windows are shares of its intervals.
    """

    instant: float
    value: float
    span: float = 1.0


class Fit(NamedTuple):
    """Times in seconds, or shares of spans; levels in watts; uncertainties for 19 of 20."""

    window: float
    window_uncertainty: float
    lag: float
    lag_uncertainty: float
    low: float
    high: float
    high_uncertainty: float
    explained: float


class _Line(NamedTuple):
    """Watts as a function of the share of time in which the load ran.

    Attributes:
        squares: Sum of squared errors.
        low: Watts without load.
        high: Watts with load.
        spread: Variance of `high`, as a share of that of a reading.
        partly_squares: `squares` of readings during which the load changed.
        partly: Number of these.
    """

    squares: float
    low: float
    high: float
    spread: float
    partly_squares: float
    partly: int


def fit_response(
    readings: Sequence[Reading],
    wave: SquareWave,
    resolution: float,
    *,
    windows: Sequence[float] = WINDOWS,
) -> Fit | None:
    """Return the response that explains readings.

    Args:
        readings: Of one sensor.
        wave: The load.
        resolution: Watts by which readings are rounded.
        windows: Windows to begin with, ascending.

    Returns:
        The fit; `None` if there are too few readings or they do not follow the load.
    """
    if len(readings) < _FEWEST or not wave:
        return None
    step = -(-len(readings) // _MOST)
    problem = _Problem(readings[::step], wave, resolution)
    scanned = [(problem.line(window, lag), problem.at(window, lag))
               for window in windows for lag in _LAGS]  # fmt: skip
    _, best = min(scanned)
    box = _around(best, windows, problem)
    fine = scanned
    for _ in range(_ZOOMS):
        fine = [(problem.line(at.window, problem.lag(at)), at) for at in _grid(box)]
        limit = problem.limit(min(fine)[0])
        # Also others that are as good, elsewhere.
        plausible = [at for line, at in (*fine, *scanned) if line.squares <= limit]
        narrower = _bounds(plausible, box)
        if all(
            new.length >= _RESOLVED * old.length or new.length < _SHARP
            for new, old in zip(narrower, box, strict=True)
        ):
            break
        best_few = [at for _, at in sorted(fine)[:_BEST]]
        box = _bounds([*plausible, *best_few], box)
    line, best = min(fine)
    explained = 1 - line.squares / problem.total if problem.total > 0 else 0.0
    if explained < _EXPLAINED or line.high <= line.low:
        return None
    windows_range, _ = narrower
    limit = problem.limit(line)
    lags = [problem.lag(at) for line, at in fine if line.squares <= limit]
    steps = box[0].length * problem.span / 2 + box[1].length
    lag_range = _Range(min(lags) - steps / (_FINE - 1), max(lags) + steps / (_FINE - 1))
    return Fit(
        windows_range.middle,
        windows_range.length / 2,
        lag_range.middle,
        lag_range.length / 2,
        line.low,
        line.high,
        2 * math.sqrt(problem.variance(line) * line.spread) + resolution / 2,
        explained,
    )


class _At(NamedTuple):
    """A response by its window, and by how long before a reading the middle of that was.

    The middle is known well even where window and lag, apart, are not.
    """

    window: float
    middle: float


class _Range(NamedTuple):
    low: float
    high: float

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def spaced(self) -> list[float]:
        return [self.low + self.length * n / (_FINE - 1) for n in range(_FINE)]


_Box = tuple[_Range, _Range]


def _around(best: _At, windows: Sequence[float], problem: _Problem) -> _Box:
    """Return the neighbors of the best scanned point: one beyond the next, to be safe."""
    at = list(windows).index(best.window)
    short, long = windows[max(at - 2, 0)], windows[min(at + 2, len(windows) - 1)]
    beside = 0.015 + (long - short) * problem.span / 2
    return _Range(short, long), _Range(best.middle - beside, best.middle + beside)


def _grid(box: _Box) -> list[_At]:
    return [_At(window, middle) for window in box[0].spaced() for middle in box[1].spaced()]


def _bounds(plausible: Sequence[_At], box: _Box) -> _Box:
    """Return the range of plausible times, with a step of the zoom on each side."""
    found = []
    for axis, old in enumerate(box):
        values, step = [at[axis] for at in plausible], old.length / (_FINE - 1)
        least = _LEAST_WINDOW if axis == 0 else -math.inf
        found.append(_Range(max(min(values) - step, least), max(values) + step))
    return found[0], found[1]


class _Problem:
    """Readings as a linear function of the share of their time in which the load ran."""

    def __init__(self, readings: Sequence[Reading], wave: SquareWave, resolution: float) -> None:
        self._readings = readings
        self._seconds = wave.seconds
        self._values = [reading.value for reading in readings]
        self._mean = sum(self._values) / len(readings)
        self._rounding = resolution**2 / 12
        self.span = median(reading.span for reading in readings)
        self.total = sum((value - self._mean) ** 2 for value in self._values)

    def at(self, window: float, lag: float) -> _At:
        return _At(window, lag + window * self.span / 2)

    def lag(self, at: _At) -> float:
        return at.middle - at.window * self.span / 2

    def variance(self, line: _Line) -> float:
        return line.squares / (len(self._readings) - 4) + self._rounding

    def limit(self, line: _Line) -> float:
        """Return the squared errors up to which another response is plausible."""
        # Only readings during which load changed show the response; they are off by more.
        partly = line.partly_squares / max(line.partly - 2, 3) + self._rounding
        return line.squares + _PLAUSIBLE * max(self.variance(line), partly)

    def line(self, window: float, lag: float) -> _Line:
        seconds, shares = self._seconds, []
        for reading in self._readings:
            end, long = reading.instant - lag, window * reading.span
            shares.append((seconds(end) - seconds(end - long)) / long)
        count = len(shares)
        mean = sum(shares) / count
        spread = sum([(share - mean) ** 2 for share in shares])
        if spread <= 1e-12:
            return _Line(self.total, self._mean, self._mean, math.inf, 0.0, 0)
        pairs = list(zip(shares, self._values, strict=True))
        both = sum([(share - mean) * (value - self._mean) for share, value in pairs])
        slope = both / spread
        low = self._mean - slope * mean
        partly = [value - low - slope * share for share, value in pairs if 0.0 < share < 1.0]
        return _Line(
            max(self.total - slope * both, 0.0),
            low,
            low + slope,
            1 / count + (1 - mean) ** 2 / spread,
            sum([off * off for off in partly]),
            len(partly),
        )

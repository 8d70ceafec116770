"""How a power meter responds: when it is refreshed, over which time it is a mean, and how late.

None of it is told by the driver. Either a meter is refreshed every so often, as the counter is, and
a reading is of the time before its last refresh; or it is live, and a reading is of the time before
the poll. Which it is, over which time it is a mean, and how late, is found by likelihood: whichever
explains best, time and again, what the counter tells of the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from zeus.monitor.edges import Piece
from zeus.monitor.looks import Look
from zeus.monitor.refreshes import RefreshModel

_ENOUGH = 200  # readings by which a response is judged; later ones are judged now and then
_ENOUGH_TO_TELL = 5
_NOW_AND_THEN = 8
_FORGET = 0.995
_SURE = 20.0  # log odds, from which it is decided whether a meter is live
_MAX_OFF = 25.0  # squared standard deviations: load may change without a window


class Candidate(NamedTuple):
    """A way in which a meter may respond.

    Attributes:
        window: Seconds over which a reading is a mean.
        lag: Seconds by which it is late.
        live: Whether it is of the time before the poll, rather than before the last refresh.
    """

    window: float
    lag: float
    live: bool

    @property
    def instant(self) -> bool:
        """Whether it tells the power of the very moment."""
        return self.live and self.window <= _INSTANT and not self.lag


class Reading(NamedTuple):
    """A reading that differs from the one before.

    Attributes:
        refreshed: Instant of the refresh.
        spread: Standard deviation of that.
        polled: Instant of the poll.
        watts: Read.
    """

    refreshed: float
    spread: float
    polled: float
    watts: float


_INSTANT = 1e-5  # seconds
_LOAD_SETS_IN = 2e-4  # seconds after a window's edge
_GAIN_SPREAD = 0.03  # standard deviation of gains, before anything is known
_GAIN_KNOWN = 400.0  # that one reading tells at most, as one over the variance
_LAGS = (0.0, 0.01, 0.02, 0.035, 0.05)  # seconds
_CANDIDATES = [
    *(Candidate(w, lag, False) for w in (0.01, 0.02, 0.025, 0.05, 0.1) for lag in _LAGS),
    Candidate(1.0, 0.0, False),
    Candidate(_INSTANT, 0.0, False),
    *(Candidate(w, lag, True) for w in (_INSTANT, 0.02, 0.03, 0.05) for lag in (0.0, 0.01, 0.02)),
]  # fmt: skip
_FIRST = Candidate(0.025, 0.0, False)


class Response:
    """What is known of a power meter.

    Attributes:
        gain: Its readings over what the counter says.
        best: How it responds, as far as is known.
    """

    def __init__(self) -> None:
        self.gain = 1.0
        self.best = _FIRST
        self._refreshes = RefreshModel()
        self._scores = [0.0] * len(_CANDIDATES)
        self._margin = 0.0
        self._judged = 0
        self._gain_sum = self._gain_known = 0.0
        self._readings = 0

    def reading(self, last: Look, look: Look) -> Reading | None:
        """The reading that a sample shows, if it is a new one."""
        assert look.watts is not None
        if look.watts == last.watts:
            self._refreshes.unchanged()
            return None
        low, high = self._refreshes.observe(last.between, look.ended)
        spread = (high - low) / math.sqrt(12)
        return Reading((low + high) / 2, spread, (look.between + look.ended) / 2, look.watts)

    def span(self, reading: Reading) -> tuple[float, float]:
        """The time that a reading is the mean of."""
        return _span(reading, self.best)

    def candidate_spans(self, reading: Reading) -> list[tuple[float, float]]:
        """The same for all responses that there may be."""
        return [_span(reading, candidate) for candidate in _CANDIDATES]

    def undecided(self, around: Sequence[Piece]) -> bool:
        """Whether a reading should be judged: only where load changes, it tells responses apart."""
        self._readings += 1
        if len(around) < 2:
            return False
        return self._judged < _ENOUGH or self._readings % _NOW_AND_THEN == 0

    def judge(
        self,
        reading: Reading,
        expected: Sequence[tuple[float, float]],
        step: float,
        edges: Sequence[float],
    ) -> None:
        """Weigh responses by what each expected.

        Args:
            reading: What was read.
            expected: Mean and variance of the reading in watts, for each candidate.
            step: Watts by which load changes around.
            edges: Instants at which it does.
        """
        self._judged += 1
        watts = reading.watts / self.gain
        for at, (mean, variance) in enumerate(expected):
            candidate = _CANDIDATES[at]
            doubt = variance + (0.005 * mean) ** 2
            off_by = _LOAD_SETS_IN if candidate.live else reading.spread + _LOAD_SETS_IN
            ends = _span(reading, candidate)
            if any(abs(edge - end) < 2 * off_by for edge in edges for end in ends):
                doubt += (min(off_by / candidate.window, 0.5) * step) ** 2
            off = min((watts - mean) ** 2 / doubt, _MAX_OFF)
            self._scores[at] = _FORGET * self._scores[at] - (math.log(doubt) + off) / 2
        if self._judged < _ENOUGH_TO_TELL:
            return
        at = max(range(len(_CANDIDATES)), key=self._scores.__getitem__)
        self.best = _CANDIDATES[at]
        other = max(
            score
            for score, candidate in zip(self._scores, _CANDIDATES, strict=True)
            if candidate.live != self.best.live
        )
        self._margin = self._scores[at] - other

    @property
    def latched(self) -> bool:
        """Whether the meter is surely not live: between refreshes it tells nothing."""
        return self._margin > _SURE and not self.best.instant

    @property
    def live(self) -> bool:
        """Whether the meter surely tells the power of the very moment."""
        return self._margin > _SURE and self.best.instant

    def learn_gain(self, watts: float, mean: float, variance: float) -> None:
        """Learn from a reading of a time in which load did not change, and what was expected."""
        if self._judged < _ENOUGH_TO_TELL or mean <= 0:
            return
        known = min(mean**2 / (variance + (0.02 * mean) ** 2), _GAIN_KNOWN)
        self._gain_known = 0.999 * self._gain_known + known
        self._gain_sum = 0.999 * self._gain_sum + known * min(max(watts / mean, 0.8), 1.25)
        prior = 1 / _GAIN_SPREAD**2
        self.gain = (self._gain_sum + prior) / (self._gain_known + prior)


def _span(reading: Reading, candidate: Candidate) -> tuple[float, float]:
    end = (reading.polled if candidate.live else reading.refreshed) - candidate.lag
    return end - candidate.window, end

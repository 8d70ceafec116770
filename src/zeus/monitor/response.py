"""How a power meter responds: over which time a reading is a mean, and how late it is.

None of it is told by the driver. Either a meter is refreshed every so often, as the counter is, and
a reading is of the time before its last refresh; or it is live, and a reading is of the time before
the poll. Which it is, over which time it is a mean, and how late, is found by likelihood: whichever
explains best, time and again, what the counter tells of the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from zeus.monitor.samples import Refresh

_ENOUGH_TO_TELL = 5  # readings, by which a response is judged for the first time
_ENOUGH = 60  # and after which later ones are judged now and then, once one is sure
_NOW_AND_THEN = 5
_PAUSE, _LONG_PAUSE = 0.12, 2.0  # seconds between judging readings, until one is sure and later
_ENOUGH_TO_RULE_OUT = 40  # readings
_RULED_OUT = 25.0  # log odds
_FORGET, _FORGET_SOON = 0.99, 0.95
_SURE = 5.0  # log odds, from which it is decided how a meter responds
_MAX_OFF = 25.0  # squared standard deviations: load may change without a window
_MAX_SCORE = 200.0  # by which one may be ahead: beyond, it could not be given up again
_INSTANT = 1e-5  # seconds
_LOAD_SETS_IN = 2e-4  # seconds after a window's edge
_GAIN_SPREAD = 0.03  # standard deviation of gains, before anything is known
_GAIN_DOUBT = 0.006  # by which a gain may seem to differ from 1, for want of knowing when
_GAIN_LEVEL = 0.05  # of a level: how well that must be known to learn a gain from it
_GAIN_MEMORY = 100.0  # readings


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

    def span(self, reading: Refresh) -> tuple[float, float]:
        """The time that a reading is the mean of."""
        end = (reading.polled if self.live else (reading.low + reading.high) / 2) - self.lag
        return end - self.window, end


_LAGS = (0.0, 0.01, 0.02, 0.035, 0.05)  # seconds
_CANDIDATES = [
    *(Candidate(w, lag, False) for w in (0.01, 0.02, 0.025, 0.05, 0.1) for lag in _LAGS),
    Candidate(1.0, 0.0, False),
    Candidate(_INSTANT, 0.0, False),
    *(Candidate(w, lag, True) for w in (_INSTANT, 0.02, 0.03, 0.05) for lag in (0.0, 0.01, 0.02)),
]  # fmt: skip
_FIRST = Candidate(0.025, 0.0, False)
LONGEST_SPAN = 0.15
"""Seconds before a poll that any response but the mean over a second depends on."""


class Response:
    """What is known of a power meter.

    Args:
        kept: What `kept` gave in an earlier run on the same GPU.
        live: Whether the driver says that the meter is live, so that nothing is to be found out.

    Attributes:
        gain: Its readings over what the counter says.
        best: How it responds, as far as is known.
        sure: Whether that is decided.
    """

    def __init__(self, kept: dict[str, Any] | None = None, *, live: bool = False) -> None:
        self.gain = 1.0
        self.best = _FIRST
        self.sure = kept is not None or live
        self._told = live
        self._scores = [0.0] * len(_CANDIDATES)
        self._judged = 0
        self._judged_at = -math.inf
        self._gain_sum = self._gain_known = 0.0
        if live:
            self.best = Candidate(_INSTANT, 0.0, True)
        elif kept is not None:
            self.best = Candidate(*kept["best"])
            # Believed at once, and checked as if it were new: drivers change without a word.
            self._scores[_CANDIDATES.index(self.best)] = 2 * _SURE
            self._judged = _ENOUGH_TO_TELL

    def kept(self) -> dict[str, Any] | None:
        """What to keep for later runs on the same GPU; `None` as long as that is not sure."""
        return {"best": list(self.best)} if self.sure and not self._told else None

    def _margin(self) -> float:
        """By how much the best is ahead of those that take readings to be of another time."""
        best = self.best
        others = (
            score
            for score, each in zip(self._scores, _CANDIDATES, strict=True)
            if (each.window, each.lag) != (best.window, best.lag) or best.instant != each.instant
        )
        return self._scores[_CANDIDATES.index(best)] - max(others)

    def undecided(self, now: float) -> bool:
        """Whether the reading of an instant should be judged, which takes a while."""
        if self._told:
            return False
        pause = _PAUSE if self._judged < _ENOUGH or not self.sure else _LONG_PAUSE
        return now > self._judged_at + pause

    def candidates(self) -> list[Candidate]:
        """The responses that there may be; once many readings were judged, those not ruled out."""
        if self._judged < _ENOUGH_TO_RULE_OUT or self._judged % _NOW_AND_THEN == 0:
            return _CANDIDATES
        scores = zip(self._scores, _CANDIDATES, strict=True)
        return [candidate for score, candidate in scores if score > -_RULED_OUT]

    def judge(
        self,
        reading: Refresh,
        candidates: Sequence[Candidate],
        expected: Sequence[tuple[float, float]],
        step: float,
        edges: Sequence[float],
    ) -> None:
        """Weigh responses by what each expected.

        Args:
            reading: What was read.
            candidates: The responses to weigh.
            expected: Mean and variance of the reading in watts, for each of them.
            step: Watts by which load changes around.
            edges: Instants at which it does.
        """
        self._judged += 1
        self._judged_at = reading.polled
        watts = reading.value / self.gain
        spread = (reading.high - reading.low) / math.sqrt(12)
        likelihoods = {}
        for candidate, (mean, variance) in zip(candidates, expected, strict=True):
            doubt = variance + (0.005**2 + self.gain_spread**2) * mean**2
            off_by = _LOAD_SETS_IN if candidate.live else spread + _LOAD_SETS_IN
            ends = candidate.span(reading)
            if any(abs(edge - end) < 2 * off_by for edge in edges for end in ends):
                doubt += (min(off_by / candidate.window, 0.5) * step) ** 2
            off = min((watts - mean) ** 2 / doubt, _MAX_OFF)
            likelihoods[candidate] = -(math.log(doubt) + off) / 2
        # The first ones were judged by levels that were hardly known.
        keep = _FORGET_SOON if self._judged < _ENOUGH else _FORGET
        # What is ruled out is no likelier than the unlikeliest that is not.
        least = min(likelihoods.values())
        scores = [
            keep * score + likelihoods.get(candidate, least)
            for score, candidate in zip(self._scores, _CANDIDATES, strict=True)
        ]
        best = max(scores)
        self._scores = [max(score - best, -_MAX_SCORE) for score in scores]
        if self._judged >= _ENOUGH_TO_TELL:
            self.best = _CANDIDATES[scores.index(best)]
            self.sure = self._margin() > _SURE

    @property
    def gain_spread(self) -> float:
        """Standard deviation of the gain, as far as is known."""
        return 1 / math.sqrt(self._gain_known + 1 / _GAIN_SPREAD**2)

    def learn_gain(self, watts: float, level: float, variance: float) -> None:
        """Learn from a reading, and what the counter says of the same kind of time."""
        if level <= 0 or variance > (_GAIN_LEVEL * level) ** 2:
            return
        known = level**2 / (variance + (0.02 * level) ** 2)
        keep = 1 - 1 / _GAIN_MEMORY
        self._gain_known = keep * self._gain_known + known
        self._gain_sum = keep * self._gain_sum + known * min(max(watts / level, 0.8), 1.25)
        prior = 1 / _GAIN_SPREAD**2
        off = (self._gain_sum + prior) / (self._gain_known + prior) - 1
        self.gain = 1 + math.copysign(max(abs(off) - _GAIN_DOUBT, 0.0), off)

"""How a power meter responds: the averaging window of a reading, and its lag.

The driver reports neither. Either a meter is refreshed periodically, as the counter is, and a
reading covers the time before its last refresh; or it is live, and a reading covers the time before
the poll. Which it is, its averaging window and its lag are found by maximum likelihood: the best
explanation of the readings, given the counter's values for the same time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zeus.errors import CapabilityError
from zeus.monitor._samples import Refresh
from zeus.state._files import state_directory, write_atomically

if TYPE_CHECKING:
    from zeus.device import Gpu

_ENOUGH_TO_CHOOSE = 5  # readings after which a response is chosen for the first time
_ENOUGH = 60  # readings after which later ones are judged less often, once the response is certain
_NOW_AND_THEN = 5
_PAUSE, _LONG_PAUSE = 0.12, 2.0  # seconds between judged readings, before it is certain and after
_ENOUGH_TO_RULE_OUT = 40  # readings
_RULED_OUT = 25.0  # log odds
_FORGET, _FORGET_SOON = 0.99, 0.95
_SURE = 5.0  # log odds from which a response is certain
_MAX_OFF = 25.0  # squared standard deviations: load may change without a window
_MAX_SCORE = 200.0  # lead of a response at most: beyond, it could not be given up again
_INSTANT = 1e-5  # seconds
_LOAD_SETS_IN = 2e-4  # seconds after a window's edge
_GAIN_SPREAD = 0.03  # standard deviation of gains, before anything is known
_GAIN_DOUBT = 0.006  # by which a gain may seem to differ from 1, due to uncertain timing
_GAIN_LEVEL = 0.05  # of a level: how well that must be known to learn a gain from it
_GAIN_MEMORY = 100.0  # readings


class Candidate(NamedTuple):
    """A possible response of a meter."""

    window: float  # seconds over which a reading is averaged
    lag: float  # seconds by which it is late
    live: bool  # whether it covers the time before the poll, rather than before the last refresh

    @property
    def instant(self) -> bool:
        """Whether it shows instantaneous power."""
        return self.live and self.window <= _INSTANT and not self.lag

    def span(self, reading: Refresh) -> tuple[float, float]:
        """Return the begin and end of the time that a reading averages over."""
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
"""Seconds before a poll that any response, except the mean over a second, depends on."""


class Response:
    """The learned response and gain of a power meter.

    Args:
        kept: The result of `kept` in an earlier run on the same GPU.
        live: Whether the driver reports that the meter is live, so that nothing must be learned.
    """

    def __init__(self, kept: dict[str, Any] | None = None, *, live: bool = False) -> None:
        self.gain = 1.0  # ratio of its readings to the counter's power
        self.best = _FIRST  # the most likely response so far
        self.sure = kept is not None or live  # whether it is certain
        self._reported_live = live
        self._scores = [0.0] * len(_CANDIDATES)
        self._judged = 0
        self._judged_at = -math.inf
        self._gain_sum = self._gain_known = 0.0
        if live:
            self.best = Candidate(_INSTANT, 0.0, True)
        elif kept is not None:
            self.best = Candidate(*kept["best"])
            # Used at once, and checked as if it were new: drivers change without notice.
            self._scores[_CANDIDATES.index(self.best)] = 2 * _SURE
            self._judged = _ENOUGH_TO_CHOOSE

    def kept(self) -> dict[str, Any] | None:
        """Return the record for later runs on the same GPU; `None` while it is not certain."""
        return {"best": list(self.best)} if self.sure and not self._reported_live else None

    def _margin(self) -> float:
        """Return the lead of the best response over those with another time span."""
        best = self.best
        others = (
            score
            for score, each in zip(self._scores, _CANDIDATES, strict=True)
            if (each.window, each.lag) != (best.window, best.lag) or best.instant != each.instant
        )
        return self._scores[_CANDIDATES.index(best)] - max(others)

    def undecided(self, now: float) -> bool:
        """Return whether the reading of an instant should be judged, which is expensive."""
        if self._reported_live:
            return False
        pause = _PAUSE if self._judged < _ENOUGH or not self.sure else _LONG_PAUSE
        return now > self._judged_at + pause

    def candidates(self) -> list[Candidate]:
        """Return the possible responses; after many judged readings, those not ruled out."""
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
        """Score responses by how well each predicted a reading.

        Each expected its mean and variance (W); load changes by `step` watts at the edges.
        """
        self._judged += 1
        self._judged_at = reading.polled
        watts = reading.value / self.gain
        spread = (reading.high - reading.low) / math.sqrt(12)
        likelihoods = {}
        for candidate, (mean, variance) in zip(candidates, expected, strict=True):
            total = variance + (0.005**2 + self.gain_spread**2) * mean**2
            off_by = _LOAD_SETS_IN if candidate.live else spread + _LOAD_SETS_IN
            ends = candidate.span(reading)
            if any(abs(edge - end) < 2 * off_by for edge in edges for end in ends):
                total += (min(off_by / candidate.window, 0.5) * step) ** 2
            off = min((watts - mean) ** 2 / total, _MAX_OFF)
            likelihoods[candidate] = -(math.log(total) + off) / 2
        # The first readings were judged by poorly known levels.
        keep = _FORGET_SOON if self._judged < _ENOUGH else _FORGET
        # Responses that are ruled out are no likelier than the least likely other one.
        least = min(likelihoods.values())
        scores = [
            keep * score + likelihoods.get(candidate, least)
            for score, candidate in zip(self._scores, _CANDIDATES, strict=True)
        ]
        best = max(scores)
        self._scores = [max(score - best, -_MAX_SCORE) for score in scores]
        if self._judged >= _ENOUGH_TO_CHOOSE:
            self.best = _CANDIDATES[scores.index(best)]
            self.sure = self._margin() > _SURE

    @property
    def gain_spread(self) -> float:
        """Standard deviation of the gain estimate."""
        return 1 / math.sqrt(self._gain_known + 1 / _GAIN_SPREAD**2)

    def learn_gain(self, watts: float, level: float, variance: float) -> None:
        """Learn the gain from a reading and the level that the counter shows for its segment."""
        if level <= 0 or variance > (_GAIN_LEVEL * level) ** 2:
            return
        known = level**2 / (variance + (0.02 * level) ** 2)
        keep = 1 - 1 / _GAIN_MEMORY
        self._gain_known = keep * self._gain_known + known
        self._gain_sum = keep * self._gain_sum + known * min(max(watts / level, 0.8), 1.25)
        prior = 1 / _GAIN_SPREAD**2
        off = (self._gain_sum + prior) / (self._gain_known + prior) - 1
        self.gain = 1 + math.copysign(max(abs(off) - _GAIN_DOUBT, 0.0), off)


# --- responses that are stored for later runs -------------------------------------------------


def _file(gpu: Gpu) -> Path:
    name = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in gpu.key)
    return state_directory() / "sensors" / f"{name}.json"


def load_response(gpu: Gpu) -> Response:
    """Return the stored response of a GPU's power meter; a new one if it cannot be used."""
    if gpu.meter_period == 0:
        return Response(live=True)
    with suppress(CapabilityError, OSError, ValueError, KeyError, TypeError):
        record = json.loads(_file(gpu).read_text(encoding="utf-8"))
        if record["driver"] == gpu.version():  # another driver may average differently
            return Response(record["response"])
    return Response()


def save_response(gpu: Gpu, kept: dict[str, Any]) -> None:
    """Store a response. Errors are ignored: it can be learned again."""
    if not gpu.driver.shared:
        return
    with suppress(CapabilityError, OSError):
        path = _file(gpu)
        path.parent.mkdir(exist_ok=True)
        record = {"gpu": gpu.name, "driver": gpu.version(), "response": kept}
        write_atomically(path, json.dumps(record))

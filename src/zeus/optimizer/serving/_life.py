"""What the requests whose latencies become known now went through, averaged over their lives."""

from __future__ import annotations

import math

from zeus.optimizer.serving._interval import ServingInterval

_LONGEST = 30.0  # seconds over which is averaged at most
_STALLED = 10.0  # slowdown as which an endless one counts


class Life:
    """Averages over the time for which requests have been processed.

    Args:
        brief: Whether it is about the begin of requests alone.
    """

    def __init__(self, *, brief: bool) -> None:
        self._brief = brief
        self._logs = [0.0, 0.0]  # over about a life, and over longer

    @property
    def scale(self) -> float:
        """How many times as long as at the highest setting their work took, or more."""
        return math.exp(min(self._logs))

    def add(self, interval: ServingInterval, scale: float, busy: float) -> None:
        """Record an interval in which work takes so many times as long, for so many seconds."""
        if self._brief:
            spans = [max(1.0, interval.oldest_wait or 0.0)] * 2
        else:
            life = interval.running / max(interval.finished / interval.seconds, 0.05)
            spans = [min(_LONGEST, max(1.0, life / 2)), _LONGEST]
        if busy <= 0:
            return
        log = math.log(scale if math.isfinite(scale) else _STALLED)
        for i, span in enumerate(spans):
            keep = math.exp(-busy / span)
            self._logs[i] = keep * self._logs[i] + (1 - keep) * log

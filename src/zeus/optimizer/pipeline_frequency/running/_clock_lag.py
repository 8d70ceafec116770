"""How long the GPU takes from a request for another clock until it runs at it.

An instruction in which the clock changes takes a time between those at either clock. How much of
each shows when the change came; over many of them, the lag that explains their times best is found.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._time_curves import TimeCurves

MAX_LAG = 0.03
"""Seconds after which a clock is surely in force."""
_STEP = 5e-4  # seconds between lags that are tried
_KEPT = 300  # instructions
_ENOUGH = 6.0  # instructions in which the clock changed by all its time; less is no evidence
_CLEAR = 0.03  # relative change of the time of an instruction from which it says something


class Changed(NamedTuple):
    """An instruction during which a clock may have changed.

    Attributes:
        kind: Its kind.
        seconds: How long it took.
        asked: Seconds from the request to its begin; negative if it came later.
        before: The clock before, in MHz.
        after: The requested one.
    """

    kind: InstructionKind
    seconds: float
    asked: float
    before: float
    after: float


class ClockLag:
    """Learns the lag of one GPU."""

    def __init__(self) -> None:
        self._seen: deque[Changed] = deque(maxlen=_KEPT)

    def add(self, changed: Changed) -> None:
        """Add an instruction around whose begin the clock was requested."""
        self._seen.append(changed)

    def forget(self, kind: InstructionKind) -> None:
        """Drop the instructions of a kind, which takes another time than it did then."""
        kept = [each for each in self._seen if each.kind != kind]
        self._seen.clear()
        self._seen.extend(kept)

    def estimate(self, times: TimeCurves) -> float | None:
        """Return the most likely lag, in seconds; `None` while there is too little evidence."""
        known: list[tuple[Changed, float, float]] = []
        evidence = 0.0
        for each in self._seen:
            before, after = times.time(each.kind, each.before), times.time(each.kind, each.after)
            if before is None or after is None or abs(after / before - 1) < _CLEAR:
                continue
            known.append((each, before, after))
            evidence += min(abs(after / before - 1) / 0.2, 1.0)
        if evidence < _ENOUGH:
            return None
        lags = [number * _STEP for number in range(round(MAX_LAG / _STEP) + 1)]
        return min(lags, key=lambda lag: math.fsum(_misfit(each, lag) for each in known))


def _misfit(known: tuple[Changed, float, float], lag: float) -> float:
    changed, before, after = known
    until = lag - changed.asked  # seconds after its begin at which the clock changed
    if until <= 0:
        expected = after
    elif until >= before:
        expected = before
    else:
        expected = until + (1 - until / before) * after
    # An outlier counts as one that is 20 % off.
    return min((changed.seconds / expected - 1) ** 2, 0.04)

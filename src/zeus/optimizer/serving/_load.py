"""The load of a service: smoothed rates and busy shares, as they are at the highest setting."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.optimizer.serving._interval import ServingInterval

_FAST, _SLOW = 4.0, 25.0  # seconds over which rates are smoothed
_QUEUE = 10.0  # seconds over which waiting requests count as arriving
_GENERATED = 4.0  # prompt tokens that a generated one counts as, in a level of load


@dataclass(frozen=True)
class Demand:
    """The work per second that arrives.

    Attributes:
        tokens: Prompt tokens plus four times the generated ones, per second.
        arrivals: Requests per second.
        generated: Generated tokens per second.
        prefill: Share of time for which prompts would be processed at the highest setting.
        idle: Share of time without work, likewise.
        prompt_seconds: Seconds that the prompt of a request takes, likewise.
        running: Requests that are processed at the same time.
        arriving: Seconds of prompts that arrive per second, likewise; more than 1 is overload.
        backlog: Seconds of prompts that wait, likewise.
        per_token: Seconds between two tokens of a request, at the setting in force.
    """

    tokens: float
    arrivals: float
    generated: float
    prefill: float
    idle: float
    prompt_seconds: float
    running: float
    arriving: float = 0.0
    backlog: float = 0.0
    per_token: float = 0.0


class LoadTracker:
    """Follows a load: upward within seconds, downward slowly."""

    def __init__(self) -> None:
        self._means: dict[float, list[float]] = {}
        self._waiting = 0

    def add(self, interval: ServingInterval, prefill: float, idle: float) -> None:
        """Record an interval.

        Args:
            interval: The interval.
            prefill: Seconds for which its prompts would be processed at the highest setting.
            idle: Seconds without work, likewise.
        """
        seconds = interval.seconds
        self._waiting = interval.waiting
        values = [
            interval.prompt_tokens,
            interval.generated_tokens,
            float(interval.arrived),
            prefill,
            idle,
            interval.running * seconds,
            # A request whose prompt is processed does not wait for a token of its answer.
            max(0.0, interval.running * seconds - interval.busy.get("prefill", 0.0)),
        ]
        for span in (_FAST, _SLOW):
            old = self._means.get(span)
            if old is None:
                self._means[span] = [value / seconds for value in values]
                continue
            keep = math.exp(-seconds / span)
            for i, value in enumerate(values):
                old[i] = keep * old[i] + (1 - keep) * value / seconds

    def demand(self) -> Demand | None:
        """Return the load now; `None` before the first interval."""
        if not self._means:
            return None
        fast, slow = self._means[_FAST], self._means[_SLOW]
        rates = [max(a, b) for a, b in zip(fast, slow, strict=True)]
        # Arrivals and those that wait show a burst before its prompts are processed.
        prompt = slow[0] / slow[2] if slow[2] > 0 else 0.0
        arriving = prompt * (fast[2] + self._waiting / _QUEUE)
        prompt_seconds = slow[3] / slow[2] if slow[2] > 0 else 0.0
        return Demand(
            tokens=max(
                max(fast[0], arriving) + _GENERATED * fast[1], slow[0] + _GENERATED * slow[1]
            ),
            arrivals=rates[2],
            generated=slow[1],
            prefill=min(0.95, max(slow[3], (slow[3] + fast[3]) / 2)),
            idle=min(1.0, slow[4]),
            prompt_seconds=prompt_seconds,
            running=rates[5],
            arriving=fast[2] * prompt_seconds,
            backlog=self._waiting * prompt_seconds,
            per_token=fast[6] / fast[1] if fast[1] > 0 else 0.0,
        )

"""Bounds on the latencies of a service, and how many requests may exceed them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from zeus.errors import FrontierError
from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving._interval import E2E, ITL, TPOT, TTFT

# Requests per minute of a service with several servers, of which this may be one.
_PER_MINUTE = 300.0

LATENCIES = (TTFT, TPOT, ITL, E2E)
_NAME = re.compile(r"(\w+) p(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Bound:
    """A bound on a percentile of a latency.

    Attributes:
        latency: Name of the latency: "ttft", "tpot", "itl" or "e2e".
        percent: Percentage of requests that must keep it, more than 0 and less than 100.
        seconds: The longest that they may take.
    """

    latency: str
    percent: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name} {self.seconds:g} s"

    @property
    def name(self) -> str:
        """Its name in the latencies of a `Point`: "ttft p99"."""
        return f"{self.latency} p{self.percent:g}"

    @property
    def budget(self) -> float:
        """Share of requests that may exceed it, 0 to 1."""
        return 1 - self.percent / 100

    @property
    def of_prefill(self) -> bool:
        """Whether it is about the first token, so that waiting requests threaten it."""
        return self.latency in (TTFT, E2E)

    def share_wanted(self, requests: float) -> float:
        """Return the share to aim at, so that a minute with so many requests mostly keeps it too.

        Few requests vary more: the share plus one and a half standard deviations is the budget.
        """
        spread = 1.5 / math.sqrt(max(requests, _PER_MINUTE))
        root = (-spread + math.sqrt(spread * spread + 4 * self.budget)) / 2
        return min(0.9 * self.budget, max(0.15 * self.budget, root * root))


def bounds_of(objective: All | LatencyBound | Iterable[LatencyBound]) -> tuple[Bound, ...]:
    """Return the bounds of an objective of latencies such as `LatencyBound("ttft p99", 1.5)`.

    Raises:
        FrontierError: If a percentile has another form, or a latency is not known.
    """
    if isinstance(objective, LatencyBound):
        objective = All(objective)
    elif not isinstance(objective, All):
        objective = All(*objective)
    return tuple(_bound(each) for each in objective.bounds)


def _bound(bound: LatencyBound) -> Bound:
    found = _NAME.fullmatch(bound.percentile)
    if found is None or found[1] not in LATENCIES or not 0 < float(found[2]) < 100:
        raise FrontierError(
            f"a bound of a service must name one of {', '.join(LATENCIES)} and a percentile, "
            f"such as 'ttft p99', but got {bound.percentile!r}"
        )
    return Bound(found[1], float(found[2]), bound.seconds)


def read_bound(text: str) -> LatencyBound:
    """Return the bound of a text such as "ttft:p99:1.5".

    Raises:
        FrontierError: If the text has another form.
    """
    latency, _, rest = text.partition(":")
    percentile, _, seconds = rest.partition(":")
    try:
        limit = float(seconds)
    except ValueError:
        raise FrontierError(f"must be such as ttft:p99:1.5, but got {text!r}") from None
    bound = LatencyBound(f"{latency.strip().lower()} {percentile.strip().lower()}", limit)
    _bound(bound)
    return bound

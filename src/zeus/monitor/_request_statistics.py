"""Sums over requests: of all time, and of the last minute, in memory that does not grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from zeus._latencies import Latencies

#: Names of latencies; see `RequestStatistics.latencies`.
TTFT, TPOT, ITL, E2E = "ttft", "tpot", "itl", "e2e"
_PERCENTILES = (50, 90, 99)
_KEPT = 61  # seconds of which each has sums of its own


@dataclass
class RequestStatistics:
    """Sums over requests.

    Attributes:
        seconds: Time they are of.
        begun: Requests that began.
        finished: Requests that were answered completely.
        failed: Requests that ended in an error.
        canceled: Requests that were given up by their client.
        prompt_tokens: Tokens of prompts, of the requests that ended.
        generated_tokens: Generated tokens, likewise.
        joules: Energy of requests.
        prompt_joules: The part due to prompts.
        generated_joules: The part due to generated tokens.
        idle_joules: Energy while there was no request.
        latencies: Distributions: "ttft", to the first token; "tpot", per generated token after the
            first, as a mean of each request; "itl", between two tokens; "e2e", of whole requests.
        request_joules: Distribution of the energy of single requests, in joules.
    """

    seconds: float = 0.0
    begun: int = 0
    finished: int = 0
    failed: int = 0
    canceled: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    joules: float = 0.0
    prompt_joules: float = 0.0
    generated_joules: float = 0.0
    idle_joules: float = 0.0
    latencies: Mapping[str, Latencies] = field(
        default_factory=lambda: {name: Latencies() for name in (TTFT, TPOT, ITL, E2E)}
    )
    request_joules: Latencies = field(default_factory=Latencies)

    @property
    def joules_per_prompt_token(self) -> float | None:
        """Joules of prompts per prompt token; `None` if there was none."""
        return self.prompt_joules / self.prompt_tokens if self.prompt_tokens else None

    @property
    def joules_per_generated_token(self) -> float | None:
        """Joules of generated tokens per such token; `None` if there was none."""
        return self.generated_joules / self.generated_tokens if self.generated_tokens else None

    def __add__(self, other: RequestStatistics) -> RequestStatistics:
        both = RequestStatistics()
        both += self
        both += other
        return both

    def __iadd__(self, other: RequestStatistics) -> Self:
        for each in fields(self):
            one, two = getattr(self, each.name), getattr(other, each.name)
            if each.name == "latencies":
                for name in one:
                    one[name] += two[name]
            else:
                setattr(self, each.name, one + two)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the sums, ratios and percentiles, for JSON."""
        whole: dict[str, Any] = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("latencies", "request_joules")
        }
        whole["joules_per_prompt_token"] = self.joules_per_prompt_token
        whole["joules_per_generated_token"] = self.joules_per_generated_token
        whole["latencies"] = {
            name: _percentiles(latencies) for name, latencies in self.latencies.items()
        }
        whole["joules_per_request"] = _percentiles(self.request_joules)
        return whole


def _percentiles(distribution: Latencies) -> dict[str, float | None]:
    return {f"p{percent}": distribution.percentile(percent) for percent in _PERCENTILES}


class RollingStatistics:
    """Sums of each of the last seconds, and of all time before. Not thread-safe."""

    def __init__(self) -> None:
        self._before = RequestStatistics()
        self._seconds: deque[tuple[int, RequestStatistics]] = deque()

    def at(self, now: float) -> RequestStatistics:
        """Return the sums to add to, of the second of an instant or, if it is old, of the first."""
        second = int(now // 1)
        kept = self._seconds
        if kept and kept[-1][0] == second:
            return kept[-1][1]
        if not kept or second > kept[-1][0]:
            kept.append((second, RequestStatistics()))
            if len(kept) > _KEPT:
                self._before += kept.popleft()[1]
            return kept[-1][1]
        return next((sums for number, sums in reversed(kept) if number <= second), kept[0][1])

    def total(self) -> RequestStatistics:
        """Return the sums of all time."""
        return self._sum(-1)

    def last(self, seconds: float, now: float) -> RequestStatistics:
        """Return the sums of the last seconds, at most 60."""
        found = self._sum(now - seconds)
        found.seconds = seconds
        return found

    def _sum(self, since: float) -> RequestStatistics:
        parts = [sums for number, sums in self._seconds if number + 1 > since]
        if since < 0:
            parts.append(self._before)
        found = RequestStatistics()
        for part in parts:
            found += part
        return found

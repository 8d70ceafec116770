"""Counts what happens to requests, and adds up their energies: of each model, and of all.

Models are named by clients, so only so many get sums of their own; the others share one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from zeus.monitor._request_statistics import (
    E2E,
    ITL,
    TPOT,
    TTFT,
    RequestStatistics,
    RollingStatistics,
)
from zeus.monitor._request_steps import BEGIN

OTHER = "other"
MAX_MODELS = 16  # with sums of their own
_MAX_NAME = 200  # characters
_GAPS_PER_SECOND = 1e5  # times between tokens are counted to 10 µs


class ModelSums(RollingStatistics):
    """Sums over the requests to a model.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        #: Tokens, and times from one to the next ones, that `pass_on` adds to the sums.
        self.tokens = 0
        self.gaps: defaultdict[int, int] = defaultdict(int)

    def pass_on(self, now: float) -> None:
        """Add to the sums what was counted since the last time."""
        if self.tokens:
            sums = self.at(now)
            sums.generated_tokens += self.tokens
            latencies = sums.latencies[ITL]
            for gap, count in self.gaps.items():
                latencies.add((gap + 0.5) / _GAPS_PER_SECOND, count)
            self.tokens = 0
            self.gaps.clear()


class Counted(Protocol):
    """A request, as far as counting is concerned. See `zeus.monitor._requests.Request`."""

    sums: ModelSums
    began: float
    outcome: str
    prompt_tokens: int
    generated_tokens: int
    seen_tokens: int

    @property
    def tpot(self) -> float | None:
        """Mean seconds per token after the first."""


class ModelRequests(NamedTuple):
    """Requests to a model.

    Attributes:
        total: Sums of all time.
        running: Requests in flight that have a token.
        waiting: Requests in flight without one.
    """

    total: RequestStatistics
    running: int
    waiting: int


class RequestCounts:
    """Sums over requests, by model. Not thread-safe, but for `of`."""

    def __init__(self) -> None:
        self.idle = RollingStatistics()
        #: Requests in flight, with when they got their last token; `None` before the first.
        self.open: dict[Counted, float | None] = {}
        self._other = ModelSums(OTHER)
        self._models: dict[str, ModelSums] = {OTHER: self._other}

    def of(self, name: str) -> ModelSums:
        """Return the sums of a model.

        Args:
            name: Its name. What is empty, very long or not printable, and more names than
                `MAX_MODELS`, count as `OTHER`.
        """
        found = self._models.get(name)
        if found is not None:
            return found
        allowed = 0 < len(name) <= _MAX_NAME and name.isprintable()
        if not allowed or len(self._models) > MAX_MODELS:
            return self._other
        return self._models.setdefault(name, ModelSums(name))

    @property
    def waiting(self) -> int:
        """Requests in flight without a token."""
        return sum(last is None for last in self.open.values())

    def by_model(self) -> dict[str, ModelRequests]:
        """Return the requests to each model; their sums have no idle energy."""
        present = Counter((request.sums.name, last is None) for request, last in self.open.items())
        return {
            name: ModelRequests(sums.total(), present[name, False], present[name, True])
            for name, sums in list(self._models.items())
        }

    def total(self) -> RequestStatistics:
        """Return the sums of all time, of all models."""
        return sum((each.total() for each in self._all()), RequestStatistics())

    def last(self, seconds: float, now: float) -> RequestStatistics:
        """Return the sums of the last seconds, at most 60, of all models."""
        found = sum((each.last(seconds, now) for each in self._all()), RequestStatistics())
        found.seconds = seconds
        return found

    def _all(self) -> Sequence[RollingStatistics]:
        return [self.idle, *self._models.values()]

    def count(self, events: Iterable[tuple[float, Counted, int]]) -> None:
        """Count events, in the order of time; see `zeus.monitor._request_steps.Event`.

        Args:
            events: Events that were not counted before.
        """
        present, now = self.open, 0.0
        for now, request, tokens in events:
            if tokens > 0:
                if request not in present:  # it has ended
                    continue
                own, before = request.sums, present[request]
                present[request] = now
                own.tokens += tokens
                if before is None:
                    own.at(now).latencies[TTFT].add(now - request.began)
                else:
                    own.gaps[int((now - before) / tokens * _GAPS_PER_SECOND)] += tokens
            elif tokens == BEGIN:
                present[request] = None
                request.sums.at(now).begun += 1
            else:
                present.pop(request, None)
                _count_end(request, request.sums.at(now), now)
        for each in list(self._models.values()):
            each.pass_on(now)


def _count_end(request: Counted, sums: RequestStatistics, now: float) -> None:
    setattr(sums, request.outcome, getattr(sums, request.outcome) + 1)
    sums.prompt_tokens += request.prompt_tokens
    # Those that were not seen one by one, or were counted wrongly; seen ones are in the sums.
    sums.generated_tokens += request.generated_tokens - request.seen_tokens
    if request.outcome == "finished":
        sums.latencies[E2E].add(now - request.began)
        if request.tpot is not None:
            sums.latencies[TPOT].add(request.tpot)

"""Intervals of a server from the metrics that it publishes: differences of counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from zeus._latencies import Latencies
from zeus.errors import ZeusError
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._engines import ENGINES, Engine, engine_of
from zeus.optimizer.serving._interval import ServingInterval
from zeus.optimizer.serving._page import Histogram, Page


class UnobservableError(ZeusError, ValueError):
    """A server does not publish what is needed to check a bound."""


@dataclass(frozen=True)
class _Counts:
    """The counters of a server at an instant."""

    time: float
    counters: dict[str, float]
    histograms: dict[str, Histogram]
    running: float
    waiting: float
    queues: int


class MetricsObserver:
    """Makes intervals from pages of metrics.

    Args:
        page: A first page, by which the kind of server is recognized.
        bounds: The bounds that are to be checked.
        model: Name of the model; all of them together if `None`.

    Raises:
        UnobservableError: If it is no known server, or a bound cannot be checked.
    """

    def __init__(self, page: Page, bounds: Iterable[Bound], model: str | None = None) -> None:
        engine = engine_of(page.names())
        if engine is None:
            known = ", ".join(each.name for each in ENGINES)
            raise UnobservableError(f"the page must have metrics of {known}, but has none of these")
        self.engine: Engine = engine
        self.models = sorted(page.values(engine.model_label))
        if model is not None and self.models and model not in self.models:
            raise UnobservableError(
                f"the model must be one of {', '.join(self.models)}, but got {model!r}"
            )
        self._own = {engine.model_label: model} if model is not None and self.models else {}
        self._latencies = sorted({bound.latency for bound in bounds})
        for latency in self._latencies:
            names = engine.histograms.get(latency, ())
            # A server without a request so far may not publish them yet; it names its others.
            if not any(f"{name}_bucket" in page for name in names):
                wanted = f" (no {' or '.join(names)})" if names else ""
                remark = f"; {engine.remark}" if engine.remark else ""
                raise UnobservableError(
                    f"the bound on {latency} cannot be checked: {engine.name} publishes no "
                    f"histogram of it{wanted}{remark}"
                )
        self._before: _Counts | None = None
        self._queue = _Queue()

    def interval(self, page: Page, now: float) -> ServingInterval | None:
        """Return the work since the page before.

        Args:
            page: The page.
            now: When it was read, in seconds of the clock.

        Returns:
            `None` for the first page, and after a restart of the server, whose counters begin at 0.
        """
        counts, before = self._read(page, now), self._before
        self._before = counts
        if before is None or now <= before.time or _restarted(before, counts):
            self._queue = _Queue()
            return None
        difference = {
            name: value - before.counters.get(name, 0.0) for name, value in counts.counters.items()
        }
        finished = difference.get("finished", 0.0)
        present = counts.running + counts.waiting - before.running - before.waiting
        arrived, waiting = max(0, round(finished + present)), round(counts.waiting)
        self._queue.add(before.time, arrived, waiting)
        return ServingInterval(
            begin=before.time,
            end=now,
            arrived=arrived,
            finished=round(finished),
            prompt_tokens=difference.get("prompt", 0.0),
            generated_tokens=difference.get("generated", 0.0),
            running=(counts.running + before.running) / 2,
            waiting=waiting,
            oldest_wait=self._queue.wait(now) if counts.queues == 1 else None,
            latencies={
                name: _distribution(before.histograms.get(name), histogram)
                for name, histogram in counts.histograms.items()
            },
        )

    def forget(self) -> None:
        """Begin again with the next page, because the server was out of reach."""
        self._before = None

    def _read(self, page: Page, now: float) -> _Counts:
        engine, own = self.engine, self._own
        counters = {
            "prompt": page.total(engine.prompt_tokens, own),
            "generated": page.total(engine.generated_tokens, own),
            "finished": page.total(engine.finished, own),
        }
        histograms = {}
        for latency in self._latencies:
            found = page.histogram(engine.histograms.get(latency, ()), own)
            if found is not None:
                histograms[latency] = found
        return _Counts(
            now,
            {name: value for name, value in counters.items() if value is not None},
            histograms,
            page.total(engine.running, own) or 0.0,
            page.total(engine.waiting, own) or 0.0,
            page.number(engine.waiting, own),
        )


def _restarted(before: _Counts, now: _Counts) -> bool:
    fewer = any(value < before.counters.get(name, 0.0) for name, value in now.counters.items())
    missing = before.counters.keys() - now.counters.keys()
    fewer_timed = any(
        sum(histogram.counts.values()) < sum(before.histograms[name].counts.values())
        for name, histogram in now.histograms.items()
        if name in before.histograms
    )
    return fewer or bool(missing) or fewer_timed


class _Queue:
    """Since when requests wait that are answered in the order in which they arrive."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self._waiting = 0

    def add(self, begin: float, arrived: int, waiting: int) -> None:
        """Record how many requests arrived since an instant, and how many wait now."""
        if arrived or not self._arrivals:
            self._arrivals.append((begin, arrived))
        known = sum(number for _, number in self._arrivals)
        while len(self._arrivals) > 1 and known - self._arrivals[0][1] >= waiting:
            known -= self._arrivals.popleft()[1]
        self._waiting = waiting

    def wait(self, now: float) -> float:
        """Return the seconds for which the oldest request has waited, at most; 0 if none waits."""
        return now - self._arrivals[0][0] if self._waiting else 0.0


def _distribution(before: Histogram | None, now: Histogram) -> Latencies:
    """Return the distribution of what was added to a histogram."""
    before = before or Histogram({}, 0.0)
    bounds, counts, below = [], [], 0.0
    for bound, cumulative in now.counts.items():
        added = cumulative - before.counts.get(bound, 0.0)
        bounds.append(bound)
        # A histogram that is read while it changes may decrease from a bucket to the next.
        counts.append(max(0.0, added - below))
        below = max(below, added)
    together = None if now.sum is None or before.sum is None else now.sum - before.sum
    return Latencies.from_buckets(bounds, counts, together)

"""Intervals of a server from the metrics that it publishes: differences of counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zeus._latencies import Latencies
from zeus.errors import ZeusError
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._engines import ENGINES, Engine, engine_of
from zeus.optimizer.serving._interval import ServingInterval
from zeus.optimizer.serving._page import Page


class UnobservableError(ZeusError, ValueError):
    """A server does not publish what is needed to check a bound."""


@dataclass(frozen=True)
class _Counts:
    """The counters of a server at an instant."""

    time: float
    counters: dict[str, float]
    histograms: dict[str, dict[float, float]]
    running: float
    waiting: float


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
            return None
        difference = {
            name: value - before.counters.get(name, 0.0) for name, value in counts.counters.items()
        }
        finished = difference.get("finished", 0.0)
        present = counts.running + counts.waiting - before.running - before.waiting
        return ServingInterval(
            begin=before.time,
            end=now,
            arrived=max(0, round(finished + present)),
            finished=round(finished),
            prompt_tokens=difference.get("prompt", 0.0),
            generated_tokens=difference.get("generated", 0.0),
            running=(counts.running + before.running) / 2,
            waiting=round(counts.waiting),
            latencies={
                name: _distribution(before.histograms.get(name, {}), histogram)
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
        )


def _restarted(before: _Counts, now: _Counts) -> bool:
    fewer = any(value < before.counters.get(name, 0.0) for name, value in now.counters.items())
    missing = before.counters.keys() - now.counters.keys()
    fewer_timed = any(
        sum(histogram.values()) < sum(before.histograms.get(name, {}).values())
        for name, histogram in now.histograms.items()
    )
    return fewer or bool(missing) or fewer_timed


def _distribution(before: dict[float, float], now: dict[float, float]) -> Latencies:
    """Return the distribution of what was added to a cumulative histogram."""
    bounds, counts, below = [], [], 0.0
    for bound, cumulative in now.items():
        added = cumulative - before.get(bound, 0.0)
        bounds.append(bound)
        # A histogram that is read while it changes may decrease from a bucket to the next.
        counts.append(max(0.0, added - below))
        below = max(below, added)
    return Latencies.from_buckets(bounds, counts)

"""A simulated server of which only a page of metrics is known, as of an unmodified vLLM."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from zeus._latencies import Latencies
from zeus.frontier import LatencyBound
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._interval import ServingInterval
from zeus.optimizer.serving._observer import MetricsObserver
from zeus.optimizer.serving._page import Page
from zeus.testing._serving_simulation import Controller

# Names and buckets of vLLM's metrics.
_COUNTERS = {
    "finished": "vllm:request_success_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
}
_HISTOGRAMS = {
    "ttft": (
        "vllm:time_to_first_token_seconds",
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
         40, 80, 160, 640, 2560),
    ),
    "tpot": (
        "vllm:request_time_per_output_token_seconds",
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
         80),
    ),
}  # fmt: skip


def by_metrics(controller: Controller, bounds: Iterable[LatencyBound]) -> Controller:
    """Return a controller that is sent what vLLM's metrics show of each interval, and its energy.

    Args:
        controller: The controller.
        bounds: Its bounds, on TTFT and TPOT.
    """
    page = _VllmPage()
    observer = MetricsObserver(Page(page.text()), bounds_of(bounds))
    decision = next(controller)
    begun = False
    while True:
        interval = yield decision
        if not begun:
            observer.interval(Page(page.text()), interval.begin)
            begun = True
        page.add(interval)
        seen = observer.interval(Page(page.text()), interval.end)
        if seen is not None:
            decision = controller.send(replace(seen, energy=interval.energy))


class _VllmPage:
    """The metrics that vLLM would publish of a simulated server."""

    def __init__(self) -> None:
        self._totals = dict.fromkeys(_COUNTERS, 0.0)
        self._arrived = 0
        self._waiting = 0
        self._latencies = {name: Latencies() for name in _HISTOGRAMS}

    def add(self, interval: ServingInterval) -> None:
        self._arrived += interval.arrived
        self._waiting = interval.waiting
        for name in self._totals:
            self._totals[name] += getattr(interval, name)
        for name in self._latencies:
            self._latencies[name] += interval.latencies.get(name, Latencies())

    def text(self) -> str:
        running = self._arrived - self._totals["finished"] - self._waiting
        lines = [f"{_COUNTERS[name]} {value!r}" for name, value in self._totals.items()]
        lines.append(f"vllm:num_requests_running {running!r}")
        lines.append(f"vllm:num_requests_waiting {self._waiting!r}")
        for name, (metric, edges) in _HISTOGRAMS.items():
            own = self._latencies[name]
            counts = [*own.cumulative(edges), own.total]
            for edge, count in zip([*edges, math.inf], counts, strict=True):
                lines.append(f'{metric}_bucket{{le="{edge}"}} {count!r}')
            lines.append(f"{metric}_sum {own.sum!r}")
        return "\n".join(lines)

"""A service under its controller in worlds that no constant was chosen for.

Other traffic, models and GPUs beside the oracle; a burst of five times the load; any load and any
bound; and a server that shows nothing but histograms with a few wide buckets. For `serving.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from zeus._latencies import Latencies
from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving import ServingInterval, control
from zeus.optimizer.serving._bounds import bounds_of
from zeus.optimizer.serving._observer import MetricsObserver
from zeus.optimizer.serving._page import Page
from zeus.replay.serving import Bounds, Runs
from zeus.testing import ServingResult, ServingWorkload, Traffic

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
SEEDS = (1, 2, 3)


def worlds() -> dict[str, tuple[ServingWorkload, Traffic]]:
    """Traffic and servers by name."""
    v100 = ServingWorkload.mistral_7b_v100()
    return {
        "Poisson, V100": (v100, Traffic.poisson(1.6, 2400, seed=11)),
        "bursts, V100": (v100, Traffic.bursts(0.8, 2.4, 2400, every=240, length=40, seed=12)),
        "Poisson, A100": (ServingWorkload.on("a100"), Traffic.poisson(4, 1500, seed=14)),
        "bursts, 70B on 4 H100": (
            ServingWorkload.on("h100", parameters=70e9, gpus=4),
            Traffic.bursts(1.5, 4.5, 1800, every=300, length=45, seed=15),
        ),
        "short prompts, long answers, A100": (
            ServingWorkload.on("a100"),
            Traffic.poisson(2, 1800, prompt=150, generated=500, seed=19),
        ),
        "overload in bursts, V100": (
            v100,
            Traffic.bursts(
                0.6, 4, 2400, every=400, length=60, prompt=2000, generated=30, seed=13
            ),
        ),
    }  # fmt: skip


def metrics_only(controller: Any, bounds: All) -> Any:
    """The same controller beside a server of which only vLLM's page of metrics is known."""
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


def controlled(
    runs: Runs,
    bounds: Bounds,
    *,
    phases: bool = True,
    by_metrics: bool = False,
) -> dict[str, float]:
    """What the controller saves, and how near it comes to each bound."""
    result = _run(runs, bounds, phases=phases, by_metrics=by_metrics)
    return {
        "saved": 1 - result.energy / runs.default.energy,
        "ttft of its bound": (result.percentile("ttft", 99) or 0.0) / bounds.ttft,
        "tpot of its bound": (result.percentile("tpot", 99) or 0.0) / bounds.tpot,
    }


def _run(
    runs: Runs,
    bounds: Bounds,
    *,
    phases: bool = True,
    by_metrics: bool = False,
) -> ServingResult:
    wanted = All(LatencyBound("ttft p99", bounds.ttft), LatencyBound("tpot p99", bounds.tpot))

    def controller(_: int) -> Any:
        made = control(runs.rungs(), wanted, phases=phases)
        return metrics_only(made, wanted) if by_metrics else made

    return runs.controlled(controller, 1.0)


def any_load() -> Iterator[tuple[str, float]]:
    """The share of energy that is saved with hardly any load to far too much, by any bounds."""
    workload = ServingWorkload.mistral_7b_v100()
    for rate in (0.02, 0.15, 0.5, 1.0, 2.5):
        runs = Runs(workload, Traffic.poisson(rate, 600, seed=3), 1)
        cases = {f"{factor:g}x": runs.bounds(factor) for factor in (1.0, 1.1, 2.0)}
        cases |= {"out of reach": Bounds(1e-3, 1e-4), "without effect": Bounds(60, 9)}
        for name, bounds in cases.items():
            yield f"{rate:g}/s, {name}", controlled(runs, bounds)["saved"]


def bursts(factors: Sequence[float]) -> Iterator[tuple[str, float]]:
    """By how many seconds longer a burst of five times the load breaks the bound on TTFT.

    Bounds are multiples of the latencies without the burst.
    """
    workload = ServingWorkload.mistral_7b_v100()
    for seed in SEEDS:
        calm = Traffic.poisson(0.5, 700, seed=10 * seed)
        usual = Runs(workload, calm, 1)
        more = Traffic.poisson(2.0, 25, seed=10 * seed + 1)
        burst = [(500 + each.time, each.prompt, each.generated) for each in more]
        runs = Runs(workload, Traffic([*calm, *burst]), 1)
        for factor in factors:
            bounds = usual.bounds(factor)
            result = _run(runs, bounds)
            yield (
                f"{factor:g}x, seed {seed}",
                _broken(result, bounds) - _broken(runs.default, bounds),
            )


def _broken(result: ServingResult, bounds: Bounds) -> float:
    """Return the seconds from when a first token was too late until the last such one came."""
    late = [each for each in result.requests if each.arrival >= 500 and each.ttft > bounds.ttft]
    if not late:
        return 0.0
    return max(each.first for each in late) - min(each.arrival + bounds.ttft for each in late)

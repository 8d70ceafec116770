"""A service under its controller in worlds that no constant was chosen for.

Other traffic, models and GPUs beside the oracle; random ones; a burst of five times the load; any
load and any bound; and a server that shows nothing but
its metrics. For `serving.py`.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from zeus.frontier import LatencyBound
from zeus.optimizer.serving import control
from zeus.replay.serving import Bounds, Runs, by_metrics
from zeus.testing import ServingResult, ServingWorkload, Traffic

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


def random_world(seed: int) -> Runs:
    """A model, GPU, kind of requests and traffic of 25 minutes, from little load to too much."""
    chance = random.Random(seed)
    workload, capacity = chance.choice(
        [
            (ServingWorkload.mistral_7b_v100(), 1.6),
            (ServingWorkload.on("a100"), 4.0),
            (ServingWorkload.on("h100", parameters=70e9, gpus=4), 3.0),
        ]
    )
    bursts = chance.random() < 0.5
    prompt, generated = chance.choice([150, 600, 1500]), chance.choice([40, 150, 400])
    rate = capacity * chance.uniform(0.3, 1) * 1800 / (prompt + 4 * generated + 200)
    lengths = {"prompt": prompt, "generated": generated, "seed": seed}
    if not bursts:
        return Runs(workload, Traffic.poisson(rate, 1500, **lengths), 1)
    every, length = chance.choice([120, 240, 400]), chance.choice([20, 40, 60])
    traffic = Traffic.bursts(
        0.6 * rate, rate * chance.uniform(1.5, 4), 1500, every=every, length=length, **lengths
    )
    return Runs(workload, traffic, 1)


def in_random_worlds(seeds: Sequence[int], factors: Sequence[float]) -> dict[str, Any]:
    """In how many random worlds the bounds are kept, and what is saved in the mean."""
    found: dict[str, list[dict[str, float]]] = {f"{factor:g}x": [] for factor in factors}
    for seed in seeds:
        runs = random_world(seed)
        for factor in factors:
            found[f"{factor:g}x"].append(controlled(runs, runs.bounds(factor)))
    farthest = {
        name: [max(each["ttft of its bound"], each["tpot of its bound"]) for each in own]
        for name, own in found.items()
    }
    return {
        name: {
            "worlds": len(own),
            "within bounds": sum(each <= 1 for each in farthest[name]),
            "farthest, of a bound": round(max(farthest[name]), 3),
            "saved, mean %": round(100 * statistics.fmean(each["saved"] for each in own), 1),
        }
        for name, own in found.items()
    }


def controlled(
    runs: Runs,
    bounds: Bounds,
    *,
    phases: bool = True,
    metrics_only: bool = False,
) -> dict[str, float]:
    """What the controller saves, and how near it comes to each bound."""
    result = _run(runs, bounds, phases=phases, metrics_only=metrics_only)
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
    metrics_only: bool = False,
) -> ServingResult:
    wanted = [LatencyBound("ttft p99", bounds.ttft), LatencyBound("tpot p99", bounds.tpot)]

    def controller(_: int) -> Any:
        made = control(runs.rungs(), wanted, phases=phases)
        return by_metrics(made, wanted) if metrics_only else made

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

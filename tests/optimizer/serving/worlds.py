"""Simulated services under a controller, beside the same traffic at the highest clock."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from zeus.frontier import All, LatencyBound
from zeus.optimizer.serving import control
from zeus.testing import ServingWorkload, Traffic, simulate_serving
from zeus.testing._serving_result import ServingResult

V100 = ServingWorkload.mistral_7b_v100()


def ladder(workload=V100, step=0.93):
    chosen = [workload.highest_clock]
    for clock in workload.clocks():
        if clock <= step * chosen[-1] and clock >= 0.4 * chosen[0]:
            chosen.append(clock)
    return chosen


@dataclass(frozen=True)
class Trial:
    """The same traffic twice, and the bounds."""

    default: ServingResult
    controlled: ServingResult
    bounds: tuple[tuple[str, float, float], ...]

    @property
    def saved(self):
        return 1 - self.controlled.energy / self.default.energy

    def ratio(self, name):
        (bound,) = (bound for bound in self.bounds if bound[0] == name)
        return (self.controlled.percentile(*bound[:2]) or 0.0) / bound[2]


@functools.lru_cache(maxsize=16)
def default_run(workload, traffic, **options):
    return simulate_serving(workload, traffic, **options)


def blind(controller):
    """The same controller beside a server that shows neither phases nor who waits."""
    decision = next(controller)
    while True:
        interval = yield decision
        decision = controller.send(replace(interval, busy={}, oldest_wait=None))


def trial(
    traffic,
    factor=2.0,
    *,
    workload=V100,
    phases=True,
    limits=None,
    knowledge=None,
    seen=lambda controller: controller,
    **options,
):
    """Run with bounds at `factor` times the default's p99, or at `limits`."""
    plain = {name: value for name, value in options.items() if name not in ("meter", "interval")}
    default = default_run(workload, traffic, **plain)
    bounds = tuple(
        (name, 99, limits[name] if limits else factor * (default.percentile(name, 99) or 1.0))
        for name in ("ttft", "tpot")
    )
    objective = All(*(LatencyBound(f"{name} p{p}", seconds) for name, p, seconds in bounds))
    settings = ladder(workload)
    controlled = simulate_serving(
        workload,
        traffic,
        controller=lambda _: seen(control(settings, objective, phases=phases, knowledge=knowledge)),
        **options,
    )
    return Trial(default, controlled, bounds)


def poisson(rate, seconds=600, seed=101, **lengths):
    return Traffic.poisson(rate, seconds, seed=seed, **lengths)

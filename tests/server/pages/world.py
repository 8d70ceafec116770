"""Recurring jobs with a life of their own, for pages to show: each run costs what it would.

How many epochs a batch size takes has a valley; an epoch's time and energy follow the batch size,
the GPU and its power limit. Everything goes through the service, in made-up time.
"""

from __future__ import annotations

import math
import random
from typing import Any

from zeus.frontier import Frontier, Point, ZeusCost
from zeus.optimizer.batch_size import JobSpec
from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, PutProfile, ReportEpoch
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store

A40, V100 = "NVIDIA A40", "Tesla V100-PCIE-32GB"
MAX_POWER = {A40: 300.0, V100: 250.0}
SIZES = (8, 16, 32, 64, 128, 256, 512)
NIGHT = 86_400.0
_LIMITS = {A40: range(100, 301, 25), V100: range(100, 251, 25)}


class Clock:
    """Time that passes only when told."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def frontier(gpu: str, batch_size: int) -> Frontier:
    """What a step takes at every power limit of a GPU."""
    points = []
    for limit in _LIMITS[gpu]:
        share = limit / MAX_POWER[gpu]
        load = 0.55 + 0.45 * (1 - math.exp(-batch_size / 90))
        speed = min(1.0, (share / load) ** 0.42)
        time = (0.02 + 0.0016 * batch_size) / speed * (1.0 if gpu == A40 else 1.25)
        points.append(Point(limit, time, time * min(limit, MAX_POWER[gpu] * load)))
    return Frontier(
        points,
        knob_name="power limit",
        knob_unit="W",
        work=f"a step of {batch_size}",
        max_power=MAX_POWER[gpu],
    )


class Life:
    """Runs of one job.

    Args:
        jobs: The service.
        clock: The one it counts by.
        spec: The job.
        seed: Of the luck that runs have.
    """

    def __init__(self, jobs: Jobs, clock: Clock, spec: JobSpec, seed: int = 3) -> None:
        self.jobs, self.clock, self.spec = jobs, clock, spec
        self.chance = random.Random(seed)
        jobs.do(CreateJob(spec=spec))

    def recur(self, times: int, gpu: str = A40) -> None:
        """So many recurrences, each until it converges."""
        for _ in range(times):
            before = None
            while before is None or before[1] != "converged":
                before = self.run(gpu, retry_of=before and before[0])
            self.clock.now += NIGHT

    def run(
        self, gpu: str = A40, retry_of: str | None = None, most: int = 10**6
    ) -> tuple[str, str | None]:
        """One trial, or its first epochs; its name and how it ended."""
        decision = self.jobs.do(
            Decide(
                job=self.spec.name,
                gpu=gpu,
                max_power=MAX_POWER[gpu],
                retry_of=retry_of,
                lease=NIGHT,
            )
        )
        size = decision.batch_size
        sweep = frontier(gpu, size)
        chosen = ZeusCost(self.spec.eta_knob).select(sweep).point
        steps = 60_000 / size
        cost = steps * self.spec.cost(chosen.energy, chosen.time, MAX_POWER[gpu])
        self.jobs.do(
            PutProfile(
                job=self.spec.name,
                gpu=gpu,
                batch_size=size,
                frontier=sweep.to_dict(),
                epoch_cost=cost,
                load=chosen.average_power / chosen.knob,
                power_limit=chosen.knob,
            )
        )
        needed = self._epochs(size)
        outcome = None
        for epoch in range(1, most + 1):
            self.clock.now += steps * chosen.time
            verdict = self.jobs.do(
                ReportEpoch(
                    trial=decision.trial,
                    epoch=epoch,
                    time=steps * chosen.time,
                    energy=steps * chosen.energy,
                    metric=round(0.5 + 0.4 * min(epoch / needed, 1.0), 6),
                    power_limit=float(chosen.knob),
                )
            )
            outcome = verdict.outcome
            if not verdict.go_on:
                break
        return decision.trial, outcome

    def _epochs(self, size: int) -> int:
        if size >= 512:
            return 10**6  # never
        away = math.log2(size / 64)
        return max(2, round((5 + 0.8 * away**2) * self.chance.lognormvariate(0, 0.08)))


def spec(name: str = "nightly-bert", **changes: object) -> JobSpec:
    """A job over seven batch sizes."""
    values: dict[str, Any] = {
        "batch_sizes": SIZES,
        "default_batch_size": 256,
        "target_metric": 0.9,
        "max_epochs": 60,
        "seed": 5,
        **changes,
    }
    return JobSpec(name=name, **values)


def service(storage: str) -> tuple[Jobs, Clock]:
    """The jobs of a storage, and their clock."""
    clock = Clock()
    return Jobs(Store(storage), clock), clock

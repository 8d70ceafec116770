"""What an epoch costs at batch sizes of which only some steps were measured.

Steps are measured at the power limit as it is, mostly the highest one, and without what else is in
an epoch: evaluation, checkpoints. Trials have all of it, at their best power limit. So that both
can be compared, what was measured is corrected by the batch sizes that are known both ways.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from zeus.optimizer.batch_size.job._events import Profiled
from zeus.optimizer.batch_size.job._share import can_share, nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec

Place = tuple[int, int]
"""Indices of a GPU configuration and a batch size."""


@dataclass(frozen=True)
class KnownSize:
    """What is known of an epoch of a batch size on one GPU configuration.

    Attributes:
        batch_size: The batch size.
        state: "trained" in a trial, or profiled; "measured" if only steps were; "unfit" if it does
            not fit in memory; else "unknown".
        epoch_cost: Expected cost of an epoch in joules, at the best power limit as far as that is
            known; `None` if unknown.
        measure: Whether to measure steps of it before the next decision.
    """

    batch_size: int
    state: str
    epoch_cost: float | None
    measure: bool


class MeasuredSizes:
    """Costs of an epoch by measured steps.

    Attributes:
        costs: Cost of an epoch in joules, at full power, by GPU configuration and batch size.
    """

    def __init__(self, costs: Mapping[Place, float] | None = None) -> None:
        self.costs = dict(costs or {})

    def on(self, gpu: int) -> list[int]:
        """Return the batch sizes that were measured on a GPU configuration.

        Args:
            gpu: Index of the configuration.
        """
        return [arm for each, arm in self.costs if each == gpu]

    def expected(
        self, gpu: int, trained: Mapping[Place, float], full_power: Mapping[Place, float]
    ) -> dict[int, float]:
        """Return the cost that an epoch of a trial would have, where no trial has shown it.

        Lower power limits are assumed to save as much as where they were profiled, and what else is
        in an epoch to cost as much at every batch size.

        Args:
            gpu: Index of the GPU configuration.
            trained: Costs of an epoch as trials have shown them, in joules.
            full_power: Cost at the highest power limit as a multiple of that, where it was
                profiled.
        """
        measured = self.on(gpu)
        here = {arm: cost for (each, arm), cost in trained.items() if each == gpu}
        saving = _mean(
            1.0 / full_power[place] for place in full_power if place[0] == gpu and place[1] in here
        )
        both = [arm for arm in measured if arm in here]
        steps = {arm: self.costs[gpu, arm] / full_power.get((gpu, arm), 1.0) for arm in both}
        rest = _mean((here[arm] - steps[arm] for arm in both), 0.0)
        # Less than the steps alone: those were not like the steps of training.
        factor = _mean(here[arm] / steps[arm] for arm in both) if rest < 0 else 1.0
        return {
            arm: self.costs[gpu, arm] * saving * factor + max(rest, 0.0)
            for arm in measured
            if arm not in here
        }

    def known(
        self,
        spec: JobSpec,
        gpu: int,
        trained: Mapping[Place, float],
        full_power: Mapping[Place, float],
        *,
        unfit: Collection[int],
        replicas: int,
        useful: bool,
    ) -> list[KnownSize]:
        """Return what is known of every batch size on a GPU configuration.

        Args:
            spec: The job.
            gpu: Index of the configuration; -1 if nothing has run there.
            trained: See `expected`.
            full_power: See `expected`.
            unfit: Batch sizes that do not fit in memory there.
            replicas: Number of replicas that will share a batch.
            useful: Whether the policy uses what was measured.
        """
        costs = {arm: cost for (each, arm), cost in trained.items() if each == gpu}
        expected = self.expected(gpu, trained, full_power)
        states = dict.fromkeys(unfit, "unfit")
        states |= {spec.batch_sizes[arm]: "measured" for arm in expected}
        states |= {spec.batch_sizes[arm]: "trained" for arm in costs}
        wanted: set[int] = set()
        # Where only the power limit is optimized, there is nothing to choose.
        if useful and len(spec.batch_sizes) > 1 and spec.exploration_budget != 0:
            offered = [size for size in spec.batch_sizes if can_share(size, replicas)]
            wanted = {size for size in offered if size not in states}
            if wanted and not self.on(gpu):
                # One that trials show, too, makes what is measured comparable with trials.
                wanted.add(nearest_shared(spec.default_batch_size, offered, replicas))
                wanted -= set(unfit)
        return [
            KnownSize(
                size,
                states.get(size, "unknown"),
                costs.get(arm, expected.get(arm)),
                size in wanted,
            )
            for arm, size in enumerate(spec.batch_sizes)
        ]


def full_power_cost(spec: JobSpec, profile: Profiled) -> float | None:
    """Return the cost at the highest power limit as a multiple of that at the chosen one.

    Args:
        spec: The job, whose objective is used.
        profile: A profile of power limits; `None` is returned if it has no measurements.
    """
    record = profile.frontier
    if record is None or not record.get("max_power"):
        return None
    costs = {
        point["knob"]: spec.cost(point["energy"], point["time"], record["max_power"])
        for point in record["points"]
        if isinstance(point["knob"], int | float)
    }
    if not costs:
        return None
    least = min(costs.values())
    chosen = least if profile.power_limit is None else costs.get(profile.power_limit, least)
    return max(costs[max(costs)] / chosen, 1.0) if chosen > 0 else None


def _mean(values: Iterable[float], otherwise: float = 1.0) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else otherwise

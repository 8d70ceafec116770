"""Outcomes of every possible decision for one job, as arrays: traces of one GPU and workload.

A batch size that was never trained is not offered, as its outcome is unknown; on request it counts
as one that never reaches the target. A batch size without a power trace does not fit the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from zeus.errors import TraceError
from zeus.frontier._cost import zeus_cost
from zeus.optimizer.batch_size.job._job_batch import Floats, Ints
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.replay._traces import Traces
from zeus.replay._workloads import Workload

# Tolerance for comparing targets, which are decimal numbers: 0.1 + 0.2 is not 0.3.
_SAME = 1e-9

Untrained = Literal["drop", "fail"]
"""How batch sizes count that were never trained: not offered, or never reaching the target."""


@dataclass(frozen=True)
class Optimum:
    """The oracle's choice: the best configuration if everything is known.

    Attributes:
        arm: Index of its batch size.
        power: Index of its power limit.
        cost: Expected joules until the target is reached, runs that miss it included.
    """

    arm: int
    power: int
    cost: float


@dataclass(frozen=True)
class JobTable:
    """One workload on one GPU.

    Attributes:
        gpu: Name of the GPU model.
        workload: Name of the workload.
        batch_sizes: In ascending order.
        power_limits: Watts, in ascending order.
        default: Index of the default batch size.
        target_metric: Target value; `higher_is_better` says whether the metric rises.
        max_epochs: Maximum epochs of a run.
        max_power: The GPU's highest power limit, in watts.
        epochs: Epochs until convergence, by batch size and run; infinite if the target is never
            reached, NaN where there are fewer runs.
        time: Seconds of an epoch, by batch size and power limit; NaN where it was not recorded.
        power: Average watts of an epoch, likewise.
        eta_knob: Weight of energy in the cost, from 0 to 1.
    """

    gpu: str
    workload: str
    batch_sizes: tuple[int, ...]
    power_limits: tuple[float, ...]
    default: int
    target_metric: float
    higher_is_better: bool
    max_epochs: int
    max_power: float
    epochs: Floats
    time: Floats
    power: Floats
    eta_knob: float = 0.5

    @cached_property
    def energy(self) -> Floats:
        """Energy of an epoch in joules, by batch size and power limit."""
        return self.time * self.power

    @cached_property
    def epoch_cost(self) -> Floats:
        """Cost of an epoch in joules, by batch size and power limit."""
        return zeus_cost(self.energy, self.time, self.max_power, self.eta_knob)

    @cached_property
    def best_power(self) -> Ints:
        """Index of the best power limit, by batch size."""
        best: Ints = np.nanargmin(self.epoch_cost, axis=1)
        return best

    @cached_property
    def runs(self) -> Ints:
        """Number of recorded runs, by batch size."""
        counts: Ints = (~np.isnan(self.epochs)).sum(axis=1)
        return counts

    @cached_property
    def expected_epochs(self) -> Floats:
        """Expected epochs until the target is reached, with the best epoch to stop and retry at.

        Where some runs miss the target, or take very long, it pays to stop at some epoch and to
        retry. The expectation counts all trials. It is infinite if no run reaches the target.
        """
        best = np.full(len(self.batch_sizes), np.inf)
        for arm, runs in enumerate(self.epochs):
            known = runs[~np.isnan(runs)]
            for stop in known[known <= self.max_epochs]:
                spent = np.minimum(known, stop).sum() / (known <= stop).sum()
                best[arm] = min(best[arm], spent)
        return best

    @cached_property
    def optimum(self) -> Optimum:
        """The configuration with the lowest expected cost.

        Raises:
            TraceError: If no batch size ever reaches the target.
        """
        costs = self.expected_epochs[:, None] * np.where(
            np.isnan(self.epoch_cost), np.inf, self.epoch_cost
        )
        arm, power = np.unravel_index(int(np.argmin(costs)), costs.shape)
        if not np.isfinite(costs[arm, power]):
            raise TraceError(
                f"no batch size of {self.workload} on {self.gpu} reaches the target "
                f"{self.target_metric:g} within {self.max_epochs} epochs"
            )
        return Optimum(int(arm), int(power), float(costs[arm, power]))

    @property
    def recurrences(self) -> int:
        """Recurrences of a job in the paper: twice the number of configurations.

        They are enough for grid search to finish and to use its result.
        """
        return 2 * len(self.batch_sizes) * len(self.power_limits)

    def default_expectation(self) -> tuple[float, float]:
        """Return expected joules and seconds of the default; infinite if it misses the target."""
        limit = int(np.flatnonzero(~np.isnan(self.time[self.default]))[-1])
        epochs = self.expected_epochs[self.default]
        return (
            float(epochs * self.energy[self.default, limit]),
            float(epochs * self.time[self.default, limit]),
        )

    def spec(self, policy: str, seed: int = 0, **options: float | int | None) -> JobSpec:
        """Return the specification of the replayed job, as in production."""
        values = {"beta": 2.0, "window": 0, "pruning_rounds": 2, **options}
        return JobSpec(
            name=f"{self.workload} on {self.gpu}",
            batch_sizes=self.batch_sizes,
            default_batch_size=self.batch_sizes[self.default],
            target_metric=self.target_metric,
            higher_is_better=self.higher_is_better,
            max_epochs=self.max_epochs,
            eta_knob=self.eta_knob,
            policy=policy,
            seed=seed,
            power_limits=self.power_limits,
            **values,  # type: ignore[arg-type]
        )


def relative(value: float, reference: float) -> float | None:
    """Return a ratio; `None` if the reference is infinite, as of a default that never converges."""
    return float(value) / reference if np.isfinite(reference) else None


def job_table(
    traces: Traces,
    gpu: str,
    workload: Workload,
    *,
    eta_knob: float = 0.5,
    target_metric: float | None = None,
    untrained: Untrained = "drop",
) -> JobTable:
    """Build the table of a workload on a GPU from the traces.

    If the workload's default batch size is not offered, the next smaller one is the default, or the
    smallest of all.

    Args:
        traces: From `load_traces`.
        gpu: Name of the GPU model.
        workload: The workload.
        eta_knob: Weight of energy in the cost, from 0 to 1.
        target_metric: Target other than that of the workload; one of the recorded values.
        untrained: Whether batch sizes that were never trained are left out, or fail.

    Raises:
        TraceError: If the traces lack the workload or the target.
    """
    rows = traces.power[gpu].get(workload.key, [])
    if not rows:
        raise TraceError(f"the power trace of {gpu} in {traces.folder} has no {workload.name}")
    target = workload.target_metric if target_metric is None else target_metric
    trained = _epochs(traces, workload, target)
    if untrained == "drop":
        rows = [row for row in rows if row.batch_size in trained]
        if not rows:
            raise TraceError(
                f"no batch size of {workload.name} with a power trace of {gpu} was ever trained"
            )
    batch_sizes = tuple(sorted({row.batch_size for row in rows}))
    limits = tuple(sorted({row.power_limit for row in rows}))
    time = np.full((len(batch_sizes), len(limits)), np.nan)
    power = time.copy()
    for row in rows:
        at = batch_sizes.index(row.batch_size), limits.index(row.power_limit)
        time[at], power[at] = row.time_per_epoch, row.average_power
    below = [size for size in batch_sizes if size <= workload.default_batch_size]
    return JobTable(
        gpu=gpu,
        workload=workload.name,
        batch_sizes=batch_sizes,
        power_limits=limits,
        default=batch_sizes.index(max(below) if below else min(batch_sizes)),
        target_metric=target,
        higher_is_better=workload.higher_is_better,
        max_epochs=workload.max_epochs,
        # Of the GPU: the highest limit of any workload.
        max_power=max(row.power_limit for each in traces.power[gpu].values() for row in each),
        epochs=_stacked([trained.get(size, [np.inf]) for size in batch_sizes]),
        time=time,
        power=power,
        eta_knob=eta_knob,
    )


def _epochs(traces: Traces, workload: Workload, target: float) -> dict[int, list[float]]:
    """Return the epochs until convergence of every recorded run, by batch size."""
    rows = traces.training.get(workload.key, [])
    recorded = sorted({row.target_metric for row in rows})
    if not any(abs(value - target) < _SAME for value in recorded):
        values = ", ".join(f"{value:g}" for value in recorded) or "nothing"
        raise TraceError(
            f"the training trace of {workload.name} has no target {target:g}; it has {values}"
        )
    found: dict[int, list[float]] = {}
    for row in rows:
        chosen = abs(row.target_metric - target) < _SAME
        if chosen and workload.admits(row.batch_size, row.learning_rate):
            found.setdefault(row.batch_size, []).append(row.target_epoch)
    return found


def _stacked(lists: list[list[float]]) -> Floats:
    longest = max(len(values) for values in lists)
    return np.array([[*values, *[np.nan] * (longest - len(values))] for values in lists])

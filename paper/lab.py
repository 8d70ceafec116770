"""Runs the policies on the traces for all figures, each configuration once.

Every figure gets its tables and runs from the lab, which caches them for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from paper.product import (
    WORKLOADS,
    Choices,
    Floats,
    Ints,
    Job,
    JobBatch,
    JobTable,
    Policy,
    Rows,
    TraceError,
    Traces,
    Trials,
    Workload,
    job_table,
    policy_named,
    replay,
)

PAPERS_GPU = "v100"
LAST = 5  # final recurrences, which count as converged (paper, section 6.2)


@dataclass(frozen=True)
class Runs:
    """Jobs of one workload under one policy, by seed and recurrence.

    Attributes:
        table: Table of the workload.
        cost: Cost in joules.
        energy: Energy in joules.
        time: Time in seconds.
        trials: Number of trials.
        arm: Index of the batch size that reached the target.
        power: Index of its power limit.
    """

    table: JobTable
    cost: Floats
    energy: Floats
    time: Floats
    trials: Floats
    arm: Floats
    power: Floats

    @cached_property
    def regret(self) -> Floats:
        """Cumulative regret in joules of cost (equation 9), by seed and recurrence."""
        return np.cumsum(self.cost - self.table.optimum.cost, axis=1)

    @property
    def energy_ratio(self) -> Floats:
        """Energy of the last five recurrences against the default's, by seed."""
        ratio: Floats = self.energy[:, -LAST:].mean(axis=1) / self.table.default_expectation()[0]
        return ratio

    @property
    def time_ratio(self) -> Floats:
        """Time of the last five recurrences against the default's, by seed."""
        ratio: Floats = self.time[:, -LAST:].mean(axis=1) / self.table.default_expectation()[1]
        return ratio

    @property
    def total_energy_ratio(self) -> Floats:
        """Energy of all recurrences against the default's, by seed."""
        ratio: Floats = self.energy.mean(axis=1) / self.table.default_expectation()[0]
        return ratio

    @property
    def total_time_ratio(self) -> Floats:
        """Time of all recurrences against the default's, by seed."""
        ratio: Floats = self.time.mean(axis=1) / self.table.default_expectation()[1]
        return ratio


@dataclass(frozen=True)
class Trial:
    """One trial of a job.

    Attributes:
        recurrence: Number of its recurrence, from 0.
        arm: Index of the batch size; `power` of the power limit, -1 if the optimizer finds it.
        stage: Number of finished pruning rounds, or `None` for a policy without pruning.
        converged: Whether the target was reached.
        cost: Cost in joules.
    """

    recurrence: int
    arm: int
    power: int
    stage: int | None
    converged: bool
    cost: float


class Lab:
    """Replays jobs for all figures, and caches tables and runs.

    Args:
        traces: The recorded traces.
        seeds: Number of jobs per workload and policy.
        gpu: GPU model of figures that show one; by default that of the paper, or the first.
        progress: Called with a description of each replay.

    Raises:
        TraceError: If the traces have no known workload.
    """

    def __init__(
        self,
        traces: Traces,
        seeds: int = 50,
        gpu: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.traces = traces
        self.seeds = seeds
        self.gpus = tuple(traces.power)
        self.gpu = gpu or (PAPERS_GPU if PAPERS_GPU in self.gpus else self.gpus[0])
        self._progress = progress
        self._tables: dict[tuple[str, str, float], JobTable] = {}
        self._runs: dict[Any, dict[str, Runs]] = {}
        self._workloads = {gpu: self._usable(gpu) for gpu in self.gpus}
        for name, found in self._workloads.items():
            if not found:
                raise TraceError(f"{traces.folder} has no workload of the paper on {name}")

    @property
    def is_papers_gpu(self) -> bool:
        """Whether the shown GPU is the one of the published numbers."""
        return self.gpu == PAPERS_GPU

    def workloads(self, gpu: str | None = None) -> list[Workload]:
        """Return the workloads of Table 1 that the traces have, in its order."""
        return self._workloads[gpu or self.gpu]

    def _usable(self, gpu: str) -> list[Workload]:
        found = []
        for workload in WORKLOADS:
            if workload.key not in self.traces.power[gpu]:
                continue
            table = self.table(workload.name, gpu)
            if np.isfinite(table.expected_epochs[table.default]):
                found.append(workload)
        return found

    def table(self, name: str, gpu: str | None = None, eta: float = 0.5) -> JobTable:
        """Return the table of a workload."""
        key = (gpu or self.gpu, name, eta)
        if key not in self._tables:
            workload = next(each for each in WORKLOADS if each.name == name)
            self._tables[key] = job_table(self.traces, key[0], workload, eta_knob=eta)
        return self._tables[key]

    def runs(
        self,
        policy: str,
        *,
        gpu: str | None = None,
        eta: float = 0.5,
        beta: float | None = 2.0,
        variant: Policy | None = None,
    ) -> dict[str, Runs]:
        """Replay jobs of all workloads with every seed, for `2 |B| |P|` recurrences.

        Args:
            policy: Name of the policy.
            gpu: GPU model; by default the shown one.
            eta: Weight of energy in the cost.
            beta: Early-stopping threshold; `None` disables early stopping.
            variant: Policy to use instead of the named one.

        Returns:
            Runs, by name of the workload.
        """
        model = gpu or self.gpu
        key = (model, policy, eta, beta, type(variant))
        if key in self._runs:
            return self._runs[key]
        if self._progress is not None:
            self._progress(f"replaying {policy} on {model}")
        names = [workload.name for workload in self.workloads(model)]
        tables = [self.table(name, model, eta) for name in names]
        runs = self.replayed(policy, tables, beta=beta, variant=variant)
        found = dict(zip(names, runs, strict=True))
        self._runs[key] = found
        return found

    def replayed(
        self,
        policy: str,
        tables: Sequence[JobTable],
        *,
        beta: float | None = 2.0,
        variant: Policy | None = None,
    ) -> list[Runs]:
        """Replay jobs of any tables with every seed, for `2 |B| |P|` recurrences.

        Args:
            policy: Name of the policy.
            tables: Tables of the jobs.
            beta: Early-stopping threshold; `None` disables early stopping.
            variant: Policy to use instead of the named one.
        """
        jobs = [
            Job(table.spec(policy, seed, beta=beta), [table], [0] * table.recurrences, seed)
            for table in tables
            for seed in range(self.seeds)
        ]
        history = replay(jobs, history=True, policy=variant).history
        found: list[Runs] = []
        for place, table in enumerate(tables):
            rows = slice(place * self.seeds, (place + 1) * self.seeds)
            part = {
                field: history[field][rows, : table.recurrences]
                for field in ("cost", "energy", "time", "trials", "arm", "power")
            }
            found.append(Runs(table, **part))
        return found

    def trials(self, name: str, policy: str, seed: int) -> list[Trial]:
        """Return every trial of one job, in order, including those that missed the target."""
        table = self.table(name)
        job = Job(table.spec(policy, seed), [table], [0] * table.recurrences, seed)
        witness = _Witness(policy_named(policy))
        replay([job], policy=witness)
        found: list[Trial] = []
        recurrence = 0
        for trial in witness.seen:
            found.append(replace(trial, recurrence=recurrence))
            recurrence += trial.converged
        return found


def geometric_mean(values: Sequence[float] | Floats) -> float:
    """Return the geometric mean, the paper's average over jobs."""
    return float(np.exp(np.mean(np.log(values))))


class _Witness(Policy):
    """Wraps a policy for a single job, and records every trial."""

    name: ClassVar[str] = "witness"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seen: list[Trial] = []

    def begin(self, lanes: JobBatch, gpus: int = 1) -> Any:
        return self.policy.begin(lanes, gpus)

    def choose(self, state: Any, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:
        return self.policy.choose(state, rows, gpu, attempt)

    def decided(self, state: Any, rows: Rows, choices: Choices) -> None:
        self.policy.decided(state, rows, choices)

    def ended(self, state: Any, rows: Rows, trials: Trials) -> None:
        stage = getattr(state, "round", None)
        self.seen.append(
            Trial(
                recurrence=0,
                arm=int(trials.arm[0]),
                power=int(trials.power[0]),
                stage=None if stage is None else int(stage[0]),
                converged=bool(trials.converged[0]),
                cost=float(trials.cost[0]),
            )
        )
        self.policy.ended(state, rows, trials)

"""A model of one recorded workload, fitted to some of its schedules, that predicts others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zeus.errors import TraceError
from zeus.replay.pipelines._engine import Engine, Executor
from zeus.replay.pipelines._links import fit_links, slowest_links
from zeus.replay.pipelines._powers import Powers, fit_powers, seconds_at
from zeus.replay.pipelines._recording import Array, Recording, Run
from zeus.replay.pipelines._times import KINDS, Curve, fit_times

MIN_RUNS = 3


@dataclass(frozen=True)
class Prediction:
    """An iteration under a schedule, as the model expects it.

    Attributes:
        time: Seconds.
        energies: Joules, by rank.
    """

    time: float
    energies: Array

    @property
    def energy(self) -> float:
        """Joules over all ranks."""
        return float(self.energies.sum())


@dataclass(frozen=True)
class Model:
    """What a workload's iterations take and draw.

    Attributes:
        stages: Number of stages.
        ranks: Number of GPUs; rank `r` runs stage `r % stages`.
        curves: Time of each computation, by stage and kind.
        engine: Times of links, loads and the tail.
        powers: Power of computations and of waiting.
        execute: The iteration.
    """

    stages: int
    ranks: int
    curves: Mapping[tuple[int, str], Curve]
    engine: Engine
    powers: Powers
    execute: Executor

    def predict(self, schedules: Sequence[Mapping[str, Array]]) -> list[Prediction]:
        """Predict an iteration under each of several schedules.

        Args:
            schedules: MHz of "forward" and "backward", each by rank and microbatch.
        """
        if not schedules:
            return []
        times = [_times(self.curves, clocks, self.stages) for clocks in schedules]
        seconds, _ = self.execute(self.engine, *_by_stage(times, self.stages))
        return [
            Prediction(float(each), self._energies(clocks, taken, float(each)))
            for each, clocks, taken in zip(seconds, schedules, times, strict=True)
        ]

    def cautious(self, schedules: Sequence[Mapping[str, Array]]) -> Model:
        """Return a model with links as slow as the times of given schedules admit.

        Some links are never on the critical path of a recorded schedule, so they may be anything
        for these, but not for a plan that slows the stages beside them.

        Args:
            schedules: Those that the model was fitted to.
        """
        times = [_times(self.curves, clocks, self.stages) for clocks in schedules]
        slowest = slowest_links(self.execute, self.engine, *_by_stage(times, self.stages))
        return replace(self, engine=slowest)

    def _energies(
        self, scheduled: Mapping[str, Array], times: Mapping[str, Array], seconds: float
    ) -> Array:
        clocks = np.unique([scheduled[kind] for kind in KINDS])
        spent = seconds_at(clocks, scheduled, times)
        waiting = seconds - spent.sum(1)
        computing = (spent * self.powers(clocks)).sum(1)
        return np.asarray(computing + self.powers.blocking_power * waiting)


def fit_model(recording: Recording, numbers: Sequence[int]) -> Model:
    """Fit a model to some schedules of a recording.

    Args:
        recording: The recording.
        numbers: Which schedules to use, at least 3.

    Raises:
        TraceError: If there are too few, or one is not recorded.
    """
    missing = [number for number in numbers if number not in recording.runs]
    if missing or len(set(numbers)) < MIN_RUNS:
        raise TraceError(
            f"{recording.name}: at least {MIN_RUNS} of its schedules are needed, but got "
            f"{sorted(set(numbers))}; recorded are {sorted(recording.runs)}"
        )
    runs = [recording.runs[number] for number in sorted(set(numbers))]
    stages = recording.stages
    curves = fit_times(runs, stages)
    execute = Executor(stages, recording.microbatches)
    times = [_times(curves, run.clocks, stages) for run in runs]
    forward, backward = _by_stage(times, stages)
    iterations = np.array([run.time for run in runs])
    fast = {kind: _fast(curves, runs, kind, stages) for kind in KINDS}
    engine = fit_links(execute, _loads(runs, stages), forward, backward, iterations, fast=fast)
    powers = fit_powers(runs, recording.board)
    return Model(stages, recording.ranks, curves, engine, powers, execute)


def _loads(runs: Sequence[Run], stages: int) -> Array:
    loads = np.mean([run.times["load"].mean(1) for run in runs], axis=0)
    return np.asarray(loads.reshape(-1, stages).mean(0))


def _fast(
    curves: Mapping[tuple[int, str], Curve], runs: Sequence[Run], kind: str, stages: int
) -> Array:
    """Return which computations ran above their lowest clock, by stage, schedule, microbatch."""
    clocks = np.stack([run.clocks[kind][:stages] for run in runs], axis=1)
    lowest = np.array([curves[stage, kind].clocks[0] for stage in range(stages)])
    return (clocks > lowest[:, None, None]).astype(float)


def _times(
    curves: Mapping[tuple[int, str], Curve], clocks: Mapping[str, Array], stages: int
) -> dict[str, Array]:
    """Return the seconds of computations, by rank and microbatch."""
    return {
        kind: np.array([curves[rank % stages, kind](row) for rank, row in enumerate(clocks[kind])])
        for kind in KINDS
    }


def _by_stage(times: Sequence[Mapping[str, Array]], stages: int) -> tuple[Array, Array]:
    """Return forward and backward by stage, schedule and microbatch, of the first pipeline."""
    forward, backward = (
        np.stack([each[kind][:stages] for each in times], axis=1) for kind in KINDS
    )
    return forward, backward

"""State of the `zeus` policy for many jobs, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Arrays, Bools, Floats, Ints, Rows
from zeus.optimizer.batch_size.policies._base import State
from zeus.optimizer.batch_size.policies._belief import Belief

# Before the first run, anything from one epoch to thousands is possible; likewise for costs.
LEVEL = 3.0


@dataclass
class View(Arrays):
    """Beliefs about jobs on the requested GPU, relative to the best arm of each.

    Attributes:
        gpu: Index of the GPU model, by lane.
        epochs: Expected log Epochs, by lane and arm.
        price: Expected log EpochCost.
        deficit: Expected log cost minus that of the reference; `spread` is its variance.
        noise: Variance between runs.
        never: Probability that an arm never converges.
        proven: Whether runs of an arm have converged. If none has, whether the arm is running and
            its epoch cost is known.
        allowed: Whether an arm can run at all, as far as known.
        some: Whether runs of any arm have converged, by lane.
        met: Whether the EpochCost of any arm is known on this GPU, by lane.
        reference: The best proven arm, by lane.
        best: Its expected log cost; `least` is the cost in joules.
        gain: Expected gain of trials of an arm per future run, in units of that cost, by lane,
            number of trials and arm; `hint`: that of runs of the reference, by lane.
        waste: Expected waste of a trial, in units of that cost.
        again: A proven arm that may still be better, by lane; `again_after` is the number of trials
            after which another run of it is due.
        default: Log cost of a default run at the highest power limit, beyond that of the
            reference, by lane.
        away: Mean of the doublings from the reference and from the nearest proven arm.
        afford: What must be left of the exploration budget for a trial, in default runs.
    """

    gpu: Ints
    epochs: Floats
    price: Floats
    deficit: Floats
    spread: Floats
    noise: Floats
    never: Floats
    proven: Bools
    allowed: Bools
    some: Bools
    met: Bools
    reference: Ints
    best: Floats
    least: Floats
    gain: Floats
    hint: Floats
    waste: Floats
    again: Ints
    again_after: Floats
    default: Floats
    away: Floats
    afford: Floats

    @classmethod
    def blank(cls, jobs: int, arms: int, trials: int) -> View:
        """Return a view of zeros, to be filled."""
        singles = ("best", "least", "hint", "again_after", "default")
        one = {name: np.zeros(jobs) for name in singles}
        whole = {name: np.zeros(jobs, dtype=np.int64) for name in ("gpu", "reference", "again")}
        mark = {name: np.zeros(jobs, dtype=np.bool_) for name in ("some", "met")}
        marks = {name: np.zeros((jobs, arms), dtype=np.bool_) for name in ("proven", "allowed")}
        rest = {field.name for field in fields(cls)} - {*one, *whole, *mark, *marks}
        real = {name: np.zeros((jobs, arms)) for name in rest}
        arrays: dict[str, Any] = {**one, **whole, **mark, **marks, **real}
        arrays["gain"] = np.zeros((jobs, trials, arms))
        return cls(**arrays)

    def store(self, whole: View, rows: Rows) -> None:
        """Write this view over some lanes of another."""
        for field in fields(self):
            getattr(whole, field.name)[rows] = getattr(self, field.name)


@dataclass
class ZeusState(State):
    """State of the `zeus` policy.

    Attributes:
        position: Doublings from the default, by lane and arm.
        kernel: Prior covariance of log Epochs.
        weight: Weight of the converged runs of each arm; a window makes it fade.
        epochs: Mean epochs of those runs.
        bound: Maximum epochs after which a run had not converged; `bounds` is the weight of such
            runs.
        failed: Trials that did not converge, by arm; `misses`: those since the last that did.
        squares: Sum of squared deviations between runs of the same arm; `freedom` is their number.
        belief: Belief about log Epochs, as of the last fit.
        price: Belief about log EpochCost, by lane and GPU model.
        profiled: Whether EpochCost is known, by lane, GPU model and arm; `tentative`: only from a
            trial that has not ended yet.
        unfit: Number of trials that could not run at all, in the same shape.
        flying: Number of trials in flight, by arm.
        ended: Number of trials that ended, by lane; `fitted` is that at the last fit.
        spent: Cost of all trials in units of the expected cost of a default run, by lane;
            `nights` is the number of recurrences that converged.
        full: Log of the cost of an epoch of the default at the highest power limit over that at
            the best one, by lane and GPU model.
        overhead: Cost of profiling power limits in units of the epoch's cost: sum and number.
        view: Derived quantities for the next decision, as of the last fit.
    """

    position: Floats
    kernel: Floats
    weight: Floats
    epochs: Floats
    bound: Floats
    bounds: Floats
    failed: Floats
    misses: Floats
    squares: Floats
    freedom: Floats
    belief: Belief
    price: Belief
    profiled: Bools
    tentative: Bools
    unfit: Ints
    flying: Ints
    ended: Ints
    fitted: Ints
    spent: Floats
    nights: Floats
    full: Floats
    overhead: Floats
    view: View

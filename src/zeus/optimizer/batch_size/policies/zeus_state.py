"""What our policy knows about many jobs, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from zeus.optimizer.batch_size.lanes import Arrays, Bools, Floats, Ints, Rows
from zeus.optimizer.batch_size.policies.base import State
from zeus.optimizer.batch_size.policies.belief import Belief

# Before the first run, anything from one epoch to thousands is possible; likewise for costs.
LEVEL = 3.0


@dataclass
class View(Arrays):
    """What is believed about jobs on the GPU at hand, relative to the best of each.

    Attributes:
        gpu: Number of the GPU model, by lane.
        epochs: Expected log Epochs, by lane and arm.
        price: Expected log EpochCost.
        deficit: Expected log cost minus that of the reference, with its variance `spread`, of
            which `apart` is that of log Epochs.
        noise: Variance between runs, by lane.
        never: Probability that an arm never converges.
        proven: Whether runs of an arm have converged. If none has, whether one is hoped to: it runs
            and has got as far as to tell what an epoch costs.
        open: Whether an arm may be explored.
        allowed: Whether an arm can run at all, as far as is known.
        some: Whether runs of any arm have converged, by lane.
        met: Whether the EpochCost of any arm is known on this GPU, by lane.
        reference: The best proven arm, by lane.
        best: Its expected log cost; `least` is the cost.
        gain: What trials of an arm may gain in each run to come, in units of that cost, by lane,
            number of trials and arm; `hint`: what runs of the reference may tell.
        waste: What a trial is likely to waste.
        look: A proven arm that may be better after all, by lane, and after how many trials another
            run of it is due (`look_after`).
    """

    gpu: Ints
    epochs: Floats
    price: Floats
    deficit: Floats
    spread: Floats
    apart: Floats
    noise: Floats
    never: Floats
    proven: Bools
    open: Bools
    allowed: Bools
    some: Bools
    met: Bools
    reference: Ints
    best: Floats
    least: Floats
    gain: Floats
    hint: Floats
    waste: Floats
    look: Ints
    look_after: Floats

    @classmethod
    def blank(cls, jobs: int, arms: int, trials: int) -> View:
        """To be filled."""
        singles = ("noise", "best", "least", "hint", "look_after")
        one = {name: np.zeros(jobs) for name in singles}
        whole = {name: np.zeros(jobs, dtype=np.int64) for name in ("gpu", "reference", "look")}
        mark = {name: np.zeros(jobs, dtype=np.bool_) for name in ("some", "met")}
        marks = {
            name: np.zeros((jobs, arms), dtype=np.bool_) for name in ("proven", "open", "allowed")
        }
        rest = {field.name for field in fields(cls)} - {*one, *whole, *mark, *marks}
        real = {name: np.zeros((jobs, arms)) for name in rest}
        arrays: dict[str, Any] = {**one, **whole, **mark, **marks, **real}
        arrays["gain"] = np.zeros((jobs, trials, arms))
        return cls(**arrays)

    def store(self, whole: View, rows: Rows) -> None:
        """Write this over some lanes of another."""
        for field in fields(self):
            getattr(whole, field.name)[rows] = getattr(self, field.name)


@dataclass
class ZeusState(State):
    """What our policy knows.

    Attributes:
        position: Doublings from the default, by lane and arm.
        kernel: Prior covariance of log Epochs.
        weight: Converged runs of each arm that still count; a window makes them fade.
        epochs: Mean epochs of those runs.
        bound: Most epochs after which a run had not converged, and their weight (`bounds`).
        failed: Trials that did not converge, by arm; `misses`: since the last that did.
        squares: Squared deviations between runs of the same arm, of which there are `freedom`.
        belief: About log Epochs, as of the last fit.
        fit: Squared errors of predictions for new arms in units of what was expected, and number.
        price: About log EpochCost, by lane and GPU model; `price_fit` is like `fit`.
        profiled: Whether EpochCost is known, by lane, GPU model and arm; `tentative`: only from a
            trial that has not ended yet.
        unfit: Trials that could not run at all, in the same shape.
        flying: Trials in flight, by arm.
        ended: Trials that ended, by lane, and at the last fit (`fitted`).
        view: What follows from all this for the next decision, as of the last fit.
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
    fit: Floats
    price: Belief
    price_fit: Floats
    profiled: Bools
    tentative: Bools
    unfit: Ints
    flying: Ints
    ended: Ints
    fitted: Ints
    view: View

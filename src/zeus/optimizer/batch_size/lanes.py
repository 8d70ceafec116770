"""Many independent jobs as arrays, so that one call decides for all of them.

The leading axis of every array is the job ("lane"); the batch sizes of a job are numbered from the
smallest ("arm") and padded to the longest list. Production has one lane, replay many thousands,
and both run the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from zeus.optimizer.batch_size.spec import JobSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Which lanes a call is about: all of them (views, nothing is copied) or some.
Rows = slice | Ints

ALL = slice(None)


def any_arm(marks: Bools) -> Bools:
    """Whether any arm is marked, by lane."""
    found: Bools = np.logical_or.reduce(marks, axis=-1)
    return found


class Role(IntEnum):
    """What a trial is for."""

    DEFAULT = 0  # nothing better is known, or nothing else is wanted
    EXPLORE = 1  # to learn about a batch size
    EXPLOIT = 2  # the best that is known
    SAMPLE = 3  # the winner of a draw from what is believed
    RETRY = 4  # after a trial of the same recurrence that did not converge


class Arrays:
    """Base of dataclasses whose fields are arrays with the same leading axis, or `None`."""

    def take(self, rows: Rows) -> Self:
        """The same for some lanes."""
        if rows is ALL:
            return self
        taken: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            taken[field.name] = (
                value.take(rows)
                if isinstance(value, Arrays)
                else value[rows]
                if isinstance(value, np.ndarray)
                else value
            )
        return type(self)(**taken)


@dataclass
class Lanes(Arrays):
    """Specifications as arrays.

    Attributes:
        batch_sizes: By lane and arm; padding repeats the largest.
        valid: Whether an arm is one, by lane and arm.
        default: Arm of the default batch size, by lane.
        max_epochs: By lane, as `beta` (infinite if none), `window`, `rounds` and `seed`.
        power_limits: How many power limits grid search tries, by lane.
    """

    batch_sizes: Floats
    valid: Bools
    default: Ints
    max_epochs: Floats
    beta: Floats
    window: Ints
    rounds: Ints
    seed: Ints
    power_limits: Ints

    def __len__(self) -> int:
        return len(self.default)

    @property
    def arms(self) -> int:
        """Length of the axis of arms."""
        return int(self.valid.shape[1])

    @classmethod
    def of(cls, specs: Sequence[JobSpec]) -> Lanes:
        """One lane for each specification."""
        arms = max(len(spec.batch_sizes) for spec in specs)
        sizes = [spec.batch_sizes for spec in specs]
        return cls(
            batch_sizes=np.array(
                [[*each, *[each[-1]] * (arms - len(each))] for each in sizes], dtype=np.float64
            ),
            valid=np.arange(arms) < np.array([[len(each)] for each in sizes]),
            default=np.array([spec.default_index for spec in specs], dtype=np.int64),
            max_epochs=np.array([spec.max_epochs for spec in specs], dtype=np.float64),
            beta=np.array([np.inf if s.beta is None else s.beta for s in specs], dtype=np.float64),
            window=np.array([spec.window for spec in specs], dtype=np.int64),
            rounds=np.array([spec.pruning_rounds for spec in specs], dtype=np.int64),
            seed=np.array([spec.seed for spec in specs], dtype=np.int64),
            power_limits=np.array([len(spec.power_limits) for spec in specs], dtype=np.int64),
        )


@dataclass
class Choices(Arrays):
    """What a policy wants, one entry for each lane that it was asked about.

    Attributes:
        arm: The batch size.
        role: What the trial is for; see `Role`.
        power: Number of a power limit from the lowest; -1 leaves it to the power-limit optimizer,
            -2 leaves the GPU as it is.
        threshold: Joules that the trial may cost.
        expected_epochs: Until convergence, as far as is believed; NaN if nothing is.
        restart_cost: Joules that another, safe trial is expected to cost. After the first epoch
            has told what an epoch costs, a trial whose expected rest exceeds this is given up.
    """

    arm: Ints
    role: Ints
    power: Ints
    threshold: Floats
    expected_epochs: Floats
    restart_cost: Floats


OPTIMIZED, UNTOUCHED = -1, -2


@dataclass
class Trials(Arrays):
    """Trials that ended, one for each lane concerned.

    Attributes:
        arm: Their batch size.
        role: What they were for.
        power: As in `Choices`.
        gpu: Number of the GPU model.
        converged: Whether the target was reached.
        void: Whether nothing can be learned about convergence: the run was killed or its lease
            expired.
        unfit: Whether the run could not even finish its first epoch by itself, as when memory is
            too small for the batch size.
        epochs: How many were run.
        cost: Joules spent.
        epoch_cost: Joules of one epoch at the power limit that was settled on; NaN if unknown.
        load: Average power as a share of the power limit; NaN if unknown.
    """

    arm: Ints
    role: Ints
    power: Ints
    gpu: Ints
    converged: Bools
    void: Bools
    unfit: Bools
    epochs: Floats
    cost: Floats
    epoch_cost: Floats
    load: Floats


def allowed_epochs(
    choices: Choices, first_cost: Floats, epoch_cost: Floats, known: Bools, max_epochs: Floats
) -> Floats:
    """Epochs after which each trial is stopped if it has not converged.

    A trial is stopped before an epoch that would take its cost above the threshold. What the first
    epoch costs is known beforehand only for a batch size that has been profiled; otherwise it is
    always run.

    Args:
        choices: What was decided.
        first_cost: Joules of the first epoch.
        epoch_cost: Joules of each later epoch.
        known: Whether the cost of an epoch was known before the trial.
        max_epochs: Most epochs of a run.
    """
    # Sums of products differ in the last bits; a run that costs just the threshold may end.
    room = choices.threshold * (1 + 1e-12) - first_cost
    # Beyond the most epochs it makes no difference, and infinity cannot be divided further.
    allowed = 1.0 + np.floor(np.minimum(room, max_epochs * epoch_cost) / epoch_cost)
    allowed = np.where(room >= 0, allowed, np.where(known, 0.0, 1.0))
    hopeless = (choices.expected_epochs - 1) * epoch_cost > choices.restart_cost
    allowed = np.where(hopeless & ~known, np.minimum(allowed, 1.0), allowed)
    bounded: Floats = np.minimum(allowed, max_epochs)
    return bounded

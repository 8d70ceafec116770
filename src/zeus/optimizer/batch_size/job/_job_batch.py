"""Many independent jobs as arrays, so that one call decides for all of them.

The leading axis of every array is the job ("lane"); the batch sizes of a job are numbered from the
smallest ("arm") and padded to the longest list. Production has one lane, replay many thousands,
and both run the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from zeus.optimizer.batch_size.job._spec import JobSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Which lanes a call is about: all of them (views, nothing is copied) or some.
Rows = slice | Ints

ALL = slice(None)

T = TypeVar("T", bound="Arrays")


def any_arm(marks: Bools) -> Bools:
    """Return whether any arm is marked, by lane."""
    found: Bools = np.logical_or.reduce(marks, axis=-1)
    return found


class Role(IntEnum):
    """Purpose of a trial."""

    DEFAULT = 0  # nothing better is known, or nothing else is wanted
    EXPLORE = 1  # to learn about a batch size
    EXPLOIT = 2  # the best known batch size
    SAMPLE = 3  # chosen by Thompson sampling
    RETRY = 4  # after a trial of the same recurrence that did not converge


class Arrays:
    """Base of dataclasses whose fields are arrays with the same leading axis, or `None`."""

    def take(self, rows: Rows) -> Self:
        """Return the same arrays restricted to some lanes."""
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

    @staticmethod
    def joined(parts: Sequence[T]) -> T:
        """Return the same arrays for the lanes of several objects of one class.

        Args:
            parts: At least one; a single one is returned as it is.
        """
        first = parts[0]
        if len(parts) == 1:
            return first
        names = [field.name for field in fields(first)]  # type: ignore[arg-type]
        columns = zip(*map(attrgetter(*names), parts), strict=True)
        whole = [
            Arrays.joined(column) if isinstance(column[0], Arrays) else np.concatenate(column)
            for column in columns
        ]
        return type(first)(*whole)


@dataclass
class JobBatch(Arrays):
    """Specifications as arrays.

    Attributes:
        batch_sizes: By lane and arm; padding repeats the largest.
        valid: Whether an arm is a batch size and not padding, by lane and arm.
        default: Arm of the default batch size, by lane.
        max_epochs: By lane, as are `beta` (infinite if none), `window`, `rounds` and `seed`.
        power_limits: Number of power limits that grid search tries, by lane.
        budget: Exploration budget as a part of the default's cost, infinite if none, by lane.
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
    budget: Floats

    def __len__(self) -> int:
        return len(self.default)

    @property
    def arms(self) -> int:
        """Length of the axis of arms."""
        return int(self.valid.shape[1])

    @classmethod
    def of(cls, specs: Sequence[JobSpec]) -> JobBatch:
        """Return one lane for each of the `specs`."""
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
            budget=np.array(
                [np.inf if s.exploration_budget is None else s.exploration_budget for s in specs],
                dtype=np.float64,
            ),
        )


@dataclass
class Choices(Arrays):
    """Choices of a policy, one entry for each requested lane.

    Attributes:
        arm: The batch size.
        role: Purpose of the trial; see `Role`.
        power: Index of a power limit from the lowest; -1 leaves it to the power-limit optimizer,
            -2 leaves the GPU as it is.
        threshold: Maximum cost of the trial in joules.
        expected_epochs: Expected epochs until convergence; NaN if unknown.
        restart_cost: Expected cost in joules of another, safe trial. After the first epoch has
            shown the cost of an epoch, a trial whose expected rest exceeds this is stopped.
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
    """Trials that ended, one for each lane involved.

    Attributes:
        arm: Their batch size.
        role: Their purpose.
        power: As in `Choices`.
        gpu: Number of the GPU model.
        converged: Whether the target was reached.
        void: Whether nothing can be learned about convergence: the run was killed or its lease
            expired.
        unfit: Whether the run could not even finish its first epoch, as when memory is too small
            for the batch size.
        epochs: Number of epochs run.
        cost: Cost in joules.
        epoch_cost: Cost of one epoch in joules at the chosen power limit; NaN if unknown.
        load: Average power as a fraction of the power limit; NaN if unknown.
        full_cost: Cost of one epoch in joules at the highest power limit; NaN if unknown.
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
    full_cost: Floats

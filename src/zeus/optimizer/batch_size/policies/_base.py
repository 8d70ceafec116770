"""The interface of policies.

A policy's state is a fold over the events of a job: `begin`, then `decided`, `noted` and `ended`
for each event in order. `choose` reads the state and changes nothing. A server folds the log it has
stored; a replay carries the state along. Every method works on many jobs at once, and its result
for one of them does not depend on the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import (
    OPTIMIZED,
    Arrays,
    Choices,
    Floats,
    Ints,
    JobBatch,
    Role,
    Rows,
    Trials,
)


@dataclass
class State(Arrays):
    """State of a policy; subclasses add arrays.

    Attributes:
        lanes: The jobs.
        decisions: Number of decisions so far, by lane; it is a counter of the random draws.
    """

    lanes: JobBatch
    decisions: Ints


class ArmStatus(IntEnum):
    """State of knowledge about a batch size."""

    UNKNOWN = 0  # nothing known yet
    EXPECTED = 1  # only predicted from other batch sizes
    PROVEN = 2  # runs have converged
    MISSED = 3  # there were runs, but none converged
    PRUNED = 4  # excluded
    UNFIT = 5  # does not even run


@dataclass
class Beliefs(Arrays):
    """Expected cost until the target is reached, for users.

    Attributes:
        cost: Expected cost in joules, by lane and arm; NaN if unknown.
        low: Lower end of its 95 % interval; `high` is the upper end. NaN if unknown.
        standing: See `ArmStatus`.
    """

    cost: Floats
    low: Floats
    high: Floats
    standing: Ints


@dataclass
class FirstEpochs(Arrays):
    """Measurements of the first epoch of running trials, one entry for each lane involved.

    Attributes:
        arm: Their batch size.
        gpu: Index of the GPU model.
        epoch_cost: Cost of one epoch in joules at the chosen power limit; NaN if unknown.
        load: Average power as a fraction of the power limit; NaN if unknown.
    """

    arm: Ints
    gpu: Ints
    epoch_cost: Floats
    load: Floats


@dataclass
class Appraisals(Arrays):
    """What choices were worth when they were made, one entry for each requested job.

    Attributes:
        against: Arm that the choice is compared with: the best known one for an exploration, the
            default otherwise.
        saving: Expected saving compared with it, as a fraction of its cost; `low` and `high` are
            the ends of its 95 % interval. NaN if unknown.
        worth: What an exploration is expected to save over `horizon` later runs beyond what it
            costs, in runs of the best known batch size; NaN if it is none.
        horizon: Number of later runs over which it must pay off; NaN if it is none.
        risk: What the trial is expected to cost beyond a run of the best known, in such runs; NaN
            if it is none.
    """

    against: Ints
    saving: Floats
    low: Floats
    high: Floats
    worth: Floats
    horizon: Floats
    risk: Floats


WITHIN = 1.96  # half width of a 95 % interval in standard deviations


class Policy(ABC):
    """Decides for recurring jobs.

    Attributes:
        name: As in `JobSpec.policy`.
        crosses_gpus: Whether knowledge transfers from one GPU model to another. If not, the caller
            keeps one state for each GPU model.
        avoids_unfit: Whether batch sizes that do not fit in the memory of a GPU are left out there.
            If not, they fail like any other.
        measures_sizes: Whether it makes use of what an epoch costs at every batch size if that is
            measured beforehand, for some seconds.
        foresees_epochs: Whether a replay stops runs as the simulator of the paper's authors does:
            by the number of epochs that a threshold pays for at the best power limit. It knows
            their cost beforehand and leaves out what profiling adds. If not, a replay stops runs as
            production does.
    """

    name: ClassVar[str]
    crosses_gpus: ClassVar[bool] = False
    avoids_unfit: ClassVar[bool] = False
    measures_sizes: ClassVar[bool] = False
    foresees_epochs: bool = False

    @abstractmethod
    def begin(self, lanes: JobBatch, gpus: int = 1) -> Any:
        """Return the initial state of new jobs.

        Args:
            lanes: The jobs.
            gpus: Number of GPU models, for a policy that crosses them.
        """

    def add_gpu(self, state: Any) -> None:  # noqa: B027
        """Extend the state by a GPU model; only policies that cross GPUs need it."""

    @abstractmethod
    def choose(self, state: Any, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:
        """Choose the next trials.

        Args:
            state: The state of all lanes; it is not changed.
            rows: The lanes to decide for.
            gpu: GPU model that each will run on.
            attempt: 0 for a new recurrence, more for a retry within one.
        """

    def prepared(self, state: Any, lanes: JobBatch, gpu: Ints) -> Any:  # noqa: ARG002
        """Return the state that decisions on GPU models are made from.

        Args:
            state: The state of all jobs; it is not changed.
            lanes: The same jobs, in which only the batch sizes to choose from are valid.
            gpu: GPU model that each will run on.
        """
        return state if lanes is state.lanes else replace(state, lanes=lanes)

    def decided(self, state: Any, rows: Rows, choices: Choices) -> None:  # noqa: ARG002
        """Update the state for trials that begin.

        Args:
            state: The state of all lanes; it is changed.
            rows: The lanes of the trials.
            choices: As returned by `choose`.
        """
        state.decisions[rows] += 1

    def noted(self, state: Any, rows: Rows, notes: FirstEpochs) -> None:  # noqa: B027
        """Update the state for the first epoch of new batch sizes; their trials go on.

        Args:
            state: The state of all lanes; it is changed.
            rows: The lanes of the trials.
            notes: What was measured.
        """

    def measured(  # noqa: B027
        self, state: Any, rows: Rows, gpu: Ints, epoch_cost: Floats, load: Floats
    ) -> None:
        """Update the state for measurements without a trial.

        Args:
            state: The state of all jobs; it is changed.
            rows: The jobs that were measured.
            gpu: GPU model of each.
            epoch_cost: Cost of one epoch in joules, by job and batch size; NaN if it was not
                measured.
            load: Average power as a fraction of the power limit; NaN if unknown.
        """

    @abstractmethod
    def ended(self, state: Any, rows: Rows, trials: Trials) -> None:
        """Update the state for trials that ended.

        Args:
            state: The state of all lanes; it is changed.
            rows: The lanes of the trials.
            trials: How they ended.
        """

    def beliefs(self, state: Any, rows: Rows, gpu: Ints) -> Beliefs:  # noqa: ARG002
        """Return the expected cost of every batch size; unknown unless a policy overrides this.

        Args:
            state: The state of all lanes; it is not changed.
            rows: The requested lanes.
            gpu: GPU model that each would run on.
        """
        nothing = np.full(state.lanes.valid[rows].shape, np.nan)
        standing = np.full(nothing.shape, ArmStatus.UNKNOWN, dtype=np.int64)
        return Beliefs(nothing, nothing, nothing, standing)

    def appraise(
        self,
        state: Any,  # noqa: ARG002
        rows: Rows,  # noqa: ARG002
        gpu: Ints,  # noqa: ARG002
        choices: Choices,  # noqa: ARG002
    ) -> Appraisals | None:
        """Return what choices are worth, before they are carried out; `None` if it is not known.

        Args:
            state: The state of all jobs that the choices were made from; it is not changed.
            rows: The jobs.
            gpu: GPU model that each will run on.
            choices: As returned by `choose`.
        """
        return None


def simple_choices(arm: Ints, role: Role | Ints, threshold: Floats | float = np.inf) -> Choices:
    """Return choices of batch sizes, with defaults for everything else.

    Args:
        arm: Index of the batch size, by lane.
        role: Purpose of the trials; see `Role`.
        threshold: Cost in joules at which they are stopped.
    """
    count = len(arm)
    return Choices(
        arm=arm,
        role=np.broadcast_to(np.asarray(role, dtype=np.int64), (count,)),
        power=np.full(count, OPTIMIZED),
        threshold=np.broadcast_to(np.asarray(threshold, dtype=np.float64), (count,)),
        expected_epochs=np.full(count, np.nan),
        restart_cost=np.full(count, np.inf),
    )

"""The seam between policies and whoever runs jobs.

A policy's state is a fold over the events of a job: `begin`, then `decided`, `noted` and `ended`
for each event in order. `choose` reads the state and changes nothing. A server folds the log it has
stored; a replay carries the state along. Every method works on many jobs at once, and what it does
for one of them does not depend on the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from zeus.optimizer.batch_size.lanes import (
    OPTIMIZED,
    Arrays,
    Choices,
    Floats,
    Ints,
    Lanes,
    Role,
    Rows,
    Trials,
)


@dataclass
class State(Arrays):
    """What a policy knows; subclasses add arrays.

    Attributes:
        lanes: The jobs.
        decisions: How many decisions were made so far, by lane; they number the random draws.
    """

    lanes: Lanes
    decisions: Ints


class Standing(IntEnum):
    """What is known of a batch size."""

    UNKNOWN = 0  # nothing yet
    EXPECTED = 1  # only what others tell about it
    PROVEN = 2  # runs have converged
    MISSED = 3  # runs have not converged, and none has
    PRUNED = 4  # given up
    UNFIT = 5  # does not even run


@dataclass
class Outlook(Arrays):
    """What is believed about the cost until the target is reached, for people.

    Attributes:
        cost: Expected joules, by lane and arm; NaN if nothing is believed.
        low: Lower end of an interval that the expected cost lies in with 95 %, and `high`; NaN if
            no such thing is believed.
        standing: See `Standing`.
    """

    cost: Floats
    low: Floats
    high: Floats
    standing: Ints


@dataclass
class Notes(Arrays):
    """What the first epoch of trials has told that go on, one entry for each lane concerned.

    Attributes:
        arm: Their batch size.
        gpu: Number of the GPU model.
        epoch_cost: Joules of one epoch at the power limit that was settled on; NaN if unknown.
        load: Average power as a share of the power limit; NaN if unknown.
    """

    arm: Ints
    gpu: Ints
    epoch_cost: Floats
    load: Floats


WITHIN = 1.96  # standard deviations to either side of the mean that 95 % lie within


class Policy(ABC):
    """Decides for recurring jobs.

    Attributes:
        name: As in `JobSpec.policy`.
        crosses_gpus: Whether what was learned on one GPU model serves on another. If not, whoever
            runs jobs keeps one state for each GPU model.
    """

    name: ClassVar[str]
    crosses_gpus: ClassVar[bool] = False

    @abstractmethod
    def begin(self, lanes: Lanes, gpus: int = 1) -> Any:
        """State of jobs of which nothing is known yet.

        Args:
            lanes: The jobs.
            gpus: How many GPU models there will be, for a policy that crosses them.
        """

    def add_gpu(self, state: Any) -> None:  # noqa: B027
        """Make room for another GPU model; only policies that cross GPUs need it."""

    @abstractmethod
    def choose(self, state: Any, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:
        """What to run next.

        Args:
            state: The state of all lanes; it is not changed.
            rows: The lanes that ask.
            gpu: GPU model that each will run on.
            attempt: 0 for a new recurrence, more for a retry within one.
        """

    def decided(self, state: Any, rows: Rows, choices: Choices) -> None:  # noqa: ARG002
        """Take note of trials that begin."""
        state.decisions[rows] += 1

    def noted(self, state: Any, rows: Rows, notes: Notes) -> None:  # noqa: B027
        """Take note of what the first epoch of a new batch size has told; the trial goes on."""

    @abstractmethod
    def ended(self, state: Any, rows: Rows, trials: Trials) -> None:
        """Take note of trials that ended."""

    def outlook(self, state: Any, rows: Rows, gpu: Ints) -> Outlook:  # noqa: ARG002
        """What is believed about every batch size; nothing, unless a policy says otherwise.

        Args:
            state: The state of all lanes; it is not changed.
            rows: The lanes that are asked about.
            gpu: GPU model that each would run on.
        """
        nothing = np.full(state.lanes.valid[rows].shape, np.nan)
        standing = np.full(nothing.shape, Standing.UNKNOWN, dtype=np.int64)
        return Outlook(nothing, nothing, nothing, standing)


def simple_choices(arm: Ints, role: Role | Ints, threshold: Floats | float = np.inf) -> Choices:
    """Choices of batch sizes, with everything else left open."""
    count = len(arm)
    return Choices(
        arm=arm,
        role=np.broadcast_to(np.asarray(role, dtype=np.int64), (count,)),
        power=np.full(count, OPTIMIZED),
        threshold=np.broadcast_to(np.asarray(threshold, dtype=np.float64), (count,)),
        expected_epochs=np.full(count, np.nan),
        restart_cost=np.full(count, np.inf),
    )

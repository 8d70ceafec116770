"""The seam between policies and whoever runs jobs.

A policy's state is a fold over the events of a job: `begin`, then `decided` and `ended` for each
event in order. `choose` reads the state and changes nothing. A server folds the log it has stored;
a replay carries the state along. Every method works on many jobs at once, and what it does for one
of them does not depend on the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
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

    @abstractmethod
    def ended(self, state: Any, rows: Rows, trials: Trials) -> None:
        """Take note of trials that ended."""


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

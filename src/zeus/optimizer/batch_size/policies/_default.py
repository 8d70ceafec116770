"""The baseline without any exploration: the default batch size, the power limit unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import (
    UNTOUCHED,
    Choices,
    Ints,
    JobBatch,
    Role,
    Rows,
    Trials,
)
from zeus.optimizer.batch_size.policies._base import Policy, State, simple_choices


class DefaultPolicy(Policy):
    """Always chooses the default batch size."""

    name = "default"

    def begin(self, lanes: JobBatch, gpus: int = 1) -> State:  # noqa: ARG002
        """Return the initial state of new jobs."""
        return State(lanes=lanes, decisions=np.zeros(len(lanes), dtype=np.int64))

    def choose(self, state: State, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:  # noqa: ARG002
        """Choose the default batch size."""
        arm = state.lanes.default[rows]
        return replace(simple_choices(arm, Role.DEFAULT), power=np.full(len(arm), UNTOUCHED))

    def ended(self, state: State, rows: Rows, trials: Trials) -> None:
        """Do nothing: this policy does not learn."""

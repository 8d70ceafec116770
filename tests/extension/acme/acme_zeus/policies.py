"""A policy: every batch size once, from the smallest up, then what cost least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zeus.optimizer.batch_size.policies import (
    Choices,
    JobBatch,
    Policy,
    Role,
    State,
    Trials,
    simple_choices,
)


@dataclass
class TryAllState(State):
    """Adds the lowest cost and what is untried, by job and batch size."""

    cost: np.ndarray
    untried: np.ndarray


class TryAll(Policy):
    """Works on all jobs at once: rows are jobs."""

    name = "try-all"
    avoids_unfit = True

    def begin(self, lanes: JobBatch, gpus: int = 1) -> TryAllState:
        decisions = np.zeros(len(lanes), dtype=np.int64)
        cost = np.full(lanes.valid.shape, np.inf)
        return TryAllState(lanes, decisions, cost, lanes.valid.copy())

    def choose(self, state: TryAllState, rows: Any, gpu: Any, attempt: Any) -> Choices:
        untried = state.untried[rows] & state.lanes.valid[rows]
        cost = np.where(state.lanes.valid[rows], state.cost[rows], np.inf)
        known = np.isfinite(cost).any(axis=1)
        best = np.where(known, cost.argmin(axis=1), state.lanes.default[rows])
        exploring = untried.any(axis=1)
        arm = np.where(exploring, untried.argmax(axis=1), best)
        return simple_choices(arm, np.where(exploring, Role.EXPLORE, Role.EXPLOIT))

    def decided(self, state: TryAllState, rows: Any, choices: Choices) -> None:
        super().decided(state, rows, choices)
        state.untried[np.arange(len(state.lanes))[rows], choices.arm] = False

    def ended(self, state: TryAllState, rows: Any, trials: Trials) -> None:
        here = np.arange(len(state.lanes))[rows], trials.arm
        least = np.minimum(state.cost[here], trials.cost)
        state.cost[here] = np.where(trials.converged, least, state.cost[here])


class Unregistered(TryAll):
    """Likewise, without an entry point."""

    name = "unregistered"


class Impostor(TryAll):
    """Has the name of one of Zeus's own."""

    name = "zeus"


class Failing(TryAll):
    """Fails when it is asked."""

    name = "failing"

    def choose(self, state: TryAllState, rows: Any, gpu: Any, attempt: Any) -> Choices:
        raise IndexError("no such arm")

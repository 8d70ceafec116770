"""The paper's policy with one component removed (section 6.7, Figure 13).

Early stopping is disabled by a setting (`beta` of `None`). The two others change the algorithm, so
they are subclasses; each documents how the paper's text was interpreted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from paper.product import (
    Bools,
    Choices,
    Floats,
    Ints,
    JobBatch,
    PaperPolicy,
    PaperState,
    Rows,
    Trials,
)


class WithoutPruning(PaperPolicy):
    """Keeps batch sizes that missed the target (as the paper describes it).

    Exploration does not end at a miss, and no batch size is removed. A run that is stopped counts
    at least the threshold: what it had cost by then is no more than a lower bound.
    """

    name: ClassVar[str] = "paper-without-pruning"

    def _costs(self, state: PaperState, rows: Rows, trials: Trials) -> Floats:
        threshold = self._threshold(state, rows)
        stopped = ~trials.converged & np.isfinite(threshold)
        costs = super()._costs(state, rows, trials)
        return np.maximum(costs, np.where(stopped, threshold, 0.0))

    def _advance(
        self, state: PaperState, lanes: Ints, arms: Ints, converged: Bools, costs: Floats
    ) -> None:
        # The best of a round must still be one that converged.
        finite = np.where(converged, costs, costs + _MISSED)
        super()._advance(state, lanes, arms, np.ones_like(converged), finite)


# Joules; more than any run costs, so that runs that missed the target rank last.
_MISSED = 1e15


@dataclass
class UnprofiledState(PaperState):
    """State of the policy without just-in-time profiling.

    Attributes:
        next_power: Index of the power limit for the next run of each batch size, from the highest
            down; -1 after all were tried.
        best_power: Index of the power limit with the lowest epoch cost so far; `best_cost` is that
            cost in joules.
    """

    next_power: Ints
    best_power: Ints
    best_cost: Floats


class WithoutJitProfiling(PaperPolicy):
    """Tries power limits in different recurrences, one in each.

    The first runs of a batch size use one power limit after the other, from the highest down; later
    runs use the one with the lowest epoch cost.
    """

    name: ClassVar[str] = "paper-without-jit-profiling"

    def begin(self, lanes: JobBatch, gpus: int = 1) -> UnprofiledState:
        """Return the initial state of jobs."""
        plain = super().begin(lanes, gpus)
        known = {field.name: getattr(plain, field.name) for field in fields(plain)}
        highest = np.broadcast_to((lanes.power_limits - 1)[:, None], lanes.valid.shape)
        return UnprofiledState(
            **known,
            next_power=highest.copy(),
            best_power=highest.copy(),
            best_cost=np.full(lanes.valid.shape, np.inf),
        )

    def choose(self, state: PaperState, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:
        """Choose the batch size as the paper does, and the power limit by trying each."""
        assert isinstance(state, UnprofiledState)
        choices = super().choose(state, rows, gpu, attempt)
        at = np.arange(len(state.lanes))[rows], choices.arm
        pending = state.next_power[at]
        return replace(choices, power=np.where(pending >= 0, pending, state.best_power[at]))

    def ended(self, state: PaperState, rows: Rows, trials: Trials) -> None:
        """Record the cost of an epoch at this power limit."""
        assert isinstance(state, UnprofiledState)
        at = np.arange(len(state.lanes))[rows], trials.arm
        better = trials.epoch_cost < state.best_cost[at]
        state.best_power[at] = np.where(better, trials.power, state.best_power[at])
        state.best_cost[at] = np.where(better, trials.epoch_cost, state.best_cost[at])
        pending = state.next_power[at]
        state.next_power[at] = np.where(trials.power == pending, pending - 1, pending)
        super().ended(state, rows, trials)

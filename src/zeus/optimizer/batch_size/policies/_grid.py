"""The baseline that tries every batch size at every power limit once, then uses the best.

Batch sizes that do not converge are pruned. It starts at the default, like the paper's exploration,
so that batch sizes near the one in use come before the far ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import (
    Bools,
    Choices,
    Floats,
    Ints,
    JobBatch,
    Role,
    Rows,
    Trials,
)
from zeus.optimizer.batch_size.policies._base import (
    ArmStatus,
    Beliefs,
    Policy,
    State,
    simple_choices,
)


@dataclass
class GridState(State):
    """State of grid search.

    Attributes:
        cost: Lowest converged cost in joules, by lane, arm and power limit.
        open: Configurations that are not tried yet, in the same shape.
        order: Index of each arm in the order of exploration, by lane and arm.
    """

    cost: Floats
    open: Bools
    order: Ints


class GridPolicy(Policy):
    """Grid search with pruning."""

    name = "grid"
    avoids_unfit = True

    def begin(self, lanes: JobBatch, gpus: int = 1) -> GridState:  # noqa: ARG002
        """Return the initial state of new jobs."""
        limits = max(int(lanes.power_limits.max()), 1)
        arm = np.arange(lanes.arms)
        default = lanes.default[:, None]
        shape = (*lanes.valid.shape, limits)
        offered = np.arange(limits) < np.maximum(lanes.power_limits, 1)[:, None, None]
        return GridState(
            lanes=lanes,
            decisions=np.zeros(len(lanes), dtype=np.int64),
            cost=np.full(shape, np.inf),
            open=offered & lanes.valid[:, :, None],
            # From the default downwards, then upwards.
            order=np.where(arm <= default, default - arm, arm),
        )

    def choose(self, state: GridState, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:  # noqa: ARG002
        """Choose the next configuration, or the best one after the last."""
        opened, cost = state.open[rows] & state.lanes.valid[rows][:, :, None], state.cost[rows]
        jobs, arms, limits = opened.shape
        # From the highest power limit downwards, batch size by batch size.
        place = state.order[rows][:, :, None] * limits + (limits - 1 - np.arange(limits))
        place = np.where(opened, place, arms * limits).reshape(jobs, -1)
        exploring = opened.reshape(jobs, -1).any(axis=1)
        flat = cost.reshape(jobs, -1)
        fallback = state.lanes.default[rows] * limits + np.maximum(
            state.lanes.power_limits[rows] - 1, 0
        )
        best = np.where(np.isfinite(flat.min(axis=1)), flat.argmin(axis=1), fallback)
        chosen = np.where(exploring, place.argmin(axis=1), best)
        role = np.where(exploring, Role.EXPLORE, Role.EXPLOIT)
        return replace(simple_choices(chosen // limits, role), power=chosen % limits)

    def decided(self, state: GridState, rows: Rows, choices: Choices) -> None:
        """Close the configuration, so that overlapping trials do not repeat it."""
        state.decisions[rows] += 1
        lanes = np.arange(len(state.lanes))[rows]
        state.open[lanes, choices.arm, choices.power] = False

    def ended(self, state: GridState, rows: Rows, trials: Trials) -> None:
        """Keep the cost, or prune the batch size."""
        lanes = np.arange(len(state.lanes))[rows]
        here = (lanes, trials.arm, trials.power)
        least = np.minimum(state.cost[here], trials.cost)
        state.cost[here] = np.where(trials.converged, least, state.cost[here])
        failed = ~trials.converged & ~trials.void
        state.open[lanes[failed], trials.arm[failed]] = False
        # A trial that was killed gives no information; its configuration is tried again.
        killed = trials.void & (trials.role == Role.EXPLORE)
        state.open[lanes[killed], trials.arm[killed], trials.power[killed]] = True

    def beliefs(self, state: GridState, rows: Rows, gpu: Ints) -> Beliefs:  # noqa: ARG002
        """Return the lowest cost at any power limit; grid search has no intervals."""
        least, opened = state.cost[rows].min(axis=2), state.open[rows].any(axis=2)
        seen = np.isfinite(least)
        nothing = np.full(least.shape, np.nan)
        standing = np.where(opened, ArmStatus.UNKNOWN, ArmStatus.MISSED)
        standing = np.where(seen, ArmStatus.PROVEN, standing)
        return Beliefs(np.where(seen, least, np.nan), nothing, nothing, standing)

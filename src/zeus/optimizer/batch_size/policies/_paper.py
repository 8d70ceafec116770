"""The policy of the Zeus paper (NSDI '23, algorithms 1 to 3).

Exploration with pruning: from the default downwards until a batch size does not converge, then
upwards, over all rounds; then Gaussian Thompson sampling with a flat prior and learned variance. A
run is stopped at `beta` times the lowest cost of one that converged.

Choices where the paper leaves details open: pruning never empties the set; a window also applies to
the stopping threshold; one observation, or several equal ones, do not imply zero variance; a trial
in flight pins later ones to the best known batch size only while pruning.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    any_arm,
)
from zeus.optimizer.batch_size.policies._base import (
    WITHIN,
    ArmStatus,
    Beliefs,
    Policy,
    State,
    simple_choices,
)
from zeus.optimizer.batch_size.policies._randomness import normal

# Runs of the same configuration differ by up to 14 % (paper, section 3.2): the standard deviation
# assumed for one observation. However many are equal, it stays at least 1 % of the mean cost.
_SINGLE, _EQUAL = 0.14, 0.01
_PIVOT, _DOWN, _UP = 0, 1, 2


@dataclass
class PaperState(State):
    """State of the paper's policy.

    Attributes:
        kept: Batch sizes that are not pruned, by lane and arm.
        tried: Batch sizes explored in this round.
        converged: Batch sizes that converged in this round.
        round_cost: Lowest cost of each in this round, in joules.
        round: Completed rounds, by lane.
        pivot: Arm where this round began.
        stage: Position in the round: at the pivot, downwards, or upwards.
        cursor: Arm being explored.
        exploring: Exploratory trials in flight; at most one.
        count: Number of converged observations by arm; `mean` is their mean, and `squares` their
            sum of squared deviations.
        least: Lowest converged cost by arm.
        floor: Lowest converged cost of the job, the base of the stopping threshold.
        ring: Costs in the window of each arm; `ring_next` is the index of the next.
        recent: Costs of the job's latest trials, infinite for those that did not converge;
            `recent_next` is the index of the next.
    """

    kept: Bools
    tried: Bools
    converged: Bools
    round_cost: Floats
    round: Ints
    pivot: Ints
    stage: Ints
    cursor: Ints
    exploring: Ints
    count: Floats
    mean: Floats
    squares: Floats
    least: Floats
    floor: Floats
    ring: Floats
    ring_next: Ints
    recent: Floats
    recent_next: Ints


class PaperPolicy(Policy):
    """Exploration with pruning, then Gaussian Thompson sampling."""

    name = "paper"

    def begin(self, lanes: JobBatch, gpus: int = 1) -> PaperState:  # noqa: ARG002
        """Return the initial state of new jobs."""
        shape, jobs = lanes.valid.shape, len(lanes)
        window = int(lanes.window.max()) if jobs else 0
        whole = np.zeros(jobs, dtype=np.int64)
        return PaperState(
            lanes=lanes,
            decisions=whole.copy(),
            kept=lanes.valid.copy(),
            tried=np.zeros(shape, dtype=np.bool_),
            converged=np.zeros(shape, dtype=np.bool_),
            round_cost=np.full(shape, np.inf),
            round=whole.copy(),
            pivot=lanes.default.copy(),
            stage=whole.copy(),
            cursor=lanes.default.copy(),
            exploring=whole.copy(),
            count=np.zeros(shape),
            mean=np.zeros(shape),
            squares=np.zeros(shape),
            least=np.full(shape, np.inf),
            floor=np.full(jobs, np.inf),
            ring=np.full((*shape, window), np.nan),
            ring_next=np.zeros(shape, dtype=np.int64),
            recent=np.full((jobs, window), np.inf),
            recent_next=whole.copy(),
        )

    def choose(self, state: PaperState, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:  # noqa: ARG002
        """Choose the batch size to explore, the best known one, or a Thompson sample."""
        least = state.least[rows]
        floor = least.min(axis=1)
        beta = state.lanes.beta[rows]
        bounded = np.isfinite(beta)  # infinity times a cost of 0 would be NaN
        threshold = np.where(bounded, np.where(bounded, beta, 1.0) * state.floor[rows], np.inf)
        pruning = state.round[rows] < state.lanes.rounds[rows]
        pinned = state.exploring[rows] > 0
        best = np.where(np.isfinite(floor), least.argmin(axis=1), state.lanes.default[rows])
        arm = np.where(pinned, best, state.cursor[rows])
        role = np.where(pinned, Role.EXPLOIT, Role.EXPLORE)
        if not pruning.all():
            drawn = self._draw(state, rows)
            arm = np.where(pruning, arm, drawn)
            role = np.where(pruning, role, Role.SAMPLE)
        return simple_choices(arm, role, threshold)

    def _draw(self, state: PaperState, rows: Rows) -> Ints:
        """Draw by algorithm 1, with an independent belief for every kept batch size."""
        count, mean = state.count[rows], state.mean[rows]
        lanes = state.lanes
        draws = normal(
            lanes.seed[rows][:, None], state.decisions[rows][:, None], np.arange(lanes.arms)
        )
        # A batch size without any observation comes before all others.
        spread = self._spread(state, rows)
        belief = np.where(count > 0, mean + spread * draws, -1 / (2 + draws**2))
        drawn: Ints = np.where(state.kept[rows], belief, np.inf).argmin(axis=1)
        return drawn

    def _spread(self, state: PaperState, rows: Rows) -> Floats:
        """Return the standard error of the mean: with a flat prior, the posterior deviation."""
        count = state.count[rows]
        least_spread = np.where(count > 1, _EQUAL, _SINGLE) * state.mean[rows]
        enough = np.maximum(count, 1)
        variance = np.maximum(state.squares[rows] / enough, least_spread**2)
        spread: Floats = np.sqrt(variance / enough)
        return spread

    def beliefs(self, state: PaperState, rows: Rows, gpu: Ints) -> Beliefs:  # noqa: ARG002
        """Return the mean cost of the runs that converged, with its 95 % interval."""
        seen = state.count[rows] > 0
        mean = np.where(seen, state.mean[rows], np.nan)
        reach = WITHIN * self._spread(state, rows)
        missed = state.tried[rows] & ~state.converged[rows] & ~seen
        standing = np.where(seen, ArmStatus.PROVEN, ArmStatus.UNKNOWN)
        standing = np.where(missed, ArmStatus.MISSED, standing)
        standing = np.where(state.kept[rows], standing, ArmStatus.PRUNED)
        return Beliefs(mean, np.maximum(mean - reach, 0.0), mean + reach, standing)

    def decided(self, state: PaperState, rows: Rows, choices: Choices) -> None:
        """Pin later trials while a batch size is being explored."""
        state.decisions[rows] += 1
        state.exploring[rows] += choices.role == Role.EXPLORE

    def ended(self, state: PaperState, rows: Rows, trials: Trials) -> None:
        """Observe the cost, and advance the exploration if this was a part of it."""
        explored = trials.role == Role.EXPLORE
        state.exploring[rows] -= explored
        self._observe(state, rows, trials)
        going_on = explored & ~trials.void
        if going_on.any():
            lanes = np.arange(len(state.lanes))[rows][going_on]
            self._advance(
                state,
                lanes,
                trials.arm[going_on],
                trials.converged[going_on],
                trials.cost[going_on],
            )

    # --- observing (algorithm 2) ----------------------------------------------------------------

    def _observe(self, state: PaperState, rows: Rows, trials: Trials) -> None:
        every = np.arange(len(state.lanes))[rows]
        windowed = state.lanes.window[rows] > 0
        plain = trials.converged & ~windowed
        lanes, arms, costs = every[plain], trials.arm[plain], trials.cost[plain]
        count = state.count[lanes, arms] + 1
        deviation = costs - state.mean[lanes, arms]
        mean = state.mean[lanes, arms] + deviation / count
        state.count[lanes, arms] = count
        state.mean[lanes, arms] = mean
        state.squares[lanes, arms] += deviation * (costs - mean)
        state.least[lanes, arms] = np.minimum(state.least[lanes, arms], costs)
        state.floor[lanes] = np.minimum(state.floor[lanes], costs)
        sliding = windowed & ~trials.void
        if sliding.any():
            costs = np.where(trials.converged, trials.cost, np.inf)
            self._slide(state, every[sliding], trials.arm[sliding], costs[sliding])

    def _slide(self, state: PaperState, lanes: Ints, arms: Ints, costs: Floats) -> None:
        """Replace the oldest observations of the window.

        Each batch size has its own window, so that it is not forgotten while others run. The
        stopping threshold depends on the job's latest trials, so that old costs are forgotten.
        """
        window = state.lanes.window[lanes]
        place = state.recent_next[lanes]
        state.recent[lanes, place] = costs
        state.recent_next[lanes] = (place + 1) % window
        state.floor[lanes] = state.recent[lanes].min(axis=1)
        seen = np.isfinite(costs)
        lanes, arms, costs, window = lanes[seen], arms[seen], costs[seen], window[seen]
        place = state.ring_next[lanes, arms]
        state.ring[lanes, arms, place] = costs
        state.ring_next[lanes, arms] = (place + 1) % window
        ring = state.ring[lanes, arms]
        held = np.isfinite(ring)
        count = held.sum(axis=1)
        mean = np.where(held, ring, 0.0).sum(axis=1) / np.maximum(count, 1)
        state.count[lanes, arms] = count
        state.mean[lanes, arms] = mean
        state.squares[lanes, arms] = (np.where(held, ring - mean[:, None], 0.0) ** 2).sum(axis=1)
        state.least[lanes, arms] = np.where(held, ring, np.inf).min(axis=1, initial=np.inf)

    # --- exploration with pruning (algorithm 3) ---------------------------------------------------

    def _advance(
        self, state: PaperState, lanes: Ints, arms: Ints, converged: Bools, costs: Floats
    ) -> None:
        state.tried[lanes, arms] = True
        state.converged[lanes, arms] |= converged
        least = state.round_cost[lanes, arms]
        state.round_cost[lanes, arms] = np.where(converged, np.minimum(least, costs), least)

        stage, pivot, kept = state.stage[lanes], state.pivot[lanes], state.kept[lanes]
        arm = np.arange(state.lanes.arms)
        below = kept & (arm < np.where(stage == _PIVOT, pivot, state.cursor[lanes])[:, None])
        # Downwards after the pivot, as long as batch sizes converge.
        down = any_arm(below) & ((stage == _PIVOT) | ((stage == _DOWN) & converged))
        begun_up = (stage == _UP) & converged
        above = kept & (arm > np.where(stage == _UP, state.cursor[lanes], pivot)[:, None])
        up = ~down & any_arm(above) & ((stage != _UP) | begun_up)
        highest_below = len(arm) - 1 - below[:, ::-1].argmax(axis=1)
        cursor = np.where(down, highest_below, np.where(up, above.argmax(axis=1), pivot))
        state.cursor[lanes] = cursor
        state.stage[lanes] = np.where(down, _DOWN, np.where(up, _UP, stage))
        over = ~down & ~up
        if over.any():
            self._end_round(state, lanes[over])

    def _end_round(self, state: PaperState, lanes: Ints) -> None:
        kept, converged = state.kept[lanes], state.converged[lanes]
        found = any_arm(converged)
        # Nothing converged: try the batch sizes that were not tried, or all of them again.
        untried = kept & ~state.tried[lanes]
        rest = np.where(any_arm(untried)[:, None], untried, state.lanes.valid[lanes])
        kept = np.where(found[:, None], converged, rest)
        distance = np.abs(np.arange(state.lanes.arms) - state.lanes.default[lanes][:, None])
        nearest = np.where(kept, distance, np.iinfo(np.int64).max).argmin(axis=1)
        pivot = np.where(found, state.round_cost[lanes].argmin(axis=1), nearest)
        state.kept[lanes] = kept
        state.round[lanes] += found
        state.pivot[lanes] = pivot
        state.cursor[lanes] = pivot
        state.stage[lanes] = _PIVOT
        state.tried[lanes] = False
        state.converged[lanes] = False
        state.round_cost[lanes] = np.inf

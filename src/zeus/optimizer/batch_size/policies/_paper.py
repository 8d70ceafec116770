"""The policy of the Zeus paper (NSDI '23, algorithms 1 to 3), as published and repaired.

Exploration with pruning: from the default downwards until a batch size does not converge, then
upwards, over all rounds; then Gaussian Thompson sampling with a flat prior and learned variance. A
run is stopped at `beta` times the lowest cost so far.

Options (`_paper_options.py`) are the points where the authors' program stumbles, or decides what
the paper leaves open. With `AS_PUBLISHED` the policy decides as that program does; where it raises
an error, the policy goes on with the default batch size. `REPAIRED` is the same algorithm without
the stumbles.
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
from zeus.optimizer.batch_size.policies._paper_options import (
    AS_PUBLISHED,
    REPAIRED,
    PaperOptions,
)
from zeus.optimizer.batch_size.policies._randomness import normal

# Runs of the same configuration differ by up to 14 % (paper, section 3.2): the standard deviation
# assumed for one observation. However many are equal, it stays at least 1 % of the mean cost.
_SINGLE, _EQUAL = 0.14, 0.01
_PIVOT, _DOWN, _UP = 0, 1, 2
# A run that is not even begun, because its first epoch would cost too much, is observed to cost
# this many thresholds.
_REFUSED = 100.0


@dataclass
class PaperState(State):
    """State of the paper's policy.

    Attributes:
        kept: Batch sizes that are not pruned, by job and arm.
        tried: Batch sizes explored in this round.
        converged: Batch sizes that converged in this round.
        round_cost: Lowest cost of each in this round, in joules.
        round: Completed rounds, by job.
        pivot: Arm where this round began.
        stage: Position in the round: at the pivot, downwards, or upwards.
        cursor: Arm being explored.
        exploring: Exploratory trials in flight; at most one.
        running: All trials in flight.
        spent: Cost of the misses since the latest run that converged.
        count: Number of observations by arm; `mean` is their mean, and `squares` their sum of
            squared deviations.
        least: Lowest converged cost by arm.
        floor: Lowest converged cost of the job, the base of the stopping threshold.
        ring: Observed costs in the window of each arm; `ring_next` is the index of the next.
        ring_converged: The same, infinite for runs that missed the target.
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
    running: Ints
    spent: Floats
    count: Floats
    mean: Floats
    squares: Floats
    least: Floats
    floor: Floats
    ring: Floats
    ring_converged: Floats
    ring_next: Ints
    recent: Floats
    recent_next: Ints


class PaperPolicy(Policy):
    """Exploration with pruning, then Gaussian Thompson sampling.

    Attributes:
        options: Which of the published choices apply.
    """

    name = "paper"

    def __init__(self, options: PaperOptions = AS_PUBLISHED) -> None:
        self.options = options
        self.foresees_epochs = options.foresee_epochs

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
            running=whole.copy(),
            spent=np.zeros(jobs),
            count=np.zeros(shape),
            mean=np.zeros(shape),
            squares=np.zeros(shape),
            least=np.full(shape, np.inf),
            floor=np.full(jobs, np.inf),
            ring=np.full((*shape, window), np.nan),
            ring_converged=np.full((*shape, window), np.inf),
            ring_next=np.zeros(shape, dtype=np.int64),
            recent=np.full((jobs, window), np.inf),
            recent_next=whole.copy(),
        )

    def choose(self, state: PaperState, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:  # noqa: ARG002
        """Choose the batch size to explore, the best known one, or a Thompson sample."""
        least, kept = state.least[rows], state.kept[rows]
        default = state.lanes.default[rows]
        pruning = state.round[rows] < state.lanes.rounds[rows]
        waiting = state.running if self.options.always_pin else state.exploring
        pinned = (waiting[rows] > 0) & (pruning | self.options.always_pin)
        best = np.where(np.isfinite(least.min(axis=1)), least.argmin(axis=1), default)
        arm, role = state.cursor[rows], np.full(len(best), Role.EXPLORE, dtype=np.int64)
        if not pruning.all():
            arm = np.where(pruning, arm, self._draw(state, rows))
            role = np.where(pruning, role, Role.SAMPLE)
        empty = ~any_arm(kept)
        arm, role = np.where(empty, default, arm), np.where(empty, Role.DEFAULT, role)
        arm, role = np.where(pinned, best, arm), np.where(pinned, Role.EXPLOIT, role)
        return simple_choices(arm, role, self._threshold(state, rows))

    def _threshold(self, state: PaperState, rows: Rows) -> Floats:
        beta = state.lanes.beta[rows]
        bounded = np.isfinite(beta)  # infinity times a cost of 0 would be NaN
        threshold: Floats = np.where(
            bounded, np.where(bounded, beta, 1.0) * state.floor[rows], np.inf
        )
        return threshold

    def _draw(self, state: PaperState, rows: Rows) -> Ints:
        """Draw by algorithm 1, with an independent belief for every kept batch size."""
        count, mean = state.count[rows], state.mean[rows]
        lanes = state.lanes
        draws = normal(
            lanes.seed[rows][:, None], state.decisions[rows][:, None], np.arange(lanes.arms)
        )
        # A batch size without enough observations comes before all others.
        known = count > 0
        if self.options.equal_is_certain:
            known &= (count > 1) | (lanes.window[rows] == 1)[:, None]
        belief = np.where(known, mean + self._spread(state, rows) * draws, -1 / (2 + draws**2))
        drawn: Ints = np.where(state.kept[rows], belief, np.inf).argmin(axis=1)
        return drawn

    def _spread(self, state: PaperState, rows: Rows) -> Floats:
        """Return the standard error of the mean: with a flat prior, the posterior deviation."""
        count = state.count[rows]
        enough = np.maximum(count, 1)
        variance = state.squares[rows] / enough
        if not self.options.equal_is_certain:
            least_spread = np.where(count > 1, _EQUAL, _SINGLE) * state.mean[rows]
            variance = np.maximum(variance, least_spread**2)
        spread: Floats = np.sqrt(variance / enough)
        return spread

    def beliefs(self, state: PaperState, rows: Rows, gpu: Ints) -> Beliefs:  # noqa: ARG002
        """Return the mean observed cost, with its 95 % interval.

        What runs cost that missed the target says nothing about the cost of reaching it: it is
        unknown for a batch size that never did.
        """
        seen = state.count[rows] > 0
        proven = seen & np.isfinite(state.least[rows])
        mean = np.where(proven, state.mean[rows], np.nan)
        reach = WITHIN * self._spread(state, rows)
        missed = ~proven & (seen | (state.tried[rows] & ~state.converged[rows]))
        standing = np.where(proven, ArmStatus.PROVEN, ArmStatus.UNKNOWN)
        standing = np.where(missed, ArmStatus.MISSED, standing)
        standing = np.where(state.kept[rows], standing, ArmStatus.PRUNED)
        return Beliefs(mean, np.maximum(mean - reach, 0.0), mean + reach, standing)

    def decided(self, state: PaperState, rows: Rows, choices: Choices) -> None:
        """Count trials in flight, which pin later ones."""
        state.decisions[rows] += 1
        state.running[rows] += 1
        state.exploring[rows] += choices.role == Role.EXPLORE

    def ended(self, state: PaperState, rows: Rows, trials: Trials) -> None:
        """Observe the cost, and advance the exploration if this was a part of it."""
        explored = trials.role == Role.EXPLORE
        state.exploring[rows] -= explored
        state.running[rows] -= 1
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
        converged = np.where(trials.converged, trials.cost, np.inf)
        costs = self._costs(state, rows, trials)
        observed = trials.converged.copy()
        if self.options.observe_misses:
            observed |= ~trials.void & np.isfinite(costs)
        windowed = state.lanes.window[rows] > 0
        plain = observed & ~windowed
        self._add(state, every[plain], trials.arm[plain], costs[plain])
        if windowed.any():
            seen = observed & windowed
            self._slide(state, every[seen], trials.arm[seen], costs[seen], converged[seen])
        forgets = windowed & (not self.options.keep_threshold)
        kept = trials.converged & ~forgets
        here = every[kept], trials.arm[kept]
        state.least[here] = np.minimum(state.least[here], trials.cost[kept])
        lowest = self._recurrence_costs(state, rows, trials)
        state.floor[every[kept]] = np.minimum(state.floor[every[kept]], lowest[kept])
        forgetting = forgets & ~trials.void
        if forgetting.any():
            self._forget(state, every[forgetting], lowest[forgetting])

    def _costs(self, state: PaperState, rows: Rows, trials: Trials) -> Floats:
        """Return the costs as they are observed; infinite where nothing can be observed."""
        refused = ~trials.converged & (trials.epochs == 0)
        costs: Floats = np.where(refused, _REFUSED * self._threshold(state, rows), trials.cost)
        return costs

    def _recurrence_costs(self, state: PaperState, rows: Rows, trials: Trials) -> Floats:
        """Return the costs that converged runs took, with the misses before; infinite for misses.

        Of several runs in flight, it is not known whose misses there were.
        """
        alone = self.options.whole_recurrences & (state.running[rows] == 0)
        whole = np.where(alone, state.spent[rows], 0.0) + trials.cost
        left = np.where(trials.void, state.spent[rows], whole)
        state.spent[rows] = np.where(trials.converged, 0.0, left)
        costs: Floats = np.where(trials.converged, whole, np.inf)
        return costs

    def _add(self, state: PaperState, jobs: Ints, arms: Ints, costs: Floats) -> None:
        """Add observations to the mean and the variance."""
        count = state.count[jobs, arms] + 1
        deviation = costs - state.mean[jobs, arms]
        mean = state.mean[jobs, arms] + deviation / count
        state.count[jobs, arms] = count
        state.mean[jobs, arms] = mean
        state.squares[jobs, arms] += deviation * (costs - mean)

    def _slide(
        self, state: PaperState, jobs: Ints, arms: Ints, costs: Floats, converged: Floats
    ) -> None:
        """Replace the oldest observations of the window.

        Each batch size has its own window, so that it is not forgotten while others run.
        """
        place = state.ring_next[jobs, arms]
        state.ring[jobs, arms, place] = costs
        state.ring_converged[jobs, arms, place] = converged
        state.ring_next[jobs, arms] = (place + 1) % state.lanes.window[jobs]
        ring = state.ring[jobs, arms]
        held = np.isfinite(ring)
        count = held.sum(axis=1)
        mean = np.where(held, ring, 0.0).sum(axis=1) / np.maximum(count, 1)
        state.count[jobs, arms] = count
        state.mean[jobs, arms] = mean
        state.squares[jobs, arms] = (np.where(held, ring - mean[:, None], 0.0) ** 2).sum(axis=1)
        if not self.options.keep_threshold:
            state.least[jobs, arms] = state.ring_converged[jobs, arms].min(axis=1, initial=np.inf)

    def _forget(self, state: PaperState, jobs: Ints, costs: Floats) -> None:
        """Let the threshold rest on the job's latest trials only."""
        place = state.recent_next[jobs]
        state.recent[jobs, place] = costs
        state.recent_next[jobs] = (place + 1) % state.lanes.window[jobs]
        state.floor[jobs] = state.recent[jobs].min(axis=1)

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
        # Downwards as long as batch sizes converge, or in any case after the pivot.
        going_on = converged if self.options.skip_below else converged | (stage == _PIVOT)
        down = any_arm(below) & (stage != _UP) & going_on
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
        over, nearest = found, state.pivot[lanes]
        if self.options.may_empty:
            kept, over = converged, np.ones_like(found)
        else:
            # Nothing converged: try the batch sizes that were not tried, or all of them again.
            untried = kept & ~state.tried[lanes]
            rest = np.where(any_arm(untried)[:, None], untried, state.lanes.valid[lanes])
            kept = np.where(found[:, None], converged, rest)
            distance = np.abs(np.arange(state.lanes.arms) - state.lanes.default[lanes][:, None])
            nearest = np.where(kept, distance, np.iinfo(np.int64).max).argmin(axis=1)
        pivot = np.where(found, state.round_cost[lanes].argmin(axis=1), nearest)
        state.kept[lanes] = kept
        state.round[lanes] += over
        state.pivot[lanes] = pivot
        state.cursor[lanes] = pivot
        state.stage[lanes] = _PIVOT
        state.tried[lanes] = False
        state.converged[lanes] = False
        state.round_cost[lanes] = np.inf


class RepairedPaperPolicy(PaperPolicy):
    """The paper's policy without the stumbles of the authors' program."""

    name = "paper-repaired"

    def __init__(self) -> None:
        super().__init__(REPAIRED)

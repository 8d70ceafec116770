"""The `zeus` policy: explore what is worth it, within a budget, and never lock in.

**Model.** The cost of a run is Epochs(b) x EpochCost(b). EpochCost is known exactly once a batch
size has been profiled on a GPU; Epochs does not depend on the GPU. Two smooth curves over log b are
learned, as Gaussian processes: log Epochs from noisy runs, some of them censored ("more than n")
and all of them whole numbers (`_learning.py`), and log EpochCost from one profile for each batch
size and GPU (`_prices.py`).

**Rule.** Let r be the *reference*, the batch size with the least expected cost of those that have
converged. For every other one, `_valuation.py` computes in units of r's cost

    gain_m(b)   what m trials of b are expected to save in each later run
    waste(b)    what a trial of b is expected to cost beyond a run of r

and what exploring b is worth is, over a horizon of H later runs,

    worth(b) = max over m of  H gain_m(b) - m (waste(b) + risk(b)),  H = horizon + per_run x trials
    risk(b)  = max(0, a(b) - 1) x horizon / H x (caution, or blind x waste(b) without EpochCost(b))

where a(b) is how far b is away in doublings, from r and from the nearest one that has converged, on
average: leaps are risky as long as little is known. The batch size of the highest worth is chosen,
r itself if none is worth more than 0 (its own runs also show whether another one is better; that is
r's worth). Those that the exploration budget does not allow are left out (`_budget.py`).

**First night.** Nothing has converged, so there is no reference: the default runs. But if programs
have measured beforehand what an epoch costs at every batch size, the one of the least expected cost
runs, where uncertainty counts against those that are far from the default (`_convergence.py`).

**Guarantee.** After n runs of b its gain is at least mistrust / 2^n, its waste is bounded, and H
grows with every trial. So every batch size is tried again and again, on the other side of every
hill as well: none is ruled out forever, and if another one is better, the belief follows in the
end. And once the belief is right, wrong choices get ever rarer: trial n + 1 of b comes no sooner
than the gain justifies it, so that their number grows with the logarithm of the number of runs. The
budget grows with every run, too: it delays trials, but never forbids them.

**Stopping.** A run of a new batch size is stopped after its first epoch if its expected rest costs
more than starting over; later as soon as another epoch costs more than the chance to converge in
it is worth. Overlapping runs of a job learn from each other once one has measured an epoch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import (
    ALL,
    OPTIMIZED,
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
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._base import (
    WITHIN,
    Appraisals,
    ArmStatus,
    Beliefs,
    FirstEpochs,
    Policy,
)
from zeus.optimizer.batch_size.policies._belief import Belief, matern, tail_probability
from zeus.optimizer.batch_size.policies._budget import affordable
from zeus.optimizer.batch_size.policies._convergence import search
from zeus.optimizer.batch_size.policies._learning import FADED, fit_epochs, learn
from zeus.optimizer.batch_size.policies._prices import learn_early
from zeus.optimizer.batch_size.policies._valuation import TRIALS, valued
from zeus.optimizer.batch_size.policies._zeus_state import LEVEL, View, ZeusState

# Grid of the log cost that a run may take beyond its expected cost.
_PATIENCE = np.linspace(0.0, 1.0, 11)
# Log-cost advantage at which a batch size in flight leads others in its direction.
_BETTER = 0.12
# Doublings to a batch size that others may go on to before anything has converged.
_STEP = 1.01
# Runs that begin until the result of a new batch size is known, for each trial in flight.
_MEANWHILE = 2.0
# Number of retries with a batch size that has converged before, if data do not drift.
_PATIENT = 6
# After this many retries the cost of a run is unbounded.
_LAST_BOUNDED = 8


class ZeusPolicy(Policy):
    """Explores batch sizes that may pay off, and otherwise exploits the best."""

    name = "zeus"
    crosses_gpus = True
    avoids_unfit = True
    measures_sizes = True

    def __init__(self, assumptions: Assumptions | None = None) -> None:
        self.assume = Assumptions() if assumptions is None else assumptions

    def begin(self, lanes: JobBatch, gpus: int = 1) -> ZeusState:
        """Return the initial state of new jobs."""
        assume = self.assume
        jobs, arms = lanes.valid.shape
        log = np.log2(lanes.batch_sizes)
        position = log - log[np.arange(jobs), lanes.default][:, None]
        kernel = matern(position, assume.bend, assume.bend_length, assume.tilt, assume.rough)
        price = LEVEL**2 + matern(
            position, assume.price_bend, assume.price_length, assume.price_tilt, assume.price_rough
        )
        real, whole = np.zeros((jobs, arms)), np.zeros((jobs, gpus, arms), dtype=np.int64)
        state = ZeusState(
            lanes=lanes,
            decisions=np.zeros(jobs, dtype=np.int64),
            position=position,
            kernel=kernel,
            weight=real.copy(),
            epochs=real.copy(),
            bound=real.copy(),
            bounds=real.copy(),
            failed=real.copy(),
            misses=real.copy(),
            squares=np.zeros(jobs),
            freedom=np.zeros(jobs),
            belief=Belief(assume.trend * position, LEVEL**2 + kernel),
            price=Belief(np.zeros((jobs, gpus, arms)), np.repeat(price[:, None], gpus, axis=1)),
            profiled=whole > 0,
            tentative=whole > 0,
            unfit=whole,
            flying=np.zeros((jobs, arms), dtype=np.int64),
            ended=np.zeros(jobs, dtype=np.int64),
            fitted=np.zeros(jobs, dtype=np.int64),
            spent=np.zeros(jobs),
            nights=np.zeros(jobs),
            full=np.zeros((jobs, gpus)),
            overhead=np.zeros((jobs, 2)),
            view=View.blank(jobs, arms, len(TRIALS)),
        )
        valued(assume, state, ALL, np.zeros(jobs, dtype=np.int64)).store(state.view, ALL)
        return state

    def add_gpu(self, state: ZeusState) -> None:
        """Extend the state by a GPU model."""
        fresh = self.begin(state.lanes)
        price, added = state.price, fresh.price
        price.mean = np.concatenate((price.mean, added.mean), axis=1)
        price.covariance = np.concatenate((price.covariance, added.covariance), axis=1)
        for name in ("profiled", "tentative", "unfit", "full"):
            both = (getattr(state, name), getattr(fresh, name))
            setattr(state, name, np.concatenate(both, axis=1))

    def prepared(self, state: ZeusState, lanes: JobBatch, gpu: Ints) -> ZeusState:
        """Return the state with the view that decisions on GPU models are based on."""
        if lanes is state.lanes and (state.view.gpu == gpu).all():
            return state
        state = replace(state, lanes=lanes)
        return replace(state, view=valued(self.assume, state, ALL, gpu))

    # --- deciding ---------------------------------------------------------------------------------

    def choose(self, state: ZeusState, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:
        """Choose the batch size whose trial is worth most, and its cost threshold."""
        view = self.view(state, rows, gpu)
        each = np.arange(len(gpu))
        reference, some, lanes = view.reference, view.some, state.lanes
        # Before anything has converged, only batch sizes likely to be better are worth the risk.
        hoping = ~some
        worth = self.worth(state, rows, view)
        if hoping.any():
            hoping &= any_arm(view.proven) & (attempt == 0)
            doubtful = (view.deficit > -_BETTER) | (view.away > _STEP)
            worth = np.where(hoping[:, None] & doubtful, -np.inf, worth)
        worth[each, reference] = self.horizon(state, rows) * view.hint
        arm = worth.argmax(axis=1)
        # If no exploration pays off, run a batch size again that may have been unlucky.
        again = (state.ended[rows] > view.again_after) & (arm == reference)
        if again.any():
            again &= (state.flying[rows] == 0)[each, view.again]
            again &= affordable(state, rows, view)[each, view.again]
            arm = np.where(again, view.again, arm)
        arm = np.where(attempt > 0, reference, arm)
        if hoping.any():
            default = view.deficit[each, lanes.default[rows]]
            hoping &= default - view.deficit[each, arm] > _BETTER
        # Nothing has converged yet, or does anymore: search elsewhere. Where data do not drift, a
        # batch size that has converged will do so again; runs just miss some targets at times.
        patient = np.where(lanes.window[rows] > 0, 1, _PATIENT)
        lost = ~(some | hoping) | ((attempt > patient) & (state.misses[rows][each, reference] > 1))
        if lost.any():
            arm = np.where(lost, search(self.assume, state, rows, view, _BETTER), arm)
        # Without a budget for exploring, only the power limit is optimized.
        fixed = lanes.budget[rows] == 0
        arm = np.where(fixed, lanes.default[rows], arm)
        explores = ((arm != reference) | hoping) & ~lost & ~fixed
        # As long as no run has ended, only what epochs cost speaks for another than the default.
        untold = lost & ~fixed & (state.ended[rows] == 0) & (arm != lanes.default[rows])
        threshold = self._threshold(state, rows, view, arm, explores, attempt)
        untried = ~state.profiled[np.arange(len(lanes))[rows], gpu, arm]
        untried &= explores & some & view.met & np.isfinite(lanes.beta[rows])
        threshold = np.where(fixed, np.inf, threshold)
        return Choices(
            arm=arm,
            role=np.where(
                explores | untold,
                Role.EXPLORE,
                np.where(
                    attempt > 0, Role.RETRY, np.where(lost | fixed, Role.DEFAULT, Role.EXPLOIT)
                ),
            ),
            power=np.full(len(arm), OPTIMIZED),
            threshold=threshold,
            expected_epochs=np.exp(np.minimum(view.epochs[each, arm], 50.0)),
            restart_cost=np.where(untried, self.assume.restart * view.least, np.inf),
        )

    def view(self, state: ZeusState, rows: Rows, gpu: Ints) -> View:
        """Return what decisions on these GPU models are based on."""
        view = state.view.take(rows)
        if state.profiled.shape[1] > 1 and (view.gpu != gpu).any():
            return valued(self.assume, state, rows, gpu)
        return view

    def horizon(self, state: ZeusState, rows: Rows) -> Floats:
        """Return the number of later runs over which an exploration must pay off."""
        horizon = self.assume.horizon + self.assume.per_run * state.ended[rows]
        # Where data drift, knowledge is useful no longer than the window.
        window = state.lanes.window[rows]
        bounded: Floats = np.where(window > 0, np.minimum(horizon, 2.0 * window), horizon)
        return bounded

    def worth(self, state: ZeusState, rows: Rows, view: View) -> Floats:
        """Return what exploring each batch size is worth, in runs of the reference.

        Minus infinity where it is out of the question: not allowed, or already in flight.
        """
        horizon = self.horizon(state, rows)
        flying = state.flying[rows] > 0
        if flying.any():
            # New batch sizes in flight will soon have results. Exploring elsewhere at the same
            # time must pay for itself until then.
            new = flying & (state.weight[rows] == 0)
            new[np.arange(len(new)), view.reference] = False
            soon = _MEANWHILE * state.flying[rows].sum(axis=1)
            horizon = np.where(view.some & any_arm(new), np.minimum(horizon, soon), horizon)
        far = np.maximum(view.away - 1.0, 0.0)
        far = far * (self.assume.horizon / self.horizon(state, rows))[:, None]
        priced = state.profiled[np.arange(len(state.lanes))[rows], view.gpu]
        risk = far * np.where(priced, self.assume.caution, self.assume.blind * view.waste)
        wasted = TRIALS * (view.waste + risk)[:, None]
        worth = (horizon[:, None, None] * view.gain - wasted).max(axis=1)
        if flying.any():
            # A batch size in flight is being explored. Others follow where costs are likely to
            # fall, if another trial pays for itself.
            onward = flying & ~view.proven & (view.deficit < -_BETTER)
            worth = np.where(flying, np.where(onward, -view.waste, -np.inf), worth)
        allowed = view.allowed & state.lanes.valid[rows] & affordable(state, rows, view)
        found: Floats = np.where(allowed, worth, -np.inf)
        return found

    def appraise(self, state: ZeusState, rows: Rows, gpu: Ints, choices: Choices) -> Appraisals:
        """Return the expected saving of choices, and what explorations are worth."""
        view = self.view(state, rows, gpu)
        every, each = np.arange(len(state.lanes))[rows], np.arange(len(gpu))
        arm = choices.arm
        explores = choices.role == Role.EXPLORE
        against = np.where(explores, view.reference, state.lanes.default[rows])
        deficit = view.deficit[each, arm] - view.deficit[each, against]
        epochs, price = state.belief.covariance[every], state.price.covariance[every, gpu]
        spread = np.sqrt(
            _variance_between(epochs, arm, against) + _variance_between(price, arm, against)
        )
        known = view.some & view.met & (arm != against)
        low, middle, high = (
            np.where(known, -np.expm1(np.clip(deficit + WITHIN * side * spread, -50, 50)), np.nan)
            for side in (1, 0, -1)
        )
        explores &= view.some
        worth = horizon = np.full(len(arm), np.nan)
        if explores.any():  # most choices are none, and this takes most of the time
            worth = self.worth(state, rows, view)[each, arm]
            worth = np.where(explores & np.isfinite(worth), worth, np.nan)
            horizon = np.where(explores, self.horizon(state, rows), np.nan)
        return Appraisals(
            against=against,
            saving=middle,
            low=low,
            high=high,
            worth=worth,
            horizon=horizon,
            risk=np.where(explores, np.maximum(view.waste[each, arm], 0.0), np.nan),
        )

    def _threshold(  # noqa: PLR0917  (what a decision is made of)
        self, state: ZeusState, rows: Rows, view: View, arm: Ints, explores: Bools, attempt: Ints
    ) -> Floats:
        """Return the maximum cost of trials in joules; infinite if there is none."""
        beta = state.lanes.beta[rows]
        # A run of a proven batch size may be unlucky; one of another may never converge.
        patience = beta.copy()
        unsure = np.flatnonzero(explores & ~view.proven[np.arange(len(arm)), arm])
        if len(unsure):
            allowance = self._patience(view.take(unsure), arm[unsure])
            patience[unsure] = np.minimum(allowance, beta[unsure])
        # If retries fail, it may be that everything takes longer now.
        patience = patience * np.exp2(np.minimum(np.maximum(attempt - 1, 0), 50))
        bounded = view.some & view.met & (attempt < _LAST_BOUNDED) & np.isfinite(beta)
        threshold: Floats = np.where(bounded, patience * view.least, np.inf)
        return threshold

    def _patience(self, view: View, arm: Ints) -> Floats:
        """Return the maximum cost of an unproven batch size, in units of the reference.

        Another epoch is worth it as long as the probability to converge in it, which saves a
        restart, exceeds its cost. A batch size may also never converge; that becomes more likely
        with every epoch in which it could have converged.
        """
        each = np.arange(len(arm))
        at = each, arm
        deficit = np.clip(view.deficit[at], -3.0, 3.0)[:, None]
        spread = np.sqrt(view.spread[at] + view.noise[at])[:, None]
        epoch = np.exp(np.minimum(view.price[at] - view.best, 5.0))[:, None]
        cost = np.exp(_PATIENCE + deficit)
        now = tail_probability(_PATIENCE / spread)
        then = tail_probability((np.log(cost + epoch) - deficit) / spread)
        never = view.never[at][:, None]
        hope = (1 - never) * now / (never + (1 - never) * now)
        going_on = hope * (1 - then / np.maximum(now, 1e-300)) > epoch
        last = len(_PATIENCE) - 1 - going_on[:, ::-1].argmax(axis=1)
        last = np.where(going_on.any(axis=1), last, 0)
        # The epoch of the expected convergence is always run, and what costs no more than the
        # reference is no loss.
        rest = np.where(going_on.any(axis=1), 1.0, 0.5)
        patience: Floats = np.maximum(cost[each, last] + rest * epoch[:, 0], 1.0)
        return patience

    # --- learning ---------------------------------------------------------------------------------

    def decided(self, state: ZeusState, rows: Rows, choices: Choices) -> None:
        """Count trials in flight, so that nothing is explored twice at once."""
        state.decisions[rows] += 1
        state.flying[np.arange(len(state.lanes))[rows], choices.arm] += 1

    def noted(self, state: ZeusState, rows: Rows, notes: FirstEpochs) -> None:
        """Learn the cost of an epoch before the trial ends, for decisions until then."""
        learn_early(self.assume, state, np.arange(len(state.lanes))[rows], notes)
        self._fit(state, rows, notes.gpu)

    def measured(
        self, state: ZeusState, rows: Rows, gpu: Ints, epoch_cost: Floats, load: Floats
    ) -> None:
        """Learn the cost of an epoch at many batch sizes."""
        every = np.arange(len(state.lanes))[rows]
        known = np.isfinite(epoch_cost) & state.lanes.valid[rows]
        for number in np.flatnonzero(known.any(axis=0)):
            some = known[:, number]
            arm = np.full(int(some.sum()), number)
            notes = FirstEpochs(arm, gpu[some], epoch_cost[some, number], load[some, number])
            learn_early(self.assume, state, every[some], notes)
        self._fit(state, rows, gpu)

    def ended(self, state: ZeusState, rows: Rows, trials: Trials) -> None:
        """Learn the cost of an epoch, and the epochs until convergence or a lower bound."""
        due = learn(self.assume, state, rows, trials)
        if due.all():
            self._fit(state, rows, trials.gpu)
        elif due.any():
            self._fit(state, np.arange(len(state.lanes))[rows][due], trials.gpu[due])

    def _fit(self, state: ZeusState, rows: Rows, gpu: Ints) -> None:
        fit_epochs(self.assume, state, rows, gpu)
        valued(self.assume, state, rows, gpu).store(state.view, rows)

    def beliefs(self, state: ZeusState, rows: Rows, gpu: Ints) -> Beliefs:
        """Return Epochs times EpochCost with 95 % intervals, once a run has shown both."""
        view = valued(self.assume, state, rows, gpu)
        every = np.arange(len(state.lanes))[rows]
        variance = np.diagonal(state.belief.covariance[rows], axis1=1, axis2=2)
        variance = variance + np.diagonal(state.price.covariance[every, gpu], axis1=1, axis2=2)
        known = (view.some & view.met)[:, None]
        mean = np.where(known, np.clip(view.epochs + view.price, -300.0, 300.0), np.nan)
        reach = WITHIN * np.sqrt(np.maximum(variance, 0.0))
        proven = view.proven & view.some[:, None]
        missed = ~proven & (state.failed[rows] > FADED)
        standing = np.where(known, ArmStatus.EXPECTED, ArmStatus.UNKNOWN)
        standing = np.where(missed, ArmStatus.MISSED, standing)
        standing = np.where(proven, ArmStatus.PROVEN, standing)
        unfit = state.unfit[every, gpu] > state.weight[rows]
        standing = np.where(unfit, ArmStatus.UNFIT, standing)
        ends = np.exp(np.clip((mean - reach, mean + reach), -300.0, 300.0))
        return Beliefs(np.exp(mean), ends[0], ends[1], standing)


def _variance_between(covariance: Floats, one: Ints, other: Ints) -> Floats:
    """Return the variance of the difference between two arms, by job."""
    each = np.arange(len(one))
    total = covariance[each, one, one] + covariance[each, other, other]
    variance: Floats = np.maximum(total - 2 * covariance[each, one, other], 0.0)
    return variance

"""The `zeus` policy: learn only what is uncertain, and stop a trial that can no longer win.

The cost of a run is Epochs(b) x EpochCost(b). EpochCost is known exactly once a batch size has been
profiled on a GPU; Epochs does not depend on the GPU. Both are smooth in log b, and their product is
unimodal. So two curves over log b are learned: log Epochs from noisy runs (some of them censored:
"more than n") and log EpochCost from one profile for each batch size and GPU.

A batch size is explored if its expected saving over future recurrences exceeds the expected waste
of the trial. Nothing is ever ruled out: as a job recurs, ever smaller savings are worth exploring,
and batch sizes that may have been unlucky are sampled again. Overlapping jobs learn from each other
as soon as one has measured the cost of an epoch.
"""

from __future__ import annotations

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
from zeus.optimizer.batch_size.policies._base import WITHIN, ArmStatus, Beliefs, FirstEpochs, Policy
from zeus.optimizer.batch_size.policies._belief import (
    Belief,
    fitted,
    likely_gain,
    lower_bound_shift,
    matern,
    relative,
    tail_probability,
)
from zeus.optimizer.batch_size.policies._prices import learn_prices
from zeus.optimizer.batch_size.policies._prospects import (
    another_look,
    hoped_for,
    most_gain,
    never_converges,
    within_reach,
)
from zeus.optimizer.batch_size.policies._zeus_state import LEVEL, View, ZeusState

# Grid of the log cost that a run may take beyond its expected cost.
_PATIENCE = np.linspace(0.0, 1.0, 11)
# Numbers of trials whose gain is evaluated together; one may be too few to change the choice.
_TRIALS = np.array([1.0, 4.0, 16.0])[:, None]
# Log-cost advantage at which a batch size in flight leads others in its direction.
_BETTER = 0.12
# Jobs that begin until the result of a new batch size is known, for each trial in flight.
_MEANWHILE = 2.0
# Change of a batch size's mean, as a logarithm, that requires a new fit.
_MOVED = 0.02
# Number of retries with a batch size that has converged before, if data do not drift.
_PATIENT = 6
# After this many retries the cost of a run is unbounded.
_LAST_BOUNDED = 8
# Runs that have faded to this weight prove nothing anymore.
_FADED = 0.3


class ZeusPolicy(Policy):
    """Explores batch sizes that may pay off, and otherwise exploits the best."""

    name = "zeus"
    crosses_gpus = True

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
        blank = View.blank(jobs, arms, len(_TRIALS))
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
            fit=np.zeros((jobs, 2)),
            price=Belief(np.zeros((jobs, gpus, arms)), np.repeat(price[:, None], gpus, axis=1)),
            price_fit=np.zeros((jobs, gpus, 2)),
            profiled=whole > 0,
            tentative=whole > 0,
            unfit=whole,
            flying=np.zeros((jobs, arms), dtype=np.int64),
            ended=np.zeros(jobs, dtype=np.int64),
            fitted=np.zeros(jobs, dtype=np.int64),
            view=blank,
        )
        self._look(state, ALL, np.zeros(jobs, dtype=np.int64)).store(state.view, ALL)
        return state

    def add_gpu(self, state: ZeusState) -> None:
        """Extend the state by a GPU model."""
        fresh = self.begin(state.lanes)
        price, added = state.price, fresh.price
        price.mean = np.concatenate((price.mean, added.mean), axis=1)
        price.covariance = np.concatenate((price.covariance, added.covariance), axis=1)
        for name in ("price_fit", "profiled", "tentative", "unfit"):
            both = (getattr(state, name), getattr(fresh, name))
            setattr(state, name, np.concatenate(both, axis=1))

    # --- deciding ---------------------------------------------------------------------------------

    def choose(self, state: ZeusState, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:
        """Choose the batch size whose trial has the highest value, and its cost threshold."""
        view = state.view.take(rows)
        if state.profiled.shape[1] > 1 and (view.gpu != gpu).any():
            view = self._look(state, rows, gpu)
        each = np.arange(len(gpu))
        reference, some = view.reference, view.some
        horizon = self.assume.horizon + self.assume.per_run * state.ended[rows]
        # Where data drift, knowledge is useful no longer than the window.
        window = state.lanes.window[rows]
        horizon = np.where(window > 0, np.minimum(horizon, 2.0 * window), horizon)
        flying = state.flying[rows] > 0
        soon = horizon
        if flying.any():
            # New batch sizes in flight will soon have results. Exploring elsewhere at the same
            # time must pay for itself until then.
            new = flying & (state.weight[rows] == 0)
            new[each, reference] = False
            meanwhile = _MEANWHILE * state.flying[rows].sum(axis=1)
            soon = np.where(some & any_arm(new), np.minimum(horizon, meanwhile), horizon)
        worth = (soon[:, None, None] * view.gain - _TRIALS * view.waste[:, None]).max(axis=1)
        # A batch size in flight is already explored; another trial of it must pay for itself.
        open_ = view.open
        if flying.any():
            # Where costs are likely to fall, others may follow, or explore a step further.
            onward = flying & ~view.proven & (view.deficit < -_BETTER)
            worth = np.where(flying, np.where(onward, -view.waste, -np.inf), worth)
            # A step further only from where the cost of an epoch is known.
            onward &= state.profiled[np.arange(len(state.lanes))[rows], gpu]
            open_ = open_.copy()
            open_[:, 1:] |= onward[:, :-1]
            open_[:, :-1] |= onward[:, 1:]
            open_ &= view.allowed
        worth = np.where(open_, worth, -np.inf)
        # Before anything has converged, only batch sizes likely to be better are worth the risk.
        hoping = ~some
        if hoping.any():
            hoping &= any_arm(view.proven) & (attempt == 0)
            worth = np.where(hoping[:, None] & (view.deficit > -_BETTER), -np.inf, worth)
        # Running the best again wastes nothing, and may show that another is better.
        worth[each, reference] = horizon * view.hint
        arm = worth.argmax(axis=1)
        # If no exploration pays off, sample an arm again that may have been unlucky.
        look = (state.ended[rows] > view.look_after) & (arm == reference)
        if look.any():
            look &= ~flying[each, view.look]
            arm = np.where(look, view.look, arm)
        arm = np.where(attempt > 0, reference, arm)
        if hoping.any():
            default = view.deficit[each, state.lanes.default[rows]]
            hoping &= default - view.deficit[each, arm] > _BETTER
        # Nothing has converged yet, or does anymore: search elsewhere. Where data do not drift, a
        # batch size that has converged will do so again; runs just miss some targets at times.
        patient = np.where(window > 0, 1, _PATIENT)
        lost = ~(some | hoping) | ((attempt > patient) & (state.misses[rows][each, reference] > 1))
        if lost.any():
            arm = np.where(lost, self._search(state, rows, view), arm)
        explores = ((arm != reference) | hoping) & ~lost
        beta = state.lanes.beta[rows]
        # A run of a proven batch size may be unlucky; one of another may never converge.
        patience = beta.copy()
        unsure = np.flatnonzero(explores & ~view.proven[each, arm])
        if len(unsure):
            allowance = self._patience(view.take(unsure), arm[unsure])
            patience[unsure] = np.minimum(allowance, beta[unsure])
        # If retries fail, it may be that everything takes longer now.
        patience = patience * np.exp2(np.clip(attempt - 1, 0, 50))
        bounded = some & view.met & (attempt < _LAST_BOUNDED)
        threshold = np.where(bounded, patience * view.least, np.inf)
        untried = ~state.profiled[np.arange(len(state.lanes))[rows], gpu, arm]
        untried &= explores & some & view.met
        can_stop = np.isfinite(beta)
        return Choices(
            arm=arm,
            role=np.where(
                explores,
                Role.EXPLORE,
                np.where(attempt > 0, Role.RETRY, np.where(lost, Role.DEFAULT, Role.EXPLOIT)),
            ),
            power=np.full(len(arm), OPTIMIZED),
            threshold=np.where(can_stop, threshold, np.inf),
            expected_epochs=np.exp(np.clip(view.epochs[each, arm], -50, 50)),
            restart_cost=np.where(untried & can_stop, self.assume.restart * view.least, np.inf),
        )

    def _judge(self, state: ZeusState, rows: Rows, view: View, steps: Floats, sway: Floats) -> None:
        """Compute the expected gain of trials per future run, and the expected waste of one.

        In units of the cost of the reference.

        Args:
            state: State of all lanes.
            rows: The lanes of the view.
            view: The view to be completed.
            steps: Standard deviation by which trials would move the deficit of their arm; by lane,
                number of trials and arm.
            sway: Standard deviation by which trials of the reference would move the deficit of
                each arm.
        """
        deficit, never = view.deficit, view.never
        most = most_gain(self.assume, state, rows, view)

        def cut_off(step: Floats) -> Floats:
            """Return the expected gain, truncated at the maximum possible gain."""
            if step.ndim == deficit.ndim:
                return likely_gain(deficit, step) - likely_gain(deficit + most, step)
            usual = likely_gain(deficit[:, None], step)
            return usual - likely_gain((deficit + most)[:, None], step)

        # Where little is known, one trial is nearly as informative as several.
        share = np.where(view.proven, 0.0, self.assume.wild)[:, None]
        rare = cut_off(self.assume.wilder * steps[:, 0])[:, None]
        gain = (1 - share) * cut_off(steps) + share * rare
        # Where runs were cut off, an arm can only gain if those runs were unlucky.
        bounds = np.where(view.proven, 0.0, state.bounds[rows])
        if (bounds > _FADED).any():
            spent = np.log(np.maximum(state.bound[rows], 1.0)) + view.price - view.best[:, None]
            luck = np.sqrt(view.noise[:, None] + self.assume.luck**2 / np.maximum(bounds, _FADED))
            hope = likely_gain(np.maximum(spent, 0.0), luck)[:, None]
            gain = np.where(bounds[:, None] > _FADED, np.minimum(gain, hope), gain)
        view.gain = (1 - never[:, None]) * gain
        hint = np.where(view.proven, cut_off(sway), 0.0)
        hint[np.arange(len(hint)), view.reference] = 0.0
        view.hint = np.where(view.some, hint.max(axis=1), 0.0)
        # A bad trial is stopped: after its first epoch, or at its cost threshold.
        opening = 1.0 + np.exp(np.minimum(view.price - view.best[:, None], 5.0))
        waste = np.minimum(np.expm1(np.minimum(deficit + view.spread / 2, 5.0)), opening)
        view.waste = waste + view.never * np.maximum(opening - waste, 0.0)

    def _patience(self, view: View, arm: Ints) -> Floats:
        """Return the maximum cost of an unproven batch size, in units of the reference.

        Another epoch is worth it as long as the probability to converge in it, which saves a
        restart, exceeds its cost. A batch size may also never converge; that becomes more likely
        with every epoch in which it could have converged.
        """
        each = np.arange(len(arm))
        at = each, arm
        deficit = np.clip(view.deficit[at], -3.0, 3.0)[:, None]
        spread = np.sqrt(view.spread[at] + view.noise)[:, None]
        epoch = np.exp(np.minimum(view.price[at] - view.best, 5.0))[:, None]
        cost = np.exp(_PATIENCE + deficit)
        now = tail_probability(_PATIENCE / spread)
        then = tail_probability((np.log(cost + epoch) - deficit) / spread)
        never = view.never[at][:, None]
        hope = (1 - never) * now / (never + (1 - never) * now)
        going_on = hope * (1 - then / np.maximum(now, 1e-300)) > epoch
        last = len(_PATIENCE) - 1 - going_on[:, ::-1].argmax(axis=1)
        last = np.where(going_on.any(axis=1), last, 0)
        # The epoch of the expected convergence is always run.
        rest = np.where(going_on.any(axis=1), 1.0, 0.5)
        patience: Floats = cost[each, last] + rest * epoch[:, 0]
        return patience

    def _search(self, state: ZeusState, rows: Rows, view: View) -> Ints:
        """Choose arms while nothing has converged: outwards from the default, in large steps."""
        position = state.position[rows]
        misses, flying = state.misses[rows], state.flying[rows]
        near = np.abs(position[:, :, None] - position[:, None, :]) < 0.75
        failures = np.where(near, misses[:, None, :], 0.0).sum(axis=2) + 0.01 * misses
        order = failures * 1e3 + np.abs(position) + 0.5 * (position > 0)
        # While the default runs for the first time, one other job tries half of it: the next to
        # explore, at low risk, unless the load of the default shows that it is worse.
        half = (
            (position >= -1.01)
            & (position <= -0.45)
            & ~any_arm((flying > 0) & (position < 0))[:, None]
        )
        half &= any_arm(flying > 0)[:, None] & (failures == 0)
        default = state.lanes.default[rows][:, None]
        half &= view.deficit - np.take_along_axis(view.deficit, default, axis=1) < _BETTER
        order = np.where(half, position - 10.0, order)
        found: Ints = np.where(view.allowed, order, np.inf).argmin(axis=1)
        return found

    # --- learning ---------------------------------------------------------------------------------

    def decided(self, state: ZeusState, rows: Rows, choices: Choices) -> None:
        """Count trials in flight, so that nothing is explored twice at once."""
        state.decisions[rows] += 1
        state.flying[np.arange(len(state.lanes))[rows], choices.arm] += 1

    def noted(self, state: ZeusState, rows: Rows, notes: FirstEpochs) -> None:
        """Learn the cost of an epoch before the trial ends, for decisions until then."""
        every = np.arange(len(state.lanes))[rows]
        at = every, notes.gpu, notes.arm
        state.tentative[at] |= ~state.profiled[at] & np.isfinite(notes.epoch_cost)
        learn_prices(self.assume, state, every, notes)
        self._fit(state, rows, notes.gpu)

    def ended(self, state: ZeusState, rows: Rows, trials: Trials) -> None:
        """Learn the cost of an epoch, and the epochs until convergence or a lower bound."""
        every = np.arange(len(state.lanes))[rows]
        arm, at = trials.arm, (every, trials.arm)
        state.flying[at] -= 1
        state.ended[rows] += 1
        state.unfit[every, trials.gpu, arm] += trials.unfit
        cost = np.where(trials.epochs >= 1, trials.epoch_cost, np.nan)
        learn_prices(self.assume, state, every, FirstEpochs(arm, trials.gpu, cost, trials.load))
        state.tentative[every, trials.gpu, arm] = False
        converged = trials.converged
        missed = ~converged & ~trials.void
        cut = missed & ~trials.unfit & (trials.epochs >= 1)
        # A trial stopped at once for its epoch cost gives no information about its epochs.
        late = trials.epochs >= 0.5 * np.exp(np.minimum(state.belief.mean[at], 50.0))
        state.failed[at] += missed & (late | (trials.epochs >= state.lanes.max_epochs[rows]))
        state.misses[at] = np.where(converged, 0.0, state.misses[at] + missed)
        surprising = self._learn_noise(state, rows, every, trials)
        fade = 1 - 1 / np.maximum(state.lanes.window[rows], 1)
        if (fade > 0).any():
            fade = np.where(state.lanes.window[rows] > 0, fade, 1.0)[:, None]
            state.weight[rows] *= fade
            state.bounds[rows] *= fade
            # Non-convergence is forgotten more slowly: observing it again is expensive.
            state.failed[rows] *= fade**0.25
        weight = state.weight[at] + converged
        mean = state.epochs[at]
        # Epochs of failed runs count towards convergence, where it is known to happen.
        vain = cut & ((weight > _FADED) | (trials.epochs >= state.lanes.max_epochs[rows]))
        more = np.where(converged, trials.epochs - mean, np.where(vain, trials.epochs, 0.0))
        state.epochs[at] = mean + more / np.maximum(weight, _FADED)
        state.weight[at] = weight
        state.bound[at] = np.where(cut, np.maximum(state.bound[at], trials.epochs), state.bound[at])
        state.bounds[at] += cut
        # Runs as expected hardly change the belief; they accumulate until the next fit.
        due = state.ended[rows] >= state.fitted[rows] + np.maximum(state.fitted[rows] // 6, 1)
        due |= surprising | ~converged | (trials.role == Role.EXPLORE)
        if due.all():
            self._fit(state, rows, trials.gpu)
        elif due.any():
            self._fit(state, every[due], trials.gpu[due])

    def _learn_noise(self, state: ZeusState, rows: Rows, every: Ints, trials: Trials) -> Bools:
        """Learn the variance between runs of a batch size; return which runs were surprising."""
        at = every, trials.arm
        value = np.log(np.maximum(trials.epochs, 1.0))
        weight = state.weight[at]
        again = trials.converged & (weight > 0)
        off = value - np.log(np.maximum(state.epochs[at], 1.0))
        squared = np.minimum(off**2, 0.5)
        noise = self.noise(state, rows)
        state.squares[rows] += np.where(again, squared * weight / (weight + 1), 0.0)
        state.freedom[rows] += again
        # The prediction error of a new batch size shows how much batch sizes differ.
        belief = state.belief
        new = trials.converged & (weight == 0) & any_arm(state.weight[rows] > 0)
        expected = belief.covariance[every, trials.arm, trials.arm] + noise
        error = (value - belief.mean[at]) ** 2 / expected
        state.fit[rows, 0] += np.where(new, np.minimum(error, 9.0), 0.0)
        state.fit[rows, 1] += new
        # It also informs about noise, as far as the prediction was precise.
        share = noise / expected
        state.squares[rows] += np.where(
            new, noise * (1 - share + share * np.minimum(error, 9.0)), 0.0
        )
        state.freedom[rows] += new
        # A run that moves the mean of its batch size, not just another outlier.
        surprising: Bools = ~again | (np.abs(off) > _MOVED * (weight + 1))
        return surprising

    def noise(self, state: ZeusState, rows: Rows) -> Floats:
        """Return the variance of log Epochs between runs of the same batch size."""
        assume = self.assume
        prior = assume.noise_weight * assume.noise**2
        variance: Floats = (prior + state.squares[rows]) / (
            assume.noise_weight + state.freedom[rows]
        )
        return variance

    def scale(self, fit: Floats) -> Floats:
        """Return the factor on a curve's assumed variance, from prediction errors."""
        weight = self.assume.fit_weight
        scale: Floats = np.clip((weight + fit[..., 0]) / (weight + fit[..., 1]), 0.1, 4.0)
        return scale

    def _fit(self, state: ZeusState, rows: Rows, gpu: Ints) -> None:
        noise = self.noise(state, rows)
        weight = state.weight[rows]
        prior = self.assume.trend * state.position[rows]
        value, runs = np.log(np.maximum(state.epochs[rows], 1.0)), weight
        none = ~any_arm(weight > _FADED)
        if none.any():
            # Compare other arms with a running one before its result is known.
            hoped = none[:, None] & hoped_for(state, rows, gpu)
            value, runs = np.where(hoped, prior, value), np.where(hoped, 1.0, runs)
        belief = fitted(
            prior,
            LEVEL**2 + self.scale(state.fit[rows])[:, None, None] * state.kernel[rows],
            value,
            # A single run may be an outlier; of several, few are.
            runs / (noise[:, None] + self.assume.odd**2 / np.maximum(runs, 1.0)),
        )
        # A run that was cut off means that its batch size takes longer, or never converges. So it
        # says little about others, and nothing once runs of the same batch size converge.
        bounds = np.where(state.bounds[rows] > weight, state.bounds[rows], 0.0)
        if (bounds > _FADED).any():
            variance = np.diagonal(belief.covariance, axis1=1, axis2=2)
            luck = noise[:, None] + self.assume.luck**2 / np.maximum(bounds, _FADED)
            bound = np.log(np.maximum(state.bound[rows], 1.0))
            shift = lower_bound_shift(belief.mean, variance, bound, luck)
            belief.mean += np.where(bounds > _FADED, shift, 0.0)
        state.belief.mean[rows], state.belief.covariance[rows] = belief.mean, belief.covariance
        state.fitted[rows] = state.ended[rows]
        self._look(state, rows, gpu).store(state.view, rows)

    def _look(self, state: ZeusState, rows: Rows, gpu: Ints) -> View:
        """Compute the view that decisions on these GPU models are based on."""
        every = np.arange(len(state.lanes))[rows]
        each = np.arange(len(gpu))
        met = any_arm(state.profiled[every, gpu])
        source = gpu
        if state.profiled.shape[1] > 1 and not met.all():
            # Nothing is known on this GPU yet: use the shape of the costs on another.
            source = np.where(met, gpu, any_arm(state.profiled[every]).argmax(axis=1))
        mean, price = state.belief.mean[rows], state.price.mean[every, source]
        weight = state.weight[rows]
        valid = state.lanes.valid[rows]
        allowed = valid & (state.unfit[every, gpu] <= weight)
        allowed = np.where(any_arm(allowed)[:, None], allowed, valid)
        proven = (weight > _FADED) & allowed
        some = any_arm(proven)
        if not some.all():
            proven = np.where(some[:, None], proven, hoped_for(state, rows, gpu) & allowed)
        cost = mean + price
        # An arm that has just missed the target may miss it again.
        likely = cost + self.assume.relapse * state.misses[rows]
        reference = np.where(proven, likely, np.inf).argmin(axis=1)
        best = cost[each, reference]
        noise = self.noise(state, rows)
        variance, own, apart = relative(state.belief.covariance, (every,), reference)
        # A run that takes more than the maximum epochs does not converge either.
        most = np.log(state.lanes.max_epochs[rows] + 0.5)[:, None]
        beyond = tail_probability((most - mean) / np.sqrt(variance + noise[:, None]))
        if not some.all():
            beyond = np.where(some[:, None], beyond, 0.0)  # no epochs observed yet
        steps = own[:, None] ** 2 / (variance[:, None] + noise[:, None, None] / _TRIALS)
        shared = variance[each, reference] + noise / _TRIALS[1]
        sway = np.abs(apart - own) / np.sqrt(shared)[:, None]
        price_scale = self.scale(state.price_fit[every, source])[:, None]
        variance, own, price_apart = relative(state.price.covariance, (every, source), reference)
        sharp = price_scale * own**2 / np.maximum(variance, 1e-9)
        view = View(
            gpu=gpu,
            epochs=mean,
            price=price,
            deficit=cost - best[:, None],
            spread=apart + price_scale * price_apart,
            apart=apart,
            noise=noise,
            never=beyond,
            proven=proven,
            open=proven,
            allowed=allowed,
            some=some,
            met=met,
            reference=reference,
            best=best,
            least=np.exp(np.clip(best, -500.0, 500.0)),
            gain=steps,
            hint=best,
            waste=cost,
            look=reference,
            look_after=best,
        )
        view.never = never_converges(self.assume, state, rows, view, beyond)
        view.open = within_reach(self.assume, state, rows, view)
        self._judge(state, rows, view, np.sqrt(steps + sharp[:, None]), sway)
        view.look, view.look_after = another_look(self.assume, state, rows, view)
        return view

    def beliefs(self, state: ZeusState, rows: Rows, gpu: Ints) -> Beliefs:
        """Return Epochs times EpochCost with 95 % intervals, once a run has shown both."""
        view = self._look(state, rows, gpu)
        every = np.arange(len(state.lanes))[rows]
        scale = self.scale(state.price_fit[every, gpu])[:, None]
        variance = np.diagonal(state.belief.covariance[rows], axis1=1, axis2=2)
        variance = variance + scale * np.diagonal(
            state.price.covariance[every, gpu], axis1=1, axis2=2
        )
        known = (view.some & view.met)[:, None]
        mean = np.where(known, np.clip(view.epochs + view.price, -300.0, 300.0), np.nan)
        reach = WITHIN * np.sqrt(np.maximum(variance, 0.0))
        proven = view.proven & view.some[:, None]
        missed = ~proven & (state.failed[rows] > _FADED)
        standing = np.where(known, ArmStatus.EXPECTED, ArmStatus.UNKNOWN)
        standing = np.where(missed, ArmStatus.MISSED, standing)
        standing = np.where(proven, ArmStatus.PROVEN, standing)
        unfit = state.unfit[every, gpu] > state.weight[rows]
        standing = np.where(unfit, ArmStatus.UNFIT, standing)
        ends = np.exp(np.clip((mean - reach, mean + reach), -300.0, 300.0))
        return Beliefs(np.exp(mean), ends[0], ends[1], standing)

"""What trials of each batch size are expected to gain and to waste: the view of a decision.

Everything is relative to the *reference*, the batch size with the least expected cost of those that
have converged, and in units of its cost. For a batch size b, with d(b) the expected log cost beyond
the reference's (the deficit):

- *gain*: what is saved in each later run if m trials of b show that it is better,
  E[max(0, -(d + s Z))], with Z standard normal and s the standard deviation by which m trials
  would move d; and at least `mistrust` / 2^n after n runs of b, because the belief itself may be
  mistaken. So it is never 0, however bad b looks.
- *waste*: what a trial costs beyond a run of the reference. One that turns out badly is stopped
  after its first epoch, or at its cost threshold, and the run starts over with the reference.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Floats, Ints, Rows, any_arm
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._belief import (
    likely_gain,
    nearest,
    relative,
    tail_probability,
)
from zeus.optimizer.batch_size.policies._budget import needed, profiling_cost
from zeus.optimizer.batch_size.policies._convergence import hoped_for, never_converges
from zeus.optimizer.batch_size.policies._learning import FADED, noise_variance
from zeus.optimizer.batch_size.policies._zeus_state import View, ZeusState

# Numbers of trials whose gain is evaluated together; one may be too few to change the choice.
TRIALS = np.array([1.0, 4.0, 16.0])[:, None]
# Log cost beyond which it makes no difference how bad a batch size is.
_WORST = 5.0


def valued(assume: Assumptions, state: ZeusState, rows: Rows, gpu: Ints) -> View:
    """Return the view that decisions on these GPU models are based on.

    Args:
        assume: Prior assumptions.
        state: State of all jobs.
        rows: The jobs to decide for.
        gpu: GPU model that each will run on.
    """
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
    proven = (weight > FADED) & allowed
    some = any_arm(proven)
    if not some.all():
        proven = np.where(some[:, None], proven, hoped_for(state, rows, gpu) & allowed)
    cost = mean + price
    # A batch size that has just missed the target may miss it again.
    likely = cost + assume.relapse * state.misses[rows]
    reference = np.where(proven, likely, np.inf).argmin(axis=1)
    best = cost[each, reference]
    noise = noise_variance(assume, state, rows, mean)
    variance, own, apart = relative(state.belief.covariance, (every,), reference)
    # A run that takes more than the maximum epochs does not converge either.
    most = np.log(state.lanes.max_epochs[rows] + 0.5)[:, None]
    beyond = tail_probability((most - mean) / np.sqrt(variance + noise))
    if not some.all():
        beyond = np.where(some[:, None], beyond, 0.0)  # no epochs observed yet
    steps = own[:, None] ** 2 / (variance[:, None] + noise[:, None] / TRIALS)
    shared = variance[each, reference] + noise[each, reference] / TRIALS[1]
    sway = np.abs(apart - own) / np.sqrt(shared)[:, None]
    variance, own, price_apart = relative(state.price.covariance, (every, source), reference)
    sharp = own**2 / np.maximum(variance, 1e-9)
    default = state.lanes.default[rows]
    deficit = cost - best[:, None]
    position = state.position[rows]
    view = View(
        gpu=gpu,
        epochs=mean,
        price=price,
        deficit=deficit,
        spread=apart + price_apart,
        noise=noise,
        never=beyond,
        proven=proven,
        allowed=allowed,
        some=some,
        met=met,
        reference=reference,
        best=best,
        least=np.exp(np.minimum(best, 500.0)),
        gain=steps,
        hint=best,
        waste=cost,
        again=reference,
        again_after=best,
        default=np.where(proven[each, default], deficit[each, default], 0.0)
        + state.full[every, gpu],
        away=0.5 * np.abs(position - position[each, reference][:, None])
        + 0.5 * np.minimum(nearest(position, proven), 50.0),
        afford=cost,
    )
    view.never = never_converges(assume, state, rows, view, beyond)
    view.gain = _gain(assume, state, rows, view, np.sqrt(steps + sharp[:, None]))
    view.waste = _waste(state, rows, view)
    view.afford = needed(view)
    hint = np.where(view.proven, likely_gain(deficit, sway), 0.0)
    hint[each, reference] = 0.0
    view.hint = np.where(some, hint.max(axis=1), 0.0)
    view.again, view.again_after = _another_run(assume, state, rows, view)
    return view


def _gain(assume: Assumptions, state: ZeusState, rows: Rows, view: View, steps: Floats) -> Floats:
    """Return the expected gain of trials per later run, by job, number of trials and batch size.

    Args:
        assume: Prior assumptions.
        state: State of all jobs.
        rows: The jobs of the view.
        view: Beliefs about these jobs.
        steps: Standard deviation by which trials would move the deficit.
    """
    # A smooth curve says little about kinks, and whole epochs are steps; only a run shows them.
    untested = (state.weight[rows] + state.failed[rows]) <= FADED
    kink = np.sqrt(assume.kink**2 + assume.step**2 * np.exp(-2 * np.maximum(view.epochs, 0.0)))
    steps = np.where(untested[:, None], np.maximum(steps, kink[:, None]), steps)
    gain = likely_gain(view.deficit[:, None], steps)
    # Where runs were cut off, a batch size can only gain if those runs were unlucky.
    bounds = np.where(view.proven, 0.0, state.bounds[rows])
    if (bounds > FADED).any():
        spent = np.log(np.maximum(state.bound[rows], 1.0)) + view.price - view.best[:, None]
        luck = np.sqrt(view.noise + assume.luck**2 / np.maximum(bounds, FADED))
        hope = likely_gain(np.maximum(spent, 0.0), luck)[:, None]
        gain = np.where(bounds[:, None] > FADED, np.minimum(gain, hope), gain)
    # However sure the belief is, it may be mistaken; less so with every run of the batch size.
    runs = np.minimum(state.weight[rows] + state.failed[rows], 500.0)
    mistaken = assume.mistrust * np.exp2(-runs)
    mistaken[np.arange(len(mistaken)), view.reference] = 0.0
    expected: Floats = (1 - view.never[:, None]) * np.maximum(gain, mistaken[:, None])
    return expected


def _waste(state: ZeusState, rows: Rows, view: View) -> Floats:
    """Return the expected waste of one trial, by job and batch size."""
    epoch = np.exp(np.minimum(view.price - view.best[:, None], _WORST))
    most = 1.0 + epoch
    waste = np.minimum(np.expm1(np.minimum(view.deficit + view.spread / 2, _WORST)), most)
    waste = waste + view.never * np.maximum(most - waste, 0.0)
    every = np.arange(len(state.lanes))[rows]
    new = ~state.profiled[every, view.gpu] | state.tentative[every, view.gpu]
    wasted: Floats = waste + np.where(new, profiling_cost(state, rows)[:, None] * epoch, 0.0)
    return wasted


def _another_run(
    assume: Assumptions, state: ZeusState, rows: Rows, view: View
) -> tuple[Ints, Floats]:
    """Return a proven batch size that may still be better, and after how many trials it is due.

    Without this, a batch size whose first runs were unlucky would stay rejected while a nearly as
    good one does well. Its number is bounded: some runs for each doubling of the trials, and none
    of a batch size that is significantly worse.
    """
    each = np.arange(len(view.reference))
    worse = view.deficit + assume.worthwhile
    doubtful = view.proven & (worse * np.abs(worse) < assume.again**2 * view.spread)
    runs = np.where(doubtful, state.weight[rows], np.inf)
    runs[each, view.reference] = np.inf
    found: Ints = runs.argmin(axis=1)
    runs = runs[each, found]
    # Where data drift, old observations fade anyway.
    due = view.some & np.isfinite(runs) & (state.lanes.window[rows] == 0)
    doublings = np.where(due, np.minimum(runs / assume.runs_per_doubling, 500.0), 0.0)
    return found, np.where(due, assume.settled * np.exp2(doublings), np.inf)

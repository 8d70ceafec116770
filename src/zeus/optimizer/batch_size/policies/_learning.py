"""What the `zeus` policy learns from trials: epochs, their noise, and what an epoch costs.

Epochs are whole numbers: a curve is known only up to the rounding of one epoch, however many runs
there are. That is an independent deviation of each batch size, and a least noise of each run, the
larger the fewer epochs it takes.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import (
    Bools,
    Floats,
    Ints,
    Role,
    Rows,
    Trials,
    any_arm,
)
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._base import FirstEpochs
from zeus.optimizer.batch_size.policies._belief import fitted, lower_bound_shift
from zeus.optimizer.batch_size.policies._budget import account
from zeus.optimizer.batch_size.policies._convergence import hoped_for
from zeus.optimizer.batch_size.policies._prices import learn_prices
from zeus.optimizer.batch_size.policies._zeus_state import LEVEL, ZeusState

# Runs that have faded to this weight prove nothing anymore.
FADED = 0.3
# Variance of rounding to whole numbers.
_ROUNDING = 1 / 12
# Change of a batch size's mean, as a logarithm, that requires a new fit.
_MOVED = 0.02


def noise_variance(assume: Assumptions, state: ZeusState, rows: Rows, mean: Floats) -> Floats:
    """Return the variance of log Epochs between runs of the same batch size, by job and batch size.

    It is learned for all batch sizes together, and at least that of rounding to whole epochs.

    Args:
        assume: Prior assumptions.
        state: State of all jobs.
        rows: The jobs.
        mean: Expected log Epochs, by job and batch size.
    """
    prior = assume.noise_weight * assume.noise**2
    learned = (prior + state.squares[rows]) / (assume.noise_weight + state.freedom[rows])
    rounding = _ROUNDING * np.exp(-2 * np.maximum(mean, 0.0))
    variance: Floats = np.maximum(learned[:, None], rounding)
    return variance


def learn(assume: Assumptions, state: ZeusState, rows: Rows, trials: Trials) -> Bools:
    """Learn from trials that ended; return for which jobs the curve must be fitted again.

    Args:
        assume: Prior assumptions.
        state: State of all jobs; it is changed.
        rows: The jobs involved.
        trials: Their trials.
    """
    every = np.arange(len(state.lanes))[rows]
    arm, at = trials.arm, (every, trials.arm)
    state.flying[at] -= 1
    state.ended[rows] += 1
    state.unfit[every, trials.gpu, arm] += trials.unfit
    here = every, trials.gpu, arm
    first = ~state.profiled[here] | state.tentative[here]
    cost = np.where(trials.epochs >= 1, trials.epoch_cost, np.nan)
    learn_prices(assume, state, every, FirstEpochs(arm, trials.gpu, cost, trials.load))
    account(state, rows, every, trials, first)
    state.tentative[every, trials.gpu, arm] = False
    converged = trials.converged
    missed = ~converged & ~trials.void
    cut = missed & ~trials.unfit & (trials.epochs >= 1)
    # A trial stopped at once for its epoch cost gives no information about its epochs.
    late = trials.epochs >= 0.5 * np.exp(np.minimum(state.belief.mean[at], 50.0))
    state.failed[at] += missed & (late | (trials.epochs >= state.lanes.max_epochs[rows]))
    state.misses[at] = np.where(converged, 0.0, state.misses[at] + missed)
    surprising = _learn_noise(state, rows, every, trials)
    _fade(state, rows)
    weight = state.weight[at] + converged
    mean = state.epochs[at]
    # Epochs of failed runs count towards convergence, where it is known to happen.
    vain = cut & ((weight > FADED) | (trials.epochs >= state.lanes.max_epochs[rows]))
    more = np.where(converged, trials.epochs - mean, np.where(vain, trials.epochs, 0.0))
    state.epochs[at] = mean + more / np.maximum(weight, FADED)
    state.weight[at] = weight
    state.bound[at] = np.where(cut, np.maximum(state.bound[at], trials.epochs), state.bound[at])
    state.bounds[at] += cut
    # Runs as expected hardly change the belief; they accumulate until the next fit.
    due: Bools = state.ended[rows] >= state.fitted[rows] + np.maximum(state.fitted[rows] // 6, 1)
    due = due | surprising | ~converged | (trials.role == Role.EXPLORE)
    return due


def _fade(state: ZeusState, rows: Rows) -> None:
    """Let older runs count less, where data drift."""
    window = state.lanes.window[rows]
    if not (window > 0).any():
        return
    fade = np.where(window > 0, 1 - 1 / np.maximum(window, 1), 1.0)[:, None]
    state.weight[rows] *= fade
    state.bounds[rows] *= fade
    # Non-convergence is forgotten more slowly: observing it again is expensive.
    state.failed[rows] *= fade**0.25


def _learn_noise(state: ZeusState, rows: Rows, every: Ints, trials: Trials) -> Bools:
    """Learn the variance between runs of a batch size; return which runs were surprising."""
    at = every, trials.arm
    value = np.log(np.maximum(trials.epochs, 1.0))
    weight = state.weight[at]
    again = trials.converged & (weight > 0)
    off = value - np.log(np.maximum(state.epochs[at], 1.0))
    squared = np.minimum(off**2, 0.5)
    state.squares[rows] += np.where(again, squared * weight / (weight + 1), 0.0)
    state.freedom[rows] += again
    # A run that moves the mean of its batch size, not just another outlier.
    surprising: Bools = ~again | (np.abs(off) > _MOVED * (weight + 1))
    return surprising


def fit_epochs(assume: Assumptions, state: ZeusState, rows: Rows, gpu: Ints) -> None:
    """Fit the curve of log Epochs to all runs.

    Args:
        assume: Prior assumptions.
        state: State of all jobs; it is changed.
        rows: The jobs involved.
        gpu: GPU model of each.
    """
    weight = state.weight[rows]
    prior = assume.trend * state.position[rows]
    value, runs = np.log(np.maximum(state.epochs[rows], 1.0)), weight
    # What has not run takes about as many epochs as the others: this must not depend on how often
    # the curve was fitted before.
    seen = weight > 0
    usual = np.where(seen, value, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    typical = np.where(seen, value, usual[:, None])
    noise = noise_variance(assume, state, rows, typical)
    none = ~any_arm(weight > FADED)
    if none.any():
        # Compare other batch sizes with a running one before its result is known.
        hoped = none[:, None] & hoped_for(state, rows, gpu)
        value, runs = np.where(hoped, prior, value), np.where(hoped, 1.0, runs)
    kernel = LEVEL**2 + state.kernel[rows]
    whole = assume.whole * np.exp(-typical)
    arm = np.arange(kernel.shape[1])
    kernel[:, arm, arm] += np.where(none[:, None], 0.0, whole**2)
    # A single run may be an outlier; of several, few are.
    precision = runs / (noise + assume.odd**2 / np.maximum(runs, 1.0))
    belief = fitted(prior, kernel, value, precision)
    # A run that was cut off means that its batch size takes longer. It says nothing anymore once
    # runs of the same batch size converge.
    bounds = np.where(state.bounds[rows] > weight, state.bounds[rows], 0.0)
    if (bounds > FADED).any():
        variance = np.diagonal(belief.covariance, axis1=1, axis2=2)
        luck = noise + assume.luck**2 / np.maximum(bounds, FADED)
        bound = np.log(np.maximum(state.bound[rows], 1.0))
        shift = lower_bound_shift(belief.mean, variance, bound, luck)
        shift = np.where(bounds > FADED, shift, 0.0)
        # As far as it takes longer, so do its neighbors.
        influence = belief.covariance / np.maximum(variance, 1e-12)[:, None, :]
        belief.mean += (influence * shift[:, None, :]).sum(axis=2)
    state.belief.mean[rows], state.belief.covariance[rows] = belief.mean, belief.covariance
    state.fitted[rows] = state.ended[rows]

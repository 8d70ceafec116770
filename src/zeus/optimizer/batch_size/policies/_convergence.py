"""Which batch sizes may never converge, and where to search as long as none has."""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Bools, Floats, Ints, Rows, any_arm
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._belief import nearest, relative
from zeus.optimizer.batch_size.policies._zeus_state import View, ZeusState

# Batch sizes within this many doublings are neighbors: where one misses, the other may, too.
_NEAR = 0.75
# About half of the default, in doublings from it.
_HALF = (-1.01, -0.45)


def never_converges(
    assume: Assumptions, state: ZeusState, rows: Rows, view: View, beyond: Floats
) -> Floats:
    """Return the probability that a batch size never converges, from its distance and its misses.

    Args:
        assume: Prior assumptions.
        state: State of all jobs.
        rows: The jobs of the view.
        view: Beliefs about these jobs.
        beyond: Probability that a run takes more than the maximum epochs.
    """
    proven, reference = view.proven, view.reference
    position = state.position[rows]
    highest = np.where(proven, position, -np.inf).max(axis=1)[:, None]
    away = np.minimum(nearest(position, proven), 50.0)
    odds = np.expm1(assume.never * away)
    odds = odds + np.where(position > highest, assume.cliff, 0.0)
    failed = np.where(proven, 0.0, np.minimum(state.failed[rows], 50.0))
    odds = odds * assume.doubt**failed
    never: Floats = odds / (1 + odds)
    never = never + (1 - never) * np.where(proven, 0.0, beyond)
    # Beyond a batch size that never converges, none does.
    blocked = np.where(failed > 0, never, 0.0)
    right = position > position[np.arange(len(reference)), reference][:, None]
    outwards = np.maximum.accumulate(np.where(right, blocked, 0.0), axis=1)
    inwards = np.maximum.accumulate(np.where(right, 0.0, blocked)[:, ::-1], axis=1)[:, ::-1]
    return np.maximum(never, np.where(right, outwards, inwards))


def hoped_for(state: ZeusState, rows: Rows, gpu: Ints) -> Bools:
    """Return running batch sizes whose epoch cost is known, while nothing has converged yet."""
    every = np.arange(len(state.lanes))[rows]
    running: Bools = (state.flying[rows] > 0) & (state.misses[rows] == 0)
    return running & state.profiled[every, gpu]


def search(assume: Assumptions, state: ZeusState, rows: Rows, view: View, better: float) -> Ints:
    """Choose batch sizes while none has converged: outwards from the default, in large steps.

    The first of all is the default, or if the cost of an epoch has been measured beforehand, the
    one that is likely to cost least. While the first runs, one other run tries half of the default:
    the next to explore, at low risk, unless the load of the default shows that it is worse.

    Args:
        assume: Prior assumptions.
        state: State of all jobs.
        rows: The jobs of the view.
        view: Beliefs about these jobs.
        better: Log cost by which a batch size must be better than the default to be the first, and
            by which half of the default may be worse to be tried.
    """
    position = state.position[rows]
    misses, flying = state.misses[rows], state.flying[rows] > 0
    near = np.abs(position[:, :, None] - position[:, None, :]) < _NEAR
    failures = np.where(near, misses[:, None, :], 0.0).sum(axis=2) + 0.01 * misses
    order = failures * 1e3 + np.abs(position) + 0.5 * (position > 0)
    half = (position >= _HALF[0]) & (position <= _HALF[1]) & (failures == 0)
    half &= (any_arm(flying) & ~any_arm(flying & (position < 0)))[:, None]
    default = state.lanes.default[rows][:, None]
    half &= view.deficit - np.take_along_axis(view.deficit, default, axis=1) < better
    order = np.where(half, position - 10.0, order)
    found: Ints = np.where(view.allowed, order, np.inf).argmin(axis=1)
    first = view.met & (state.ended[rows] == 0) & ~any_arm(flying)
    if first.any():
        found = np.where(first, _likely_best(assume, state, rows, view, better), found)
    return found


def _likely_best(
    assume: Assumptions, state: ZeusState, rows: Rows, view: View, better: float
) -> Ints:
    """Return the batch size that is likely to cost least before any has run.

    Of those whose epoch was measured, the one of the least expected log cost, to which a multiple
    of its variance is added: what is far from the default may take far more epochs, or never
    converge. The default is preferred to what is hardly better.
    """
    default = state.lanes.default[rows]
    every, each = np.arange(len(state.lanes))[rows], np.arange(len(default))
    variance = relative(state.belief.covariance, (every,), default)[2]
    cost = view.epochs + view.price + assume.aversion * variance
    cost[each, default] -= better
    measured = view.allowed & state.profiled[every, view.gpu]
    found: Ints = np.where(measured, cost, np.inf).argmin(axis=1)
    return found

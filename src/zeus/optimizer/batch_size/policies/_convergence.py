"""Which batch sizes may never converge, and where to search as long as none has."""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Bools, Floats, Ints, Rows, any_arm
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._belief import nearest
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


def search(state: ZeusState, rows: Rows, view: View, better: float) -> Ints:
    """Choose batch sizes while none has converged: outwards from the default, in large steps.

    While the default runs for the first time, one other run tries half of it: the next to explore,
    at low risk, unless the load of the default shows that it is worse.

    Args:
        state: State of all jobs.
        rows: The jobs of the view.
        view: Beliefs about these jobs.
        better: Log cost by which half of the default may be worse to be tried.
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
    return found

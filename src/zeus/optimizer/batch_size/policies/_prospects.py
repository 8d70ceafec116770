"""Prospects of batch sizes that are not well known.

Which of them may be explored, the probability that each never converges, the maximum gain of each
if costs are unimodal, and which should be sampled again.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Bools, Floats, Ints, Rows, any_arm
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._belief import nearest
from zeus.optimizer.batch_size.policies._zeus_state import View, ZeusState


def within_reach(assume: Assumptions, state: ZeusState, rows: Rows, view: View) -> Bools:
    """Return arms that may be explored: those near tested ones, and further ones downhill."""
    position = state.position[rows]
    tested = view.proven | (view.allowed & (state.failed[rows] > 0))
    near = nearest(position, tested) <= assume.reach + 1e-9
    near[:, 1:] |= tested[:, :-1]
    near[:, :-1] |= tested[:, 1:]
    # Where costs fell towards the reference, a jump beyond it may find lower ones. Each halving
    # at most doubles the cost of the one epoch that is always run; two are enough.
    away = position - position[np.arange(len(position)), view.reference][:, None]
    from_below = any_arm(view.proven & (away < 0))[:, None]
    from_above = any_arm(view.proven & (away > 0))[:, None]
    leap = np.where(away > 0, from_below, from_above)
    leap &= nearest(position, view.proven) <= 2 * assume.reach + 1e-9
    leap &= view.deficit + assume.bold * np.sqrt(view.spread) < 0
    return (near | leap) & view.allowed


def never_converges(
    assume: Assumptions, state: ZeusState, rows: Rows, view: View, beyond: Floats
) -> Floats:
    """Return the probability that an arm never converges, from its distance and its misses.

    Args:
        assume: Prior assumptions.
        state: State of all lanes.
        rows: The lanes of the view.
        view: Beliefs about these lanes.
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
    # Beyond an arm that never converges, none does.
    blocked = np.where(failed > 0, never, 0.0)
    right = position > position[np.arange(len(reference)), reference][:, None]
    outwards = np.maximum.accumulate(np.where(right, blocked, 0.0), axis=1)
    inwards = np.maximum.accumulate(np.where(right, 0.0, blocked)[:, ::-1], axis=1)[:, ::-1]
    return np.maximum(never, np.where(right, outwards, inwards))


def most_gain(assume: Assumptions, state: ZeusState, rows: Rows, view: View) -> Floats:
    """Return the maximum gain of each arm on the reference if costs and epochs are unimodal."""
    # The longer a job recurs, the more it would lose by a wrong conclusion.
    caution = assume.margin + assume.caution * np.log2(1 + state.ended[rows] / 16)
    caution = caution[:, None]
    margin = caution * np.sqrt(view.spread)
    position = state.position[rows]
    at = np.arange(len(position)), view.reference
    away = position - position[at][:, None]
    distance = np.maximum(np.abs(away), 1e-9)
    right, left = away > 0, away < 0
    tested = (view.proven | (state.failed[rows] > 0)) & state.lanes.valid[rows]
    # Beyond a batch size that is worse, all are even worse ...
    rise = np.where(tested, (view.deficit - margin) / distance, -np.inf)
    outward = np.full(position.shape, -np.inf)
    behind = np.maximum.accumulate(np.where(right, rise, -np.inf), axis=1)[:, :-1]
    outward[:, 1:] = behind
    behind = np.maximum.accumulate(np.where(left, rise, -np.inf)[:, ::-1], axis=1)[:, ::-1]
    outward[:, :-1] = np.where(left[:, :-1], behind[:, 1:], outward[:, :-1])

    def steepest(higher: Floats) -> Floats:
        """Return the maximum slope of the descent from the reference: that of the descent to it."""
        fall = np.where(view.proven, higher / distance, np.inf)
        to_right = np.where(right, fall, np.inf).min(axis=1)[:, None]
        to_left = np.where(left, fall, np.inf).min(axis=1)[:, None]
        steep: Floats = np.where(right, to_left, to_right)
        return steep

    most = np.minimum(-outward, steepest(view.deficit + margin)) * distance
    # ... and where an epoch is known to cost more, that many epochs must be saved.
    margin = assume.convex * caution
    longer = view.epochs - view.epochs[at][:, None] + margin * np.sqrt(view.apart)
    dearer = view.price - view.price[at][:, None]
    dearer = dearer - margin * np.sqrt(np.maximum(view.spread - view.apart, 0.0))
    saved = steepest(longer) * distance - dearer
    # Older runs do not show that if data drift. A batch size's own runs outweigh those of others:
    # one between it and the best may have been unlucky.
    saved = np.where(state.lanes.window[rows][:, None] > 0, np.inf, saved)
    bounded: Floats = np.where(view.proven, 50.0, np.clip(np.minimum(most, saved), 0.0, 50.0))
    return bounded


def hoped_for(state: ZeusState, rows: Rows, gpu: Ints) -> Bools:
    """Return running arms whose epoch cost is known, while nothing has converged yet."""
    every = np.arange(len(state.lanes))[rows]
    running: Bools = (state.flying[rows] > 0) & (state.misses[rows] == 0)
    return running & state.profiled[every, gpu]


def another_look(
    assume: Assumptions, state: ZeusState, rows: Rows, view: View
) -> tuple[Ints, Floats]:
    """Return a proven arm that may still be better, and after how many trials a run of it is due.

    Without this, a batch size whose first runs were unlucky would stay rejected while a nearly as
    good one does well. Resampling is bounded: some runs for each doubling of the trials, and none
    of an arm that is significantly worse.
    """
    each = np.arange(len(view.reference))
    worse = view.deficit + assume.worthwhile
    doubtful = view.proven & (worse * np.abs(worse) < assume.again**2 * view.spread)
    runs = np.where(doubtful, state.weight[rows], np.inf)
    runs[each, view.reference] = np.inf
    look: Ints = runs.argmin(axis=1)
    runs = runs[each, look]
    # Where data drift, old observations fade anyway.
    due = view.some & np.isfinite(runs) & (state.lanes.window[rows] == 0)
    doublings = np.where(due, np.minimum(runs / assume.looks, 500.0), 0.0)
    return look, np.where(due, assume.settled * np.exp2(doublings), np.inf)

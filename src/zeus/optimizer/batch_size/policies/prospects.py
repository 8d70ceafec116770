"""What can be hoped for from batch sizes that are not well known.

Which of them are within reach, how likely each is never to converge, the most that each can gain if
costs have one valley, and which deserves another look.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.lanes import Bools, Floats, Ints, Rows, any_arm
from zeus.optimizer.batch_size.policies.assumptions import Assumptions
from zeus.optimizer.batch_size.policies.belief import nearest
from zeus.optimizer.batch_size.policies.zeus_state import View, ZeusState


def within_reach(assume: Assumptions, state: ZeusState, rows: Rows, view: View) -> Bools:
    """Arms that may be explored: those near tested ones, and further ones on the way down."""
    position = state.position[rows]
    tested = view.proven | (view.allowed & (state.failed[rows] > 0))
    near = nearest(position, tested) <= assume.reach + 1e-9
    near[:, 1:] |= tested[:, :-1]
    near[:, :-1] |= tested[:, 1:]
    # Where the way to the reference went down, a leap beyond it may land lower still. Each
    # halving at most doubles the cost of the one epoch that is run at least; two are enough.
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
    """Probability that an arm never converges, so far from proven ones and after misses.

    Args:
        assume: What is taken for granted.
        state: Of all lanes.
        rows: The lanes that the view is about.
        view: What is believed.
        beyond: Probability that a run takes more than the most epochs.
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
    # Behind one that never converges, none does.
    blocked = np.where(failed > 0, never, 0.0)
    right = position > position[np.arange(len(reference)), reference][:, None]
    outwards = np.maximum.accumulate(np.where(right, blocked, 0.0), axis=1)
    inwards = np.maximum.accumulate(np.where(right, 0.0, blocked)[:, ::-1], axis=1)[:, ::-1]
    return np.maximum(never, np.where(right, outwards, inwards))


def most_gain(assume: Assumptions, state: ZeusState, rows: Rows, view: View) -> Floats:
    """The most that each arm can gain on the reference if costs and epochs have one valley."""
    # The longer a job recurs, the more it would lose by having been misled.
    caution = assume.margin + assume.caution * np.log2(1 + state.ended[rows] / 16)
    caution = caution[:, None]
    margin = caution * np.sqrt(view.spread)
    position = state.position[rows]
    at = np.arange(len(position)), view.reference
    away = position - position[at][:, None]
    distance = np.maximum(np.abs(away), 1e-9)
    right, left = away > 0, away < 0
    tested = (view.proven | (state.failed[rows] > 0)) & state.lanes.valid[rows]
    # Behind a batch size that is worse, all are worse still ...
    rise = np.where(tested, (view.deficit - margin) / distance, -np.inf)
    outward = np.full(position.shape, -np.inf)
    behind = np.maximum.accumulate(np.where(right, rise, -np.inf), axis=1)[:, :-1]
    outward[:, 1:] = behind
    behind = np.maximum.accumulate(np.where(left, rise, -np.inf)[:, ::-1], axis=1)[:, ::-1]
    outward[:, :-1] = np.where(left[:, :-1], behind[:, 1:], outward[:, :-1])

    def steepest(higher: Floats) -> Floats:
        """How steep the way down from the reference can be: no steeper than the one to it."""
        fall = np.where(view.proven, higher / distance, np.inf)
        to_right = np.where(right, fall, np.inf).min(axis=1)[:, None]
        to_left = np.where(left, fall, np.inf).min(axis=1)[:, None]
        steep: Floats = np.where(right, to_left, to_right)
        return steep

    most = np.minimum(-outward, steepest(view.deficit + margin)) * distance
    # ... and where it is known that an epoch costs more, so many epochs must be saved.
    margin = assume.convex * caution
    longer = view.epochs - view.epochs[at][:, None] + margin * np.sqrt(view.apart)
    dearer = view.price - view.price[at][:, None]
    dearer = dearer - margin * np.sqrt(np.maximum(view.spread - view.apart, 0.0))
    saved = steepest(longer) * distance - dearer
    # Older runs of data that drift do not tell that. Runs of the batch size itself tell more than
    # others do: one between it and the best may have had bad luck.
    saved = np.where(state.lanes.window[rows][:, None] > 0, np.inf, saved)
    bounded: Floats = np.where(view.proven, 50.0, np.clip(np.minimum(most, saved), 0.0, 50.0))
    return bounded


def hoped_for(state: ZeusState, rows: Rows, gpu: Ints) -> Bools:
    """Arms that run and have told what an epoch costs, while nothing has converged yet."""
    every = np.arange(len(state.lanes))[rows]
    running: Bools = (state.flying[rows] > 0) & (state.misses[rows] == 0)
    return running & state.profiled[every, gpu]


def another_look(
    assume: Assumptions, state: ZeusState, rows: Rows, view: View
) -> tuple[Ints, Floats]:
    """A proven arm that may be better after all, and after how many trials a run of it is due.

    Bad luck in the first runs of a batch size would otherwise be believed for as long as one that
    is nearly as good goes on to do well. What is looked at again is bounded: some runs for each
    doubling of the trials, and none of what is worse for sure.
    """
    each = np.arange(len(view.reference))
    worse = view.deficit + assume.worthwhile
    doubtful = view.proven & (worse * np.abs(worse) < assume.again**2 * view.spread)
    runs = np.where(doubtful, state.weight[rows], np.inf)
    runs[each, view.reference] = np.inf
    look: Ints = runs.argmin(axis=1)
    runs = runs[each, look]
    # Where data drift, all that is old fades anyhow.
    due = view.some & np.isfinite(runs) & (state.lanes.window[rows] == 0)
    doublings = np.where(due, np.minimum(runs / assume.looks, 500.0), 0.0)
    return look, np.where(due, assume.settled * np.exp2(doublings), np.inf)

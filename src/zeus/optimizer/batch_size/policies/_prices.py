"""Cost of an epoch at each batch size, learned from one profile of each.

Unlike Epochs, EpochCost depends on the GPU model, and is known exactly once measured. Until then it
is predicted from other batch sizes, on this GPU model or another.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Ints, any_arm
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._base import FirstEpochs
from zeus.optimizer.batch_size.policies._belief import Belief
from zeus.optimizer.batch_size.policies._zeus_state import LEVEL, ZeusState


def learn_prices(assume: Assumptions, state: ZeusState, every: Ints, notes: FirstEpochs) -> None:
    """Learn EpochCost from a first profile; a later one means that data have grown or shrunk.

    Args:
        assume: Prior assumptions.
        state: State of all lanes; it is changed.
        every: Indices of the lanes involved.
        notes: Measurements of these lanes.
    """
    seen = np.isfinite(notes.epoch_cost)
    known = state.profiled[every, notes.gpu, notes.arm]
    value = np.log(np.where(seen, notes.epoch_cost, 1.0))
    price = state.price
    if (seen & known).any():
        shift = value - price.mean[every, notes.gpu, notes.arm]
        shift = np.where(seen & known, shift, 0.0)[:, None]
        # Or that the first epoch of the trial differed from the others. Then the costs of other
        # batch sizes do not change, unless they are only guessed from this one.
        others = state.profiled[every, notes.gpu]
        others[np.arange(len(every)), notes.arm] = False
        early = state.tentative[every, notes.gpu, notes.arm] & any_arm(others)
        if early.any():
            own = np.arange(shift.shape[0])[:, None], notes.arm[:, None]
            alone = np.zeros(others.shape)
            alone[own] = shift
            shift = np.where(early[:, None], alone, shift)
        price.mean[every, notes.gpu] += shift
    fresh = np.flatnonzero(seen & ~known)
    if not len(fresh):
        return
    lanes, gpu, arm, value = every[fresh], notes.gpu[fresh], notes.arm[fresh], value[fresh]
    profiled = state.profiled[lanes]
    here = any_arm(profiled[np.arange(len(lanes)), gpu])
    elsewhere = any_arm(profiled)
    mean, covariance = price.mean[lanes, gpu], price.covariance[lanes, gpu]
    position = state.position[lanes]
    each = np.arange(len(lanes))
    # A GPU that is not busy has room for larger batches: part of a step's cost does not grow.
    load = np.where(np.isfinite(notes.load[fresh]), np.clip(notes.load[fresh], 0, 1), 1.0)
    busy = (1 - assume.idle * (1 - load))[:, None]
    shape = np.log(busy + (1 - busy) * np.exp2(position[each, arm][:, None] - position))
    # If the job is known on another GPU model, costs here differ from those by a smooth factor.
    other = elsewhere.argmax(axis=1)
    moved = (~here & any_arm(elsewhere))[:, None]
    borrowed = price.mean[lanes, other]
    borrowed = borrowed - borrowed[each, arm][:, None]
    start = np.where(moved, borrowed, shape) + value[:, None]
    mean = np.where(here[:, None], mean, start)
    loose = LEVEL**2 + assume.transfer * (covariance - LEVEL**2)
    loose = loose + price.covariance[lanes, other]
    covariance = np.where(moved[:, :, None], loose, covariance)
    update = Belief(mean, covariance)
    update.observe(each, arm, value, 1e-6)
    price.mean[lanes, gpu], price.covariance[lanes, gpu] = update.mean, update.covariance
    state.profiled[lanes, gpu, arm] = True


def learn_early(assume: Assumptions, state: ZeusState, every: Ints, notes: FirstEpochs) -> None:
    """Learn EpochCost before a trial has ended, or without one: a trial may correct it later.

    Args:
        assume: Prior assumptions.
        state: State of all lanes; it is changed.
        every: Indices of the lanes involved.
        notes: Measurements of these lanes.
    """
    at = every, notes.gpu, notes.arm
    state.tentative[at] |= ~state.profiled[at] & np.isfinite(notes.epoch_cost)
    learn_prices(assume, state, every, notes)

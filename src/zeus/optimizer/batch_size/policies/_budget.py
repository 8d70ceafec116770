"""The exploration budget: what exploring may cost, compared with never leaving the default.

Costs are counted in units of a *default run*: the expected cost of the default batch size at the
highest power limit (of the reference, as long as the default itself has never converged). After n
recurrences that have cost C in these units, n - C was saved, and

    n - C + budget * (n + 1)

may be spent beyond the default. A batch size may be explored if its expected cost exceeds a default
run by no more than that. So exploring that turns out badly is paid back before anything follows
that is expected to cost more than the default. A trial that takes longer than expected can exceed
the budget, by what its cost threshold allows.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Bools, Floats, Ints, Rows, Trials, any_arm
from zeus.optimizer.batch_size.policies._zeus_state import View, ZeusState

# Default runs that a trial may count as at most: a cost beyond belief must not be infinite.
_MOST = 1e9


def left(state: ZeusState, rows: Rows) -> Floats:
    """Return what exploring may cost beyond the default, in default runs, by job."""
    nights = state.nights[rows]
    allowance: Floats = state.lanes.budget[rows] * (nights + 1)
    return allowance + nights - state.spent[rows]


def needed(view: View) -> Floats:
    """Return what must be left of the budget for a trial, in default runs, by job and batch size.

    What is expected to cost no more than a default run, failures included, needs nothing. Where
    nothing has converged yet, there is nothing to compare with, and nothing is needed either.
    """
    default = np.exp(np.minimum(view.default, 50.0))[:, None]
    likely = np.exp(np.minimum(view.deficit, 50.0))
    free = (1 + view.waste <= default) | ~view.some[:, None]
    found: Floats = np.where(free, -np.inf, likely / default - 1)
    return found


def affordable(state: ZeusState, rows: Rows, view: View) -> Bools:
    """Return which batch sizes the budget allows to explore."""
    allowed: Bools = view.afford <= left(state, rows)[:, None]
    return allowed


def account(state: ZeusState, rows: Rows, every: Ints, trials: Trials, first: Bools) -> None:
    """Count what trials have cost, and learn what profiling costs.

    Args:
        state: State of all jobs, with what the trials have shown of the cost of an epoch: where
            data have grown, a default run costs more as well. It is changed.
        rows: The jobs involved.
        every: Their indices.
        trials: Trials that ended.
        first: Which of them were the first of their batch size on their GPU model.
    """
    measured = np.isfinite(trials.full_cost) & np.isfinite(trials.epoch_cost)
    measured &= trials.arm == state.lanes.default[rows]
    ratio = np.where(measured, trials.full_cost, 1.0) / np.where(measured, trials.epoch_cost, 1.0)
    full = state.full[every, trials.gpu]
    full = np.where(measured, np.log(np.maximum(ratio, 1.0)), full)
    state.full[every, trials.gpu] = full
    known = any_arm(state.weight[rows] > 0) & any_arm(state.profiled[every, trials.gpu])
    base = np.where(
        state.weight[every, state.lanes.default[rows]] > 0,
        state.lanes.default[rows],
        state.view.reference[rows],
    )
    run = state.belief.mean[every, base] + state.price.mean[every, trials.gpu, base] + full
    run = np.exp(np.minimum(run, 500.0))
    # The first run is a default run, only at a better power limit. Runs that were killed cost what
    # they cost, but not because of exploring.
    with np.errstate(over="ignore"):  # reported costs may be anything
        runs = np.minimum(trials.cost / run, _MOST)
    cost = np.where(known, runs, np.exp(-full))
    state.spent[rows] += np.where(trials.void, 0.0, cost)
    state.nights[rows] += trials.converged
    first = first & (trials.epochs >= 1) & np.isfinite(trials.epoch_cost)
    with np.errstate(over="ignore"):
        extra = trials.cost / np.where(first, trials.epoch_cost, 1.0) - trials.epochs
    state.overhead[rows, 0] += np.where(first, np.minimum(np.maximum(extra, 0.0), 5.0), 0.0)
    state.overhead[rows, 1] += first


def profiling_cost(state: ZeusState, rows: Rows) -> Floats:
    """Return what profiling power limits costs, in units of the epoch in which it happens."""
    total, count = state.overhead[rows].T
    cost: Floats = total / np.maximum(count, 1.0)
    return cost

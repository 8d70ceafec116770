"""Replays cells with a policy, and compares the regrets of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_cells import Cell
from zeus._student import student_factor
from zeus.optimizer.batch_size.job._job_batch import Choices, Ints, Role, Rows
from zeus.optimizer.batch_size.policies._base import Policy, State, simple_choices
from zeus.optimizer.batch_size.policies._default import DefaultPolicy
from zeus.replay._jobs import FIRST_RECURRENCES, TOO_EXPENSIVE, replay

Floats = NDArray[np.float64]

# A regret below this is noise of the runs that happened to be drawn.
_LEAST = 0.02
# More jobs at once are no faster and only take memory.
_MAX_JOBS = 2048


class PowerLimitOnly(DefaultPolicy):
    """The default batch size with the best power limit."""

    def choose(self, state: State, rows: Rows, gpu: Ints, attempt: Ints) -> Choices:  # noqa: ARG002
        """Choose the default batch size, and leave the power limit to the optimizer."""
        return simple_choices(state.lanes.default[rows], Role.DEFAULT)


@dataclass(frozen=True)
class Runs:
    """Recurrences of a cell's jobs, in units of the oracle's cost of one run.

    Attributes:
        cell: The cell.
        cost: By seed and recurrence.
        expected: Expected cost of the configuration of each recurrence.
        unreached: Number of recurrences of all seeds that were abandoned.
    """

    cell: Cell
    cost: Floats
    expected: Floats
    unreached: int

    @property
    def regrets(self) -> Floats:
        """Cumulative regret, by seed."""
        first = self.cell.since
        regrets: Floats = (self.cost[:, first : first + self.cell.recurrences] - 1).sum(axis=1)
        return regrets

    @property
    def regret(self) -> float:
        """Mean of the cumulative regrets."""
        return float(self.regrets.mean())

    @property
    def too_expensive(self) -> float:
        """Of the recurrences after the first 100, the fraction that is too expensive."""
        return float((self.expected[:, FIRST_RECURRENCES:] > TOO_EXPENSIVE).mean())

    @property
    def settled_wrong(self) -> float:
        """Fraction of the jobs that mostly choose something too expensive in the last 20."""
        return float(((self.expected[:, -20:] > TOO_EXPENSIVE).mean(axis=1) > 0.5).mean())


def replayed(cells: Sequence[Cell], policy: str | Policy, seeds: Sequence[int]) -> list[Runs]:
    """Replay every cell with every seed.

    Args:
        cells: The cells; recurrences overlap in all of them or in none.
        policy: Name of a policy, or a policy that takes the place of ours.
        seeds: Seeds.
    """
    name, instead = (policy, None) if isinstance(policy, str) else ("zeus", policy)
    found = []
    at_once = max(_MAX_JOBS // len(seeds), 1)
    for first in range(0, len(cells), at_once):
        some = cells[first : first + at_once]
        jobs = [job for each in some for job in each.scenario.jobs(name, seeds, **each.options)]
        history = replay(jobs, history=True, policy=instead).history
        for place, cell in enumerate(some):
            here = slice(place * len(seeds), (place + 1) * len(seeds))
            till = cell.scenario.recurrences
            oracle = np.array([table.optimum.cost for table in cell.scenario.tables])
            found.append(
                Runs(
                    cell,
                    history["cost"][here, :till] / oracle[np.asarray(cell.scenario.schedule)],
                    history["expected"][here, :till],
                    int((history["reached"][here, :till] == 0).sum()),
                )
            )
    return found


def compared(
    ours: Sequence[float], theirs: Sequence[float], cells: Sequence[Cell]
) -> dict[str, Any]:
    """Compare mean regrets: geometric mean of the ratios, interval over workloads, worst.

    Args:
        ours: Mean regret of our policy, by cell.
        theirs: Mean regret of another.
        cells: The cells.
    """
    ratios = np.maximum(ours, _LEAST) / np.maximum(theirs, _LEAST)
    logs = np.log(ratios)
    by_workload: dict[str, list[float]] = {}
    for cell, log in zip(cells, logs, strict=True):
        by_workload.setdefault(cell.workload, []).append(float(log))
    means = [float(np.mean(each)) for each in by_workload.values()]
    spread = math.nan
    if len(means) > 2:
        error = float(np.std(means, ddof=1)) / math.sqrt(len(means))
        spread = student_factor(len(means) - 1) * error
    middle = float(np.mean(logs))
    return {
        "geometric_mean": math.exp(middle),
        "interval_over_workloads": [math.exp(middle - spread), math.exp(middle + spread)],
        "worst": float(ratios.max()),
        "worse": int((ratios > 1).sum()),
        "of": len(cells),
        "cells": sorted(
            (
                {"cell": cell.name, "ours": float(mine), "theirs": float(other), "ratio": ratio}
                for cell, mine, other, ratio in zip(
                    cells, ours, theirs, ratios.tolist(), strict=True
                )
            ),
            key=lambda each: -each["ratio"],
        ),
    }

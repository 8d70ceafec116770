"""Tables of many jobs stacked into arrays, and the outcomes of choices in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zeus.optimizer._stopping import allowed_epochs
from zeus.optimizer.batch_size.job._job_batch import (
    OPTIMIZED,
    UNTOUCHED,
    Bools,
    Choices,
    Floats,
    Ints,
)
from zeus.optimizer.batch_size.policies._randomness import uniform
from zeus.replay._table import JobTable

# A batch size is measured for so many seconds, or for this fraction of the default's epoch if that
# is less. Programs that measure do the same.
_MEASURED_SECONDS, _MEASURED_FRACTION = 5.0, 0.05
# Draws of outcomes must be independent of draws of policies with the same seed.
_OUTCOMES = 0x6F7574636F6D65


@dataclass
class World:
    """Recorded outcomes of all jobs.

    The arrays are indexed by table, batch size and power limit; shorter tables are padded.

    Attributes:
        time: Duration of an epoch in seconds; `energy` and `cost` in joules.
        first_time: Seconds of an epoch in which all power limits are profiled, by table and batch
            size; `first_energy` and `first_cost` likewise.
        best_power: Index of the best power limit; `highest` is the index of the highest.
        load: Average power as a fraction of the power limit.
        saving: Cost at the best power limit as a fraction of that at the highest, by table and
            batch size.
        epochs: Epochs until convergence, by table, batch size and run.
        expected_epochs: Expected epochs until convergence, by table and batch size.
        runs: Number of recorded runs.
        oracle: Expected cost of the best configuration, by table.
        measuring: Seconds, joules and cost of measuring all batch sizes for some seconds at the
            highest power limit, by table.
    """

    time: Floats
    energy: Floats
    cost: Floats
    first_time: Floats
    first_energy: Floats
    first_cost: Floats
    best_power: Ints
    highest: Ints
    load: Floats
    saving: Floats
    epochs: Floats
    expected_epochs: Floats
    runs: Ints
    max_epochs: Floats
    oracle: Floats
    measuring: Floats

    @classmethod
    def of(cls, tables: Sequence[JobTable]) -> World:
        """Stack tables."""
        arms = max(len(table.batch_sizes) for table in tables)
        limits = max(len(table.power_limits) for table in tables)
        runs = max(table.epochs.shape[1] for table in tables)

        def stacked(each: list[Floats], shape: tuple[int, ...], padding: float) -> Floats:
            whole = np.full((len(each), *shape), padding)
            for place, part in enumerate(each):
                corner: tuple[Any, ...] = (place, *map(slice, part.shape))
                whole[corner] = part
            return whole

        def swept(each: list[Floats]) -> Floats:
            # A power limit that was not recorded for a batch size gets the nearest recorded one.
            return stacked([_filled(part) for part in each], (arms, limits), 1.0)

        def profiled(each: list[Floats]) -> Floats:
            return stacked([np.nanmean(part, axis=1) for part in each], (arms,), 1.0)

        loads = [table.power / np.array(table.power_limits) for table in tables]
        return cls(
            time=swept([table.time for table in tables]),
            energy=swept([table.energy for table in tables]),
            cost=swept([table.epoch_cost for table in tables]),
            # Each power limit gets the same fraction of the epoch's work.
            first_time=profiled([table.time for table in tables]),
            first_energy=profiled([table.energy for table in tables]),
            first_cost=profiled([table.epoch_cost for table in tables]),
            best_power=stacked(
                [table.best_power.astype(np.float64) for table in tables], (arms,), 0
            ).astype(np.int64),
            highest=np.array([len(table.power_limits) - 1 for table in tables], dtype=np.int64),
            load=swept(loads),
            saving=stacked([_saving(table) for table in tables], (arms,), 1.0),
            epochs=stacked([table.epochs for table in tables], (arms, runs), np.inf),
            expected_epochs=stacked([table.expected_epochs for table in tables], (arms,), np.inf),
            runs=stacked([table.runs.astype(np.float64) for table in tables], (arms,), 1).astype(
                np.int64
            ),
            max_epochs=np.array([table.max_epochs for table in tables], dtype=np.float64),
            oracle=np.array([table.optimum.cost for table in tables]),
            measuring=np.array([_measuring(table) for table in tables]),
        )

    def run(
        self,
        table: Ints,
        choices: Choices,
        known: Bools,
        *,
        seed: Ints,
        recurrence: Ints,
        attempt: Ints,
        foreseen: bool = False,
    ) -> TrialResults:
        """Return the outcomes of trials, drawn from the recorded runs.

        Args:
            table: Index of the table of each trial.
            choices: Decisions of the policy.
            known: Whether the batch size has already been profiled on this GPU.
            seed: Together with the recurrence, the attempt and the batch size, it selects one of
                the recorded runs. So all policies get the same outcomes.
            recurrence: Number of the recurrence.
            attempt: Number of the trial within it.
            foreseen: See `Policy.foresees_epochs`.
        """
        arm = choices.arm
        at = table, arm
        power = np.where(
            choices.power == OPTIMIZED,
            self.best_power[at],
            # Power limits are those of the job's first GPU model; another may have fewer.
            np.where(
                choices.power == UNTOUCHED,
                self.highest[table],
                np.minimum(choices.power, self.highest[table]),
            ),
        )
        cell = table, arm, power
        time, energy, cost = self.time[cell], self.energy[cell], self.cost[cell]
        profiles = ~known & (choices.power == OPTIMIZED)
        first_cost = np.where(profiles, self.first_cost[at], cost)
        allowed = allowed_epochs(
            cost if foreseen else first_cost,
            cost,
            self.max_epochs[table],
            threshold=choices.threshold,
            known=~profiles | foreseen,
            expected_epochs=choices.expected_epochs,
            restart_cost=choices.restart_cost,
        )
        draw = uniform(seed ^ _OUTCOMES, recurrence, attempt, arm)
        needed = self.epochs[table, arm, (draw * self.runs[at]).astype(np.int64)]
        epochs = np.minimum(needed, allowed)
        begun = epochs > 0
        extra = profiles & begun
        first_time = self.first_time[at]
        rest = epochs - begun
        return TrialResults(
            power=power,
            converged=needed <= allowed,
            epochs=epochs,
            first_epoch=np.where(profiles & (epochs > 1), first_time, np.nan),
            time=rest * time + np.where(extra, first_time, time * begun),
            energy=rest * energy + np.where(extra, self.first_energy[at], energy * begun),
            cost=rest * cost + first_cost * begun,
            epoch_cost=cost,
            load=self.load[cell],
            expected=self.expected_epochs[at] * cost,
            full_cost=self.cost[table, arm, self.highest[table]],
            oracle=self.oracle[table],
        )

    def with_sizes_measured(self, ran: TrialResults, table: Ints, first: Bools) -> TrialResults:
        """Add what it takes to measure all batch sizes to the trials that do so."""
        time, energy, cost = np.where(first[:, None], self.measuring[table], 0.0).T
        return replace(ran, time=ran.time + time, energy=ran.energy + energy, cost=ran.cost + cost)


def _saving(table: JobTable) -> Floats:
    cost = _filled(table.epoch_cost)
    saving: Floats = cost.min(axis=1) / cost[:, -1]
    return saving


def _measuring(table: JobTable) -> tuple[float, float, float]:
    time, energy, cost = (
        _filled(part)[:, -1] for part in (table.time, table.energy, table.epoch_cost)
    )
    seconds = min(_MEASURED_SECONDS, _MEASURED_FRACTION * float(time[table.default]))
    part = seconds / time
    return float(part @ time), float(part @ energy), float(part @ cost)


@dataclass
class TrialResults:
    """Outcomes of trials.

    Attributes:
        power: Index of the power limit that was used in the end.
        converged: Whether the target was reached.
        epochs: Number of epochs run.
        first_epoch: Seconds of the first epoch, after which the cost of an epoch is known; NaN if
            it was known before, or if the trial ends with that epoch.
        time: Duration in seconds; `energy` and `cost` in joules.
        epoch_cost: Cost of one epoch at that power limit, in joules.
        load: Average power as a fraction of that power limit.
        expected: Expected cost of this configuration in joules; infinite if it never converges.
        full_cost: Cost of one epoch at the highest power limit, in joules.
        oracle: Expected cost of the best configuration in joules.
    """

    power: Ints
    converged: Bools
    epochs: Floats
    first_epoch: Floats
    time: Floats
    energy: Floats
    cost: Floats
    epoch_cost: Floats
    load: Floats
    expected: Floats
    full_cost: Floats
    oracle: Floats


def _filled(part: Floats) -> Floats:
    whole = part.copy()
    for row in whole:
        known = np.flatnonzero(~np.isnan(row))
        for place in np.flatnonzero(np.isnan(row)):
            row[place] = row[known[np.abs(known - place).argmin()]]
    return whole

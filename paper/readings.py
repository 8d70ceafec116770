"""What the published ends of Figure 6 can be: of single jobs, or of means over how many.

The paper states four ends, the least and the most that Zeus saves of energy and of time among all
workloads, but not of how many jobs they are means, nor whether the default was drawn from recorded
runs like everything else. Ends of single jobs are further apart than those of means, because the
luckiest and the unluckiest of six count. `ends_of` draws them, so that the published ones can
be compared with what chance gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paper.lab import LAST, Runs
from paper.product import Floats

#: Energy at the least and the most saved, time at the most and the least, against the default.
PUBLISHED = (-0.153, -0.758, 0.128, -0.601)
_DRAWS = 4_000


@dataclass(frozen=True)
class Reading:
    """Ends under one reading of the figure.

    Attributes:
        low: 5th percentile of each end, in the order of `PUBLISHED`; `high` is the 95th.
    """

    low: list[float]
    high: list[float]

    @property
    def likely(self) -> bool:
        """Whether every published end is within the middle 90 % of the draws."""
        pairs = zip(self.low, PUBLISHED, self.high, strict=True)
        return all(low <= end <= high for low, end, high in pairs)


def ends_of(runs: Sequence[Runs], jobs: int, *, drawn_default: bool) -> Reading:
    """Draw the ends of Figure 6 many times.

    Args:
        runs: Replayed jobs of each workload.
        jobs: Number of jobs that a bar is the mean of.
        drawn_default: Whether the default is a mean of as many drawn runs as Zeus's, instead of the
            mean over all recorded ones.
    """
    generator = np.random.default_rng(0)
    energy, time = [], []
    for each in runs:
        chosen = generator.integers(0, len(each.energy_ratio), (_DRAWS, jobs))
        default = 1.0 if not drawn_default else _default(each, jobs, generator)
        energy.append(each.energy_ratio[chosen].mean(axis=1) / default - 1)
        time.append(each.time_ratio[chosen].mean(axis=1) / default - 1)
    ends = np.array([np.max(energy, 0), np.min(energy, 0), np.max(time, 0), np.min(time, 0)])
    low, high = np.percentile(ends, [5, 95], axis=1)
    return Reading(low.tolist(), high.tolist())


def _default(runs: Runs, jobs: int, generator: np.random.Generator) -> Floats:
    """Draw the default's mean over the last recurrences of jobs, against its expectation."""
    table = runs.table
    recorded = table.epochs[table.default]
    recorded = recorded[recorded <= table.max_epochs]
    drawn = generator.choice(recorded, (_DRAWS, LAST * jobs)).mean(axis=1)
    ratio: Floats = drawn / table.expected_epochs[table.default]
    return ratio

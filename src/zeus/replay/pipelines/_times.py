"""Times of computations by stage and clock, from those that ran.

A computation is partly bound by the clock and partly not: `t(f) = t0 (1 - b + b f0 / f)`. The line
is fitted for each stage and kind, with a share `b` close to that of the other stages, since a stage
often ran at a few clocks only. At a clock that ran, the measured mean counts, the more the
more often it ran; between and beyond, the line does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zeus.replay.pipelines._recording import Array, Run

KINDS = ("forward", "backward")
_NOISE = 0.004  # relative, of the mean at one clock about the line
_FEW = 5.0  # computations at a clock that weigh half
_TRUSTED = 2.0  # computations at a clock whose mean counts half, and the line half
_FIRST_SHARE = (0.8, 0.3)  # mean and standard deviation of `b`, before any stage is known
_SPREAD = 0.06  # standard deviation of `b` among the stages of a model


@dataclass(frozen=True)
class Curve:
    """Time of one computation by clock.

    Attributes:
        reference: MHz at which the line is `level`.
        level: Seconds.
        slope: Seconds by which the time grows while `reference / clock` grows by 1.
        clocks: MHz that ran, rising.
        corrections: By which factor, less 1, the time at each of them differs from the line.
    """

    reference: float
    level: float
    slope: float
    clocks: Array
    corrections: Array

    def line(self, clocks: Array) -> Array:
        """Return the seconds on the line."""
        return self.level + self.slope * (self.reference / clocks - 1)

    def __call__(self, clocks: Array) -> Array:
        """Return the seconds at given clocks."""
        corrected = 1 + np.interp(clocks, self.clocks, self.corrections)
        return np.asarray(self.line(clocks) * corrected)


def fit_times(runs: Sequence[Run], stages: int) -> dict[tuple[int, str], Curve]:
    """Fit the time of each computation of a stage.

    Args:
        runs: Schedules to use.
        stages: Number of stages.

    Returns:
        A curve by stage and kind, "forward" or "backward".
    """
    curves = {}
    for kind in KINDS:
        seen = [_means(runs, stage, stages, kind) for stage in range(stages)]
        reference = float(np.mean([clocks.mean() for clocks, _, _ in seen]))
        first = [_line(*each, reference, _FIRST_SHARE) for each in seen]
        share = float(np.mean([slope / level for level, slope in first]))
        for stage, (clocks, means, counts) in enumerate(seen):
            level, slope = _line(clocks, means, counts, reference, (share, _SPREAD))
            line = Curve(reference, level, slope, clocks, np.zeros(len(clocks))).line(clocks)
            corrections = (means / line - 1) * counts / (counts + _TRUSTED)
            curves[stage, kind] = Curve(reference, level, slope, clocks, corrections)
    return curves


def _means(runs: Sequence[Run], stage: int, stages: int, kind: str) -> tuple[Array, Array, Array]:
    """Return clocks that ran, and mean time and number of computations at each."""
    clocks = np.concatenate([run.clocks[kind][stage::stages].ravel() for run in runs])
    times = np.concatenate([run.times[kind][stage::stages].ravel() for run in runs])
    unique, index = np.unique(clocks, return_inverse=True)
    counts = np.bincount(index).astype(float)
    return unique, np.bincount(index, times) / counts, counts


def _line(
    clocks: Array, means: Array, counts: Array, reference: float, expected: tuple[float, float]
) -> tuple[float, float]:
    """Return level and slope of the line, given mean and standard deviation of its share."""
    share, spread = expected
    weights = np.sqrt(counts / (counts + _FEW)) / means / _NOISE
    rows = np.stack([weights, weights * (reference / clocks - 1)], axis=1)
    typical = float(np.average(means, weights=counts))
    prior = np.array([[-share, 1.0]]) / (typical * spread)
    level, slope = np.linalg.lstsq(
        np.concatenate([rows, prior]), np.append(weights * means, 0.0), rcond=None
    )[0]
    return float(level), float(slope)

"""Belief about a smooth curve over batch sizes: a Gaussian process on a few points.

It holds the mean and covariance of a quantity at every batch size of every lane. An observation at
one batch size is a rank-one update, so it is cheap and informs about the neighbors as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Arrays, Bools, Floats, Ints, Rows


@dataclass
class Belief(Arrays):
    """Mean and covariance of a Gaussian process.

    Attributes:
        mean: By lane and arm.
        covariance: By lane, arm and arm.
    """

    mean: Floats
    covariance: Floats

    def observe(self, rows: Rows, arm: Ints, value: Floats, noise: float) -> None:
        """Update with one observation for each of these lanes.

        Args:
            rows: The lanes.
            arm: Arm of the observation.
            value: Observed value.
            noise: Variance of the observation around the curve.
        """
        covariance, mean = self.covariance[rows], self.mean[rows]
        each = np.arange(len(arm))
        column = covariance[each, arm]
        spread = column[each, arm] + noise
        self.mean[rows] = mean + column * ((value - mean[each, arm]) / spread)[:, None]
        self.covariance[rows] = (
            covariance - (column / spread[:, None])[:, :, None] * column[:, None]
        )


def matern(position: Floats, scale: float, length: float, tilt: float, rough: float) -> Floats:
    """Return the Matérn 5/2 covariance of a smooth curve, by lane, arm and arm.

    Args:
        position: Position of each arm, by lane and arm.
        scale: Standard deviation of the curve.
        length: Length scale of the curve.
        tilt: Standard deviation of its overall slope.
        rough: Independent standard deviation of each arm.
    """
    apart = np.sqrt(5) * np.abs(position[:, :, None] - position[:, None, :]) / length
    covariance: Floats = scale**2 * (1 + apart + apart**2 / 3) * np.exp(-apart)
    covariance += tilt**2 * position[:, :, None] * position[:, None, :]
    covariance += rough**2 * np.eye(position.shape[1])
    return covariance


def fitted(mean: Floats, kernel: Floats, value: Floats, precision: Floats) -> Belief:
    """Return the posterior given observations.

    Args:
        mean: Prior mean, by lane and arm.
        kernel: Prior covariance.
        value: Mean observation at each arm; anything where there is none.
        precision: Inverse of its variance; 0 where there is none.
    """
    # Only arms with observations take part; most jobs have observed only a few. Jobs that have
    # observed as many are solved together: a larger system is rounded differently, and the belief
    # of a job must not depend on which others are updated with it, not even in the last digit.
    seen = (precision > 0).sum(axis=1)
    numbers = np.flatnonzero(np.bincount(seen))
    if len(numbers) == 1:
        return _fitted(mean, kernel, value, precision, int(numbers[0]))
    belief = Belief(np.empty_like(mean), np.empty_like(kernel))
    for number in numbers:
        rows = np.flatnonzero(seen == number)
        part = _fitted(mean[rows], kernel[rows], value[rows], precision[rows], int(number))
        belief.mean[rows], belief.covariance[rows] = part.mean, part.covariance
    return belief


def _fitted(mean: Floats, kernel: Floats, value: Floats, precision: Floats, seen: int) -> Belief:
    """Return the posterior of jobs that have observed the same number of arms."""
    if not seen:
        return Belief(mean.copy(), kernel.copy())
    where = np.argsort(precision <= 0, axis=1, kind="stable")[:, :seen]
    root = np.sqrt(np.take_along_axis(precision, where, axis=1))
    weighted = root[:, :, None] * np.take_along_axis(kernel, where[:, :, None], axis=1)
    inner = np.take_along_axis(weighted, where[:, None, :], axis=2) * root[:, None, :]
    gain = np.swapaxes(np.linalg.solve(inner + np.eye(seen), weighted), 1, 2)
    off = root * np.take_along_axis(np.where(precision > 0, value - mean, 0.0), where, axis=1)
    return Belief(mean + (gain @ off[:, :, None])[:, :, 0], kernel - gain @ weighted)


def relative(
    covariance: Floats, lanes: tuple[Ints, ...], reference: Ints
) -> tuple[Floats, Floats, Floats]:
    """Return variances by lane and arm, in relation to a reference arm.

    These are the variance of each arm, that minus its covariance with the reference, and the
    variance of the difference from the reference.

    Args:
        covariance: By lane (or by lane and GPU model), arm and arm.
        lanes: Selected lanes, as an index for each leading axis.
        reference: The arm that others are compared with, by lane.
    """
    arm = np.arange(covariance.shape[-1])
    variance = covariance[(*(index[:, None] for index in lanes), arm, arm)]
    common = covariance[(*lanes, reference)]
    apart = variance + variance[np.arange(len(reference)), reference][:, None] - 2 * common
    return variance, np.maximum(variance - common, 0.0), np.maximum(apart, 0.0)


def nearest(position: Floats, marks: Bools) -> Floats:
    """Return the distance of each arm from the nearest marked one; infinite if there is none.

    Args:
        position: Positions in ascending order, by lane and arm.
        marks: Whether an arm is marked, by lane and arm.
    """
    below = np.maximum.accumulate(np.where(marks, position, -np.inf), axis=1)
    above = np.minimum.accumulate(np.where(marks, position, np.inf)[:, ::-1], axis=1)[:, ::-1]
    distance: Floats = np.minimum(position - below, above - position)
    return distance


def likely_gain(deficit: Floats, spread: Floats) -> Floats:
    """Return the expected improvement over a reference.

    Args:
        deficit: Expected value minus that of the reference; negative if it is better.
        spread: Standard deviation.
    """
    # Bounded from below, or the ratio would be undefined.
    spread = np.maximum(spread, 1e-12)
    ratio = np.clip(deficit / spread, -37.0, 37.0)
    size = np.abs(ratio)
    t = 1 / (1 + _TAIL_SCALE * size)
    tail = _TAIL[-1] * t
    for coefficient in _TAIL[-2::-1]:
        tail = (tail + coefficient) * t
    # Expected excess beyond |deficit|: the density minus |deficit| times the tail, scaled.
    part = spread * np.exp(-0.5 * size * size) * np.maximum(_DENSITY - size * _DENSITY * tail, 0.0)
    gain: Floats = part - np.minimum(deficit, 0.0)
    return gain


# Tail of the normal distribution over its density, for x >= 0 (Abramowitz and Stegun, 26.2.17).
_TAIL_SCALE = 0.2316419
_TAIL = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
_DENSITY = 1 / np.sqrt(2 * np.pi)


def lower_bound_shift(mean: Floats, variance: Floats, bound: Floats, noise: Floats) -> Floats:
    """Return the increase of a belief's mean after an observation censored at a lower bound.

    Args:
        mean: Mean of the belief.
        variance: Variance of the belief.
        bound: Value that the observation exceeded.
        noise: Variance of the observation itself.
    """
    deviation = np.sqrt(variance + noise)
    shift: Floats = variance / deviation * _hazard((mean - bound) / deviation)
    return shift


def tail_probability(x: Floats) -> Floats:
    """Return the probability that a standard normal variable exceeds x, to seven digits."""
    positive = np.abs(x) / np.sqrt(2)
    tail = 0.5 * _scaled(positive) * np.exp(-np.minimum(positive**2, 700.0))
    probability: Floats = np.where(x >= 0, tail, 1 - tail)
    return probability


def _hazard(x: Floats) -> Floats:
    """Return the density of the standard normal distribution divided by its CDF."""
    below = np.sqrt(2 / np.pi) / _scaled(np.abs(x) / np.sqrt(2))
    density = np.exp(-0.5 * np.minimum(x**2, 1400.0)) / np.sqrt(2 * np.pi)
    hazard: Floats = np.where(x < 0, below, density / (1 - tail_probability(np.maximum(x, 0.0))))
    return hazard


# A rational Chebyshev fit of exp(x²) erfc(x) for x >= 0 (Numerical Recipes, erfc).
_FIT = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)


def _scaled(x: Floats) -> Floats:
    t = 1 / (1 + 0.5 * x)
    power = np.full_like(t, _FIT[-1])
    for coefficient in _FIT[-2::-1]:
        power = power * t + coefficient
    scaled: Floats = t * np.exp(power)
    return scaled

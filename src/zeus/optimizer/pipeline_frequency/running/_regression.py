"""Bayesian linear regression with few unknowns, in plain Python: training processes have no more.

Unknowns are Gaussian with mean 0 beforehand, each with a precision (the inverse of its variance);
0 for one of which nothing is known. Equations are sparse rows with a value and a variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

_JITTER = 1e-9  # relative, on the diagonal: unknowns that no equation distinguishes stay finite


class Equation(NamedTuple):
    """A measured sum of unknowns.

    Attributes:
        row: Factors of the unknowns, by index.
        value: The measured sum.
        variance: Its variance.
    """

    row: Mapping[int, float]
    value: float
    variance: float


class Posterior:
    """The unknowns, given the equations.

    Attributes:
        mean: Mean of each unknown.
        evidence: Logarithm of how likely the equations were beforehand, up to a constant that is
            the same for all priors with the same unknowns of precision 0.
    """

    def __init__(self, mean: list[float], factor: list[list[float]], evidence: float) -> None:
        self.mean = mean
        self.evidence = evidence
        self._factor = factor

    def value(self, row: Mapping[int, float]) -> float:
        """Return the mean of a sum of unknowns."""
        return math.fsum(self.mean[at] * by for at, by in row.items())

    def variance(self, row: Mapping[int, float]) -> float:
        """Return the variance of a sum of unknowns."""
        solved = _forward(self._factor, [row.get(at, 0.0) for at in range(len(self.mean))])
        return _dot(solved, solved)


def regress(equations: Sequence[Equation], precisions: Sequence[float]) -> Posterior:
    """Return the posterior of the unknowns.

    Args:
        equations: The measurements.
        precisions: Precision of each unknown beforehand.
    """
    size = len(precisions)
    matrix = [[0.0] * size for _ in range(size)]
    vector = [0.0] * size
    squares = 0.0
    for row, value, variance in equations:
        weight = 1 / variance
        squares += weight * value * value
        terms = list(row.items())
        for at, by in terms:
            weighted = weight * by
            vector[at] += weighted * value
            line = matrix[at]
            for other, times in terms:
                if other <= at:
                    line[other] += weighted * times
    for at, precision in enumerate(precisions):
        matrix[at][at] += precision + _JITTER * (matrix[at][at] or 1.0)
    factor = _cholesky(matrix)
    mean = _backward(factor, _forward(factor, vector))
    evidence = 0.5 * (_dot(mean, vector) - squares)
    evidence += 0.5 * math.fsum(math.log(each) for each in precisions if each)
    evidence -= math.fsum(math.log(line[-1]) for line in factor)
    return Posterior(mean, factor, evidence)


def _cholesky(matrix: list[list[float]]) -> list[list[float]]:
    """Return the lower triangular factor of a symmetric matrix, given by its lower triangle."""
    factor: list[list[float]] = []
    for at, line in enumerate(matrix):
        row: list[float] = []
        for other in range(at):
            before = factor[other]
            row.append((line[other] - _dot(row, before[:other])) / before[other])
        row.append(math.sqrt(max(line[at] - _dot(row, row), 1e-300)))
        factor.append(row)
    return factor


def _forward(factor: list[list[float]], vector: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for line, value in zip(factor, vector, strict=True):
        solved.append((value - _dot(line[:-1], solved)) / line[-1])
    return solved


def _backward(factor: list[list[float]], vector: Sequence[float]) -> list[float]:
    solved = list(vector)
    for at in range(len(factor) - 1, -1, -1):
        solved[at] /= factor[at][at]
        for other in range(at):
            solved[other] -= factor[at][other] * solved[at]
    return solved


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total

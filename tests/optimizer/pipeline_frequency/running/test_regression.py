"""Regression with few unknowns, beside the same in numpy, and the promise of its variances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zeus.optimizer.pipeline_frequency.running._regression import Equation, Posterior, regress


def problem(seed: int, size: int = 5, count: int = 12):
    """Unknowns drawn from their prior, and noisy sums of some of them."""
    random = np.random.default_rng(seed)
    precisions = random.uniform(0.2, 4.0, size)
    truth = random.standard_normal(size) / np.sqrt(precisions)
    equations = []
    for _ in range(count):
        places = random.choice(size, 3, replace=False)
        row = {int(at): float(by) for at, by in zip(places, random.normal(0, 2, 3), strict=True)}
        variance = float(random.uniform(0.05, 2.0))
        noise = math.sqrt(variance) * float(random.standard_normal())
        value = sum(by * float(truth[at]) for at, by in row.items()) + noise
        equations.append(Equation(row, value, variance))
    return [float(each) for each in precisions], truth, equations


def dense(equations: list[Equation], size: int):
    matrix = np.zeros((len(equations), size))
    for number, (row, _, _) in enumerate(equations):
        for at, by in row.items():
            matrix[number, at] = by
    values = np.array([each.value for each in equations])
    return matrix, values, np.diag([each.variance for each in equations])


@pytest.mark.parametrize("seed", range(5))
def test_the_posterior_is_that_of_the_normal_equations(seed):
    precisions, _, equations = problem(seed)
    matrix, values, noise = dense(equations, len(precisions))
    weights = np.linalg.inv(noise)
    covariance = np.linalg.inv(matrix.T @ weights @ matrix + np.diag(precisions))
    mean = covariance @ matrix.T @ weights @ values
    found = regress(equations, precisions)
    assert found.mean == pytest.approx(list(mean), rel=1e-6)
    row = {0: 1.0, 3: -2.0}
    direction = np.array([1.0, 0, 0, -2.0, 0])
    assert found.value(row) == pytest.approx(direction @ mean, rel=1e-6)
    assert found.variance(row) == pytest.approx(direction @ covariance @ direction, rel=1e-6)


def test_the_evidence_compares_priors_as_the_density_of_the_values_does():
    precisions, _, equations = problem(7)
    matrix, values, noise = dense(equations, len(precisions))

    def density(prior: list[float]) -> float:
        covariance = matrix @ np.diag([1 / each for each in prior]) @ matrix.T + noise
        _, logarithm = np.linalg.slogdet(covariance)
        return -0.5 * float(logarithm + values @ np.linalg.solve(covariance, values))

    wide = [each / 50 for each in precisions]
    found = regress(equations, precisions).evidence - regress(equations, wide).evidence
    assert found == pytest.approx(density(precisions) - density(wide), rel=1e-5)


def test_the_stated_variances_cover_the_truth():
    inside = squares = count = 0.0
    for seed in range(400):
        precisions, truth, equations = problem(seed)
        found = regress(equations, precisions)
        for at in range(len(precisions)):
            error = (found.mean[at] - truth[at]) / math.sqrt(found.variance({at: 1.0}))
            squares += error * error
            inside += abs(error) <= 1.96
            count += 1
    assert 0.935 <= inside / count <= 0.965  # of 2,000
    assert 0.9 <= squares / count <= 1.1


def test_without_equations_the_prior_stays():
    found = regress([], [4.0, 0.25])
    assert found.mean == [0.0, 0.0]
    assert found.variance({0: 1.0}) == pytest.approx(0.25)
    assert found.variance({0: 1.0, 1: 2.0}) == pytest.approx(0.25 + 4 * 4.0)


def test_unknowns_that_no_equation_distinguishes_stay_finite():
    """Nothing is known of either beforehand, and only their sum is measured."""
    equations = [Equation({0: 1.0, 1: 1.0}, 10.0, 0.01)] * 3
    found = regress(equations, [0.0, 0.0])
    assert all(map(math.isfinite, found.mean))
    both = {0: 1.0, 1: 1.0}
    assert found.value(both) == pytest.approx(10.0, rel=1e-6)
    assert found.variance(both) == pytest.approx(0.01 / 3, rel=1e-3)
    assert found.variance({0: 1.0}) > 1e3 * found.variance(both)


def test_more_equations_leave_less_uncertainty():
    equations = problem(3)[2]
    few, many = (regress(equations * times, [1.0] * 5) for times in (1, 9))

    def variances(of: Posterior) -> list[float]:
        return [of.variance({at: 1.0}) for at in range(5)]

    assert all(b < a for a, b in zip(variances(few), variances(many), strict=True))

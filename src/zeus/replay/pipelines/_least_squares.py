"""Nonlinear least squares by Levenberg and Marquardt's method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zeus.replay.pipelines._recording import Array

_ROUNDS = 30
_ENOUGH = 1e-3  # relative fall of the sum of squares below which nothing is left to gain


def least_squares(
    residuals: Callable[[Array], tuple[Array, Array]], start: Array
) -> tuple[Array, float]:
    """Return the parameters of the least sum of squares near a start, and that sum.

    Args:
        residuals: Residuals at given parameters and their Jacobian, residual by parameter.
        start: Parameters to begin with.
    """
    best = start
    found, slopes = residuals(best)
    least = float(found @ found)
    damping = 1e-3
    for _ in range(_ROUNDS):
        normal = slopes.T @ slopes
        damped = normal + damping * np.diag(normal.diagonal() + 1e-12)
        trial = best - np.linalg.solve(damped, slopes.T @ found)
        tried, its_slopes = residuals(trial)
        total = float(tried @ tried)
        if total < least:
            gained = least - total
            best, found, slopes, least = trial, tried, its_slopes, total
            damping = max(damping / 5, 1e-9)
            if gained < _ENOUGH * least:
                break
        else:
            damping *= 5
            if damping > 1e6:  # the step is too short to matter
                break
    return best, least

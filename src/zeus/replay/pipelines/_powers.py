"""Power of computations by rank and clock, from the energies of whole iterations.

Only the energy of a rank in an iteration is known, so powers come from regression over schedules.
Powers that are free for each kind of computation and rank would fit noise with values that no GPU
has. So one curve of the clock, `a f + b f^5` with positive coefficients, holds for all of them,
scaled by a factor for each rank, up to the most that the board's limit admits; and a GPU that does
not compute draws the blocking power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zeus.replay.pipelines._boards import Board
from zeus.replay.pipelines._least_squares import least_squares
from zeus.replay.pipelines._recording import Array, Run
from zeus.replay.pipelines._times import KINDS

_EXPONENTS = np.array([1.0, 5.0])
_COEFFICIENTS = np.array([180.0, 10.0])  # watts at 1 GHz, to start from
_NOISE = 0.003  # relative, of a rank's energy in an iteration
_WEAK = 3.0  # standard deviation of the logarithm of a coefficient
_SCALES = 0.1  # standard deviation of the logarithm of a rank's factor
# A board averages its power over computing and waiting, so computing may draw more than its limit.
_BEYOND_LIMIT = np.array([1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.13, 1.16, 1.2, 1.3, 1.5])
# Mean and standard deviation of its logarithm; decides where energies do not, since the fitted
# schedules are slow.
_BEYOND = (0.05, 0.03)


@dataclass(frozen=True)
class Powers:
    """Power of computations.

    Attributes:
        coefficients: Watts at 1 GHz of each term of the curve.
        scales: Factor of each rank.
        most: Watts that no computation exceeds.
        blocking_power: Watts of a GPU that does not compute.
    """

    coefficients: Array
    scales: Array
    most: float
    blocking_power: float

    def __call__(self, clocks: Array) -> Array:
        """Return the watts of computations at given clocks, by rank and clock."""
        curve = (clocks[:, None] / 1000) ** _EXPONENTS @ self.coefficients
        return np.asarray(np.minimum(self.scales[:, None] * curve, self.most))


def fit_powers(runs: Sequence[Run], board: Board) -> Powers:
    """Fit the power of computations.

    Args:
        runs: Schedules to use.
        board: The GPU model.
    """
    clocks = np.unique([run.clocks[kind] for run in runs for kind in KINDS])
    spent = np.array([seconds_at(clocks, run.clocks, run.times) for run in runs])
    energies = np.array([run.energies for run in runs])
    times = np.array([run.time for run in runs])[:, None]
    computing = energies - board.blocking_power * (times - spent.sum(2))
    terms = (clocks[:, None] / 1000) ** _EXPONENTS
    ranks, count = energies.shape[1], len(_EXPONENTS)
    start = np.concatenate([np.log(_COEFFICIENTS), np.zeros(ranks)])
    spread = np.array([_WEAK] * count + [_SCALES] * ranks)
    scale = 1 / (energies * _NOISE)
    belongs = np.eye(ranks)

    def fitted(most: float) -> tuple[Array, float]:
        def residuals(logs: Array) -> tuple[Array, Array]:
            parts = terms * np.exp(logs[:count])  # watts by clock and term
            watts = np.exp(logs[count:])[:, None] * parts.sum(1)  # by rank and clock
            free = watts < most
            watts = np.minimum(watts, most)
            joules = (spent * watts).sum(2)
            by_term = np.einsum("srf,rf,ft->srt", spent, free, parts)
            by_term *= np.exp(logs[count:])[:, None]
            by_rank = (spent * (watts * free)).sum(2)[:, :, None] * belongs
            slopes = np.concatenate([by_term, by_rank], axis=2) * scale[:, :, None]
            return (
                np.concatenate([((joules - computing) * scale).ravel(), (logs - start) / spread]),
                np.concatenate([slopes.reshape(-1, len(logs)), np.diag(1 / spread)]),
            )

        return least_squares(residuals, start)

    tried = []
    for factor in _BEYOND_LIMIT:
        most = board.power_limit * float(factor)
        logs, squares = fitted(most)
        unlikely = (np.log(factor) - _BEYOND[0]) / _BEYOND[1]
        tried.append((squares + unlikely**2, most, logs))
    _, most, logs = min(tried, key=lambda each: each[0])
    return Powers(np.exp(logs[:count]), np.exp(logs[count:]), most, board.blocking_power)


def seconds_at(clocks: Array, scheduled: Mapping[str, Array], times: Mapping[str, Array]) -> Array:
    """Return the seconds of computing, by rank and clock.

    Args:
        clocks: MHz, rising; every scheduled clock is one of them.
        scheduled: MHz of "forward" and "backward", by rank and microbatch.
        times: Seconds of each, likewise.
    """
    ranks = len(scheduled[KINDS[0]])
    spent = np.zeros((ranks, len(clocks)))
    for kind in KINDS:
        index = np.searchsorted(clocks, scheduled[kind])
        np.add.at(spent, (np.arange(ranks)[:, None], index), times[kind])
    return spent

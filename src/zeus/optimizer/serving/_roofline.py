"""Time of an iteration by batch size and setting: a roofline, fitted to what was measured.

An iteration waits for memory or for arithmetic, whichever takes longer, smoothly where both take
about as long: t = (m^8 + (c / x)^8)^(1/8), at the relative setting x, where both m and c grow
linearly with the batch. Four numbers, so that a few visited settings and batches inform the rest.
What the fit misses at a visited setting is added to it. Two steps below the lowest visited setting
the fit is still believed, so that they are tried; it takes seconds to see what they do. Further
below, the time is assumed to be inversely proportional to the setting, the worst that a roofline
allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from zeus.optimizer.serving._linear import solved

_FORGET = 0.998  # of older measurements per new one of the same kind
_ENOUGH = 1.5  # seconds of work after which a setting counts as visited
_SHARPNESS = 8
_NEAR = 2  # settings below the lowest visited one for which the fit is believed
_RATIO = math.log(1.3)  # of neighboring sizes of batches
_ASSUMED = (0.0, -4.6, -0.7, -3.5)  # log of m0 over the time, m1/m0, c0/m0, c1/c0
_SPREAD = (0.5, 1.0, 0.7, 1.0)  # standard deviations of those
_NOISE = 0.05  # of a measured second, relative


class Roofline:
    """Times per iteration, learned.

    Args:
        ladder: Settings, decreasing.
    """

    def __init__(self, ladder: Sequence[float]) -> None:
        self._relative: list[float] = [value / ladder[0] for value in ladder]
        self._cells: dict[tuple[int, int], list[float]] = {}
        self._seconds = [0.0] * len(self._relative)
        self._fit: list[float] | None = None
        self._residuals: list[float] = []
        self._factors: dict[tuple[int, int], float] = {}
        self._added = 0
        #: Index of the lowest setting that was visited; that of the highest if none was.
        self.lowest = 0

    def add(self, rung: int, batch: float, seconds: float, iterations: float) -> None:
        """Record that so many iterations with a mean batch took so many seconds at a setting."""
        if seconds <= 0 or iterations <= 0:
            return
        key = rung, round(math.log(max(batch, 1.0)) / _RATIO)
        cell = self._cells.setdefault(key, [0.0, 0.0])
        cell[0] = cell[0] * _FORGET + seconds
        cell[1] = cell[1] * _FORGET + iterations
        self._count(rung, seconds)
        self._added += 1
        if self._added % 50 == 0 or self._added < 10 or self._seconds[rung] < 2 * _ENOUGH:
            self._residuals = []  # fitted again when asked for

    def _count(self, rung: int, seconds: float) -> None:
        self._seconds[rung] += seconds
        if rung > self.lowest and self.visited(rung):
            self.lowest = rung
            self._factors.clear()

    def visited(self, rung: int) -> bool:
        """Whether enough work was done at a setting to know it."""
        return self._seconds[rung] >= _ENOUGH

    def factor(self, rung: int, batch: float) -> float:
        """Return how many times as long an iteration takes as at the highest setting."""
        if not self._residuals:
            self._refit()
            self._factors.clear()
        key = rung, round(4 * batch)
        if key not in self._factors:
            self._factors[key] = self._factor(rung, max(1.0, key[1] / 4))
        return self._factors[key]

    def _factor(self, rung: int, batch: float) -> float:
        if self._fit is None:
            return 1 / self._relative[rung]
        known = min(rung, self.lowest + _NEAR)
        ratio = self._log_time(self._fit, known, batch) - self._log_time(self._fit, 0, batch)
        found = math.exp(max(0.0, ratio + self._residuals[min(known, self.lowest)]))
        found = min(found, 1 / float(self._relative[known] ** 1.3))
        return found * self._relative[known] / self._relative[rung]

    # --- fitting ----------------------------------------------------------------------------

    def _log_time(self, fit: Sequence[float], rung: int, batch: float) -> float:
        memory = math.exp(fit[0]) * (1 + math.exp(fit[1]) * batch)
        compute = math.exp(fit[0] + fit[2]) * (1 + math.exp(fit[3]) * batch) / self._relative[rung]
        high, low = max(memory, compute), min(memory, compute)
        return math.log(high) + math.log1p((low / high) ** _SHARPNESS) / _SHARPNESS

    def _refit(self) -> None:
        self._residuals = [0.0] * len(self._relative)
        cells = [
            (rung, math.exp(kind * _RATIO), math.log(seconds / work), seconds / (seconds + 20.0))
            for (rung, kind), (seconds, work) in self._cells.items()
        ]
        if not cells:
            return
        if self._fit is None:
            base = sum(cell[2] * cell[3] for cell in cells) / sum(cell[3] for cell in cells)
            self._fit = [base, *_ASSUMED[1:]]
        centre = [self._fit[0], *_ASSUMED[1:]]
        for _ in range(4):
            self._fit = self._step(self._fit, centre, cells)
        self._residuals = self._left_over(cells)

    def _step(
        self,
        fit: list[float],
        centre: list[float],
        cells: list[tuple[int, float, float, float]],
    ) -> list[float]:
        """Return the fit after one step of Gauss and Newton."""
        matrix = [[0.0] * 4 for _ in range(4)]
        vector = [0.0] * 4
        for i in range(4):
            matrix[i][i] = 1 / _SPREAD[i] ** 2
            vector[i] = (centre[i] - fit[i]) / _SPREAD[i] ** 2
        for rung, batch, value, certainty in cells:
            weight = 20 * certainty / (20 * _NOISE**2)
            now = self._log_time(fit, rung, batch)
            slopes = []
            for i in range(4):
                moved = list(fit)
                moved[i] += 1e-4
                slopes.append((self._log_time(moved, rung, batch) - now) / 1e-4)
            for i in range(4):
                vector[i] += weight * slopes[i] * (value - now)
                for j in range(4):
                    matrix[i][j] += weight * slopes[i] * slopes[j]
        steps = solved(matrix, vector)
        return [a + max(-0.5, min(0.5, b)) for a, b in zip(fit, steps, strict=True)]

    def _left_over(self, cells: list[tuple[int, float, float, float]]) -> list[float]:
        """Return what the fit misses at each setting, relative to the highest."""
        assert self._fit is not None
        sums = [[0.0, 0.0] for _ in self._relative]
        for rung, batch, value, certainty in cells:
            sums[rung][0] += certainty
            sums[rung][1] += certainty * (value - self._log_time(self._fit, rung, batch))
        means = [total / (weight + 0.2) for weight, total in sums]
        return [
            mean - means[0] if weight else 0.0
            for mean, (weight, _) in zip(means, sums, strict=True)
        ]

    def state(self) -> list[Any]:
        """Return what was learned, for JSON."""
        return [[*key, *cell] for key, cell in self._cells.items()]

    def load(self, state: list[Any]) -> None:
        """Continue with what was learned."""
        for rung, kind, seconds, work in state:
            if 0 <= rung < len(self._relative) and seconds > 0 and work > 0:
                self._cells[int(rung), int(kind)] = [float(seconds), float(work)]
                self._count(int(rung), float(seconds))
        self._residuals = []

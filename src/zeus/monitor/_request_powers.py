"""Power of a GPU in each phase of serving, learned from the energies of intervals.

The energy of an interval between two refreshes of the counter is the sum over phases of their power
times their time in it; generating also takes power with each request of the batch. All are found by
least squares, none negative, recent intervals counting more. An interval's energy is then divided
over its phases by these powers, so that the parts add up to it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from zeus.monitor._request_steps import Phase

PHASES = len(Phase)
_TERMS = PHASES + 1  # and one for each request of a batch that generates
_MEMORY = 30.0  # seconds
_PRIOR = 0.5  # standard deviation of a power before anything is known, of the mean power
_MIN_SPREAD = 0.02  # of power, by which a phase differs from time to time
_FIRST_SPREAD = 0.1
_NOISE_MEMORY = 50.0  # intervals
_MIN_POWER = 0.01  # of the mean power

Vector = list[float]


class PhasePowers:
    """Powers by phase on one GPU."""

    def __init__(self) -> None:
        self.spread = _FIRST_SPREAD
        self._products = [[0.0] * _TERMS for _ in range(_TERMS)]
        self._targets = [0.0] * _TERMS
        self._watts: Vector = [0.0] * _TERMS
        self._covariance = [[0.0] * _TERMS for _ in range(_TERMS)]
        self._mean = 0.0
        self._squares = (_FIRST_SPREAD**2 * 5, 5.0)
        self._known = False

    @property
    def known(self) -> bool:
        """Whether anything was learned."""
        return self._known

    def power(self, phase: Phase, batch: int) -> float:
        """Return the expected watts."""
        watts = self._watts[phase] if self._known else self._mean
        if phase is Phase.DECODE:
            watts += self._watts[PHASES] * batch
        return max(watts, _MIN_POWER * self._mean)  # what is 0 could be given nothing

    def variance(self, phase: Phase, batch: int) -> float:
        """Return the variance of that (W²): how well it is known."""
        at, each, found = int(phase), PHASES, self._covariance
        if phase is not Phase.DECODE:
            return found[at][at]
        cross = 2 * batch * found[at][each]
        return max(found[at][at] + cross + batch * batch * found[each][each], 0.0)

    def learn(self, seconds: Sequence[float], batch_seconds: float, joules: float) -> None:
        """Learn from an interval.

        Args:
            seconds: Time in each phase.
            batch_seconds: Time of generating, times the size of the batch.
            joules: Energy of the interval.
        """
        length = math.fsum(seconds)
        if length <= 0 or joules < 0:
            return
        terms = [*seconds, batch_seconds]
        mean = joules / length
        if not self._known:
            self._mean = mean
        else:
            expected = sum(map(float.__mul__, self._watts, terms))
            self._learn_spread(joules, expected)
            self._mean += min(length / _MEMORY, 0.5) * (mean - self._mean)
        keep = math.exp(-min(length, _MEMORY) / _MEMORY)
        # The error of an interval goes with its length, so that shorter ones count alike.
        weight = 1 / length
        for row, one in enumerate(terms):
            line = self._products[row]
            for column, other in enumerate(terms):
                line[column] = line[column] * keep + one * other * weight
            self._targets[row] = self._targets[row] * keep + one * joules * weight
        self._known = True
        self._solve()

    def _learn_spread(self, joules: float, expected: float) -> None:
        off = min((joules - expected) ** 2 / max(joules * expected, 1e-9), 1.0)
        keep = 1 - 1 / _NOISE_MEMORY
        total, count = self._squares
        self._squares = total * keep + off, count * keep + 1
        self.spread = max(math.sqrt(self._squares[0] / self._squares[1]), _MIN_SPREAD)

    def _solve(self) -> None:
        """Solve by least squares, none negative: what would be is left out."""
        noise = (self.spread * self._mean) ** 2 * 0.1  # W² s: of intervals of about 0.1 s
        prior = noise / max(_PRIOR * self._mean, 1.0) ** 2
        start = [*[self._mean] * PHASES, 0.0]
        matrix = [line.copy() for line in self._products]
        right = self._targets.copy()
        for at in range(_TERMS):
            matrix[at][at] += prior * (1.0 if at < PHASES else 100.0)
            right[at] += prior * start[at]
        kept = list(range(_TERMS))
        while kept:
            inverse = _inverse([[matrix[a][b] for b in kept] for a in kept])
            found = [sum(line[j] * right[at] for j, at in enumerate(kept)) for line in inverse]
            worst = min(range(len(kept)), key=found.__getitem__)
            if found[worst] >= 0:
                break
            del kept[worst]
        self._watts = [0.0] * _TERMS
        self._covariance = [[0.0] * _TERMS for _ in range(_TERMS)]
        for i, a in enumerate(kept):
            self._watts[a] = found[i]
            for j, b in enumerate(kept):
                self._covariance[a][b] = noise * inverse[i][j]


def _inverse(matrix: list[Vector]) -> list[Vector]:
    """Invert a small positive definite matrix."""
    size = len(matrix)
    rows = [
        [*line, *(1.0 if at == column else 0.0 for column in range(size))]
        for at, line in enumerate(matrix)
    ]
    for at in range(size):
        pivot = max(rows[at][at], 1e-12)
        rows[at] = [value / pivot for value in rows[at]]
        for other in range(size):
            factor = rows[other][at]
            if other != at and factor:
                rows[other] = [
                    value - factor * lead for value, lead in zip(rows[other], rows[at], strict=True)
                ]
    return [line[size:] for line in rows]

"""Power of a service's GPUs by phase and setting, learned from energies of intervals.

The energy of an interval is idle seconds times a power, plus busy seconds of each phase times a
power that depends on the setting, a + b x + c x³ (dynamic power goes with clock times the square of
the voltage), plus a little per generated token. All are linear in what is unknown, so one least
squares fit has them; until settings were visited, a guess of the usual shape stands in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zeus.optimizer.serving._linear import solved

_FORGET = 0.9997  # per interval
_SHAPE = (0.4, 0.2, 0.4)  # assumed shares of the power at the highest setting
_IDLE = 0.35  # assumed idle power, likewise
_CERTAINTY = 4.0  # seconds of measurements that the assumptions count as


def features(
    idle: float, prefill: float, decode: float, *, x: float, y: float, tokens: float
) -> list[float]:
    """Return what the energy of an interval is linear in.

    Args:
        idle: Seconds without work.
        prefill: Seconds of prefill.
        decode: Seconds of decode.
        x: Setting of prefill, relative to the highest.
        y: Setting of decode.
        tokens: Generated tokens.
    """
    x3, y3 = x * x * x, y * y * y
    return [idle, prefill, prefill * x, prefill * x3, decode, decode * y, decode * y3, tokens / 1e3]


class PowerModel:
    """Least squares fit of the energies of intervals."""

    def __init__(self) -> None:
        self._matrix = [[0.0] * 8 for _ in range(8)]
        self._vector = [0.0] * 8
        self._energy = self._seconds = self._busy_energy = self._busy = 0.0
        self._solution: list[float] | None = None
        self._added = 0

    def add(self, row: Sequence[float], energy: float) -> None:
        """Record an interval."""
        busy = row[1] + row[4]
        if busy > row[0]:
            self._busy_energy += energy
            self._busy += busy + row[0]
        for i, first in enumerate(row):
            own = self._matrix[i]
            for j, second in enumerate(row):
                own[j] = own[j] * _FORGET + first * second
            self._vector[i] = self._vector[i] * _FORGET + first * energy
        self._energy += energy
        self._seconds += busy + row[0]
        self._added += 1
        if self._added % 10 == 0 or self._added < 20:
            self._solution = None

    @property
    def known(self) -> bool:
        """Whether there were energies of work at all."""
        return self._busy > 0

    def power(self, row: Sequence[float]) -> float:
        """Return the energy of an interval with these features."""
        if self._solution is None:
            self._solution = self._solve()
        return sum(a * b for a, b in zip(self._solution, row, strict=True))

    def _solve(self) -> list[float]:
        watts = self._busy_energy / self._busy if self._busy else 1.0
        assumed = [watts * share for share in (_IDLE, *_SHAPE, *_SHAPE)] + [0.0]
        matrix = [list(row) for row in self._matrix]
        vector = list(self._vector)
        for i in range(8):
            weight = _CERTAINTY if i < 7 else 1.0
            matrix[i][i] += weight
            vector[i] += weight * assumed[i]
        return solved(matrix, vector)

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        return {
            "matrix": self._matrix,
            "vector": self._vector,
            "sums": [self._energy, self._seconds, self._busy_energy, self._busy],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue with what was learned."""
        self._matrix = [[float(value) for value in row] for row in state["matrix"]]
        self._vector = [float(value) for value in state["vector"]]
        self._energy, self._seconds, self._busy_energy, self._busy = map(float, state["sums"])
        self._solution = None

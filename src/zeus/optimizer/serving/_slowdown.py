"""How much slower a phase is at lower settings, learned from a few visited ones.

Times per unit of work at a setting and a kind of work (a batch of about this size) are products
of two factors, one of the setting and one of the kind, so that stays at different loads can be
compared. Between visited settings the factor is interpolated. Below the lowest one that was
visited it is assumed to be inversely proportional to the setting, which is the worst that a
roofline allows: memory-bound work turns out to be better when it is tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_FORGET = 0.998  # of older measurements per new one at the same setting
_ENOUGH = 2.0  # seconds of work after which a setting counts as visited
_WORST = 1.05  # exponent of the steepest slowdown
_PRIOR = 3.0  # seconds of work that the assumed slowdown counts as


class Slowdown:
    """The time per unit of work at each setting, relative to the highest.

    Args:
        ladder: Settings, decreasing.
    """

    def __init__(self, ladder: Sequence[float]) -> None:
        self._ladder = ladder
        self._cells: dict[tuple[int, int], list[float]] = {}
        self._factors: list[float] | None = None
        #: Index of the lowest setting that was visited; that of the highest if none was.
        self.lowest = 0

    def add(self, rung: int, kind: int, seconds: float, work: float) -> None:
        """Record that so many units of work of a kind took so many seconds at a setting."""
        if seconds <= 0 or work <= 0:
            return
        cell = self._cells.setdefault((rung, kind), [0.0, 0.0])
        cell[0] = cell[0] * _FORGET + seconds
        cell[1] = cell[1] * _FORGET + work
        self._factors = None
        if rung > self.lowest and self.visited(rung):
            self.lowest = rung

    def visited(self, rung: int) -> bool:
        """Whether enough work was done at a setting to know it."""
        return sum(cell[0] for key, cell in self._cells.items() if key[0] == rung) >= _ENOUGH

    def factors(self) -> list[float]:
        """Return the slowdown at each setting, 1 at the highest and never decreasing."""
        if self._factors is None:
            self._factors = self._fit()
        return self._factors

    def _fit(self) -> list[float]:
        cells = [
            (rung, kind, seconds, math.log(seconds / work))
            for (rung, kind), (seconds, work) in self._cells.items()
        ]
        rungs = sorted({cell[0] for cell in cells})
        of_rung = {rung: self._assumed(0, rung) for rung in rungs}
        for _ in range(8 if len(rungs) > 1 else 0):
            of_kind: dict[int, list[float]] = {}
            for rung, kind, weight, value in cells:
                sums = of_kind.setdefault(kind, [0.0, 0.0])
                sums[0] += weight
                sums[1] += weight * (value - of_rung[rung])
            sums_of: dict[int, list[float]] = {rung: [0.0, 0.0] for rung in rungs}
            for rung, kind, weight, value in cells:
                kinds = of_kind[kind]
                sums_of[rung][0] += weight
                sums_of[rung][1] += weight * (value - kinds[1] / kinds[0])
            above: int | None = None
            for rung in rungs:
                prior = 0.0 if above is None else of_rung[above] + self._assumed(above, rung)
                weight, total = sums_of[rung]
                of_rung[rung] = (total + _PRIOR * prior) / (weight + _PRIOR)
                above = rung
        return self._curve(rungs, of_rung)

    def _curve(self, rungs: list[int], of_rung: dict[int, float]) -> list[float]:
        start = of_rung[rungs[0]] - self._assumed(0, rungs[0]) if rungs else 0.0
        known: list[tuple[int, float]] = [(0, 0.0)]
        for rung in rungs:
            if rung and self.visited(rung):
                # Slower than with 1 / setting is noise: few prompts, of other lengths.
                slowest = _WORST * self._assumed(0, rung)
                known.append((rung, min(slowest, max(known[-1][1], of_rung[rung] - start))))
        curve = []
        for index in range(len(self._ladder)):
            before = max(point for point in known if point[0] <= index)
            after = [point for point in known if point[0] > index]
            if after:
                share = self._assumed(before[0], index) / self._assumed(before[0], after[0][0])
                curve.append(before[1] + share * (after[0][1] - before[1]))
            else:
                curve.append(before[1] + self._assumed(before[0], index))
        return [math.exp(value) for value in curve]

    def _assumed(self, above: int, below: int) -> float:
        return math.log(self._ladder[above] / self._ladder[below])

    def state(self) -> list[Any]:
        """Return what was learned, for JSON."""
        return [[*key, *cell] for key, cell in self._cells.items()]

    def load(self, state: list[Any]) -> None:
        """Continue with what was learned."""
        for rung, kind, seconds, work in state:
            if 0 <= rung < len(self._ladder) and seconds > 0 and work > 0:
                self._cells[int(rung), int(kind)] = [float(seconds), float(work)]
        self.lowest = max(filter(self.visited, range(len(self._ladder))), default=0)
        self._factors = None

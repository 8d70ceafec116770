"""How many requests exceeded a bound, and how many more may."""

from __future__ import annotations

from collections import deque

from zeus.optimizer.serving._bounds import Bound

_MEMORY = 20_000.0  # requests over which the budget of a bound is kept


class Budget:
    """How many requests exceeded a bound: over the run, by level of load, and lately."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._run = [0.0, 0.0]
        self._levels: dict[int, list[float]] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=10)

    def add(self, level: int, total: float, share: float) -> None:
        own = self._levels.setdefault(level, [0.0, 0.0])
        for sums, memory in ((self._run, _MEMORY), (own, _MEMORY / 10)):
            if sums[0] > memory:
                sums[:] = [0.9 * sums[0], 0.9 * sums[1]]
            sums[0] += total
            sums[1] += total * share
        self._recent.append((total, total * share))

    @property
    def recent_share(self) -> float:
        return sum(each[1] for each in self._recent) / max(1.0, sum(e[0] for e in self._recent))

    @property
    def alarming(self) -> bool:
        above = sum(each[1] for each in self._recent)
        return above >= 2 and self.recent_share > 5 * self._bound.budget

    def generosity(self, level: int) -> float:
        """Return the factor on the share to aim at, by what was exceeded at a level and in all.

        Less than the budget is aimed at, so that most minutes keep it as well.
        """
        budget = self._bound.budget
        total, above = self._levels.get(level, [0.0, 0.0])
        here = above / max(total, 2 / budget) / budget
        return min(1.3, max(0.15, 2.4 * (0.55 - here))) * self.left

    @property
    def left(self) -> float:
        """Factor by how much of the budget of the run is left, 0.2 to 1."""
        budget = self._bound.budget
        share = self._run[1] / max(self._run[0], 2 / budget)
        return min(1.0, max(0.2, 3 * (1 - share / budget)))

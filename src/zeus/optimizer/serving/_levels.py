"""Latencies by level of load, as they would be at the highest setting.

A latency that was measured at a lower setting is divided by the slowdown that is predicted for it
there. So what was measured at all settings adds up, and at the present setting the prediction is
the measured distribution, however wrong the model is. Levels with few requests are merged with
their neighbors.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from zeus._latencies import Latencies

_RATIO = math.log(1.4)  # of neighboring levels
_MANY = 150.0  # requests up to which neighbors are merged
_MEMORY = 3000.0  # requests after which older ones are forgotten, by level
_BIN = math.log(1.01)  # width of the bins of `Latencies`


def level_of(load: float) -> int:
    """Return the level of a load."""
    return round(math.log(max(load, 1.0)) / _RATIO)


class Levels:
    """Distributions of one latency by level."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, float]] = {}
        self._totals: dict[int, float] = {}

    def add(
        self,
        level: int,
        latencies: Latencies,
        scale: float,
        cap: float = math.inf,
        pause: float = 0.0,
    ) -> None:
        """Record latencies that were measured where they are longer than at the highest setting.

        Args:
            level: The level of load.
            latencies: The latencies.
            scale: How many times as long they are.
            cap: By how many seconds they are longer at most.
            pause: By how many seconds they are longer besides.
        """
        if latencies.total <= 0:
            return
        own = self._counts.setdefault(level, {})
        total = self._totals.get(level, 0.0)
        if total + latencies.total > _MEMORY:
            keep = max(0.0, 1 - latencies.total / _MEMORY)
            for index in own:
                own[index] *= keep
            total *= keep
        for index, count in latencies.counts().items():
            seconds = math.exp(index * _BIN)
            unpaused = max(seconds - pause, seconds / 2)
            less = round(math.log(seconds / max(unpaused / scale, unpaused - cap)) / _BIN)
            own[index - less] = own.get(index - less, 0.0) + count
        self._totals[level] = total + latencies.total

    def all(self) -> Latencies:
        """Return the distribution over all levels."""
        counts: dict[int, float] = {}
        for own in self._counts.values():
            for index, count in own.items():
                counts[index] = counts.get(index, 0.0) + count
        return Latencies(counts)

    @property
    def highest(self) -> int | None:
        """The highest level that was seen."""
        return max(self._totals, default=None)

    def at(self, level: int, enough: float) -> Latencies | None:
        """Return the distribution at a level, merged with neighbors to have many requests.

        Returns:
            `None` if there are not even enough at this level, higher ones, and the three below.
        """
        order = [level, level + 1, level - 1, level + 2, level - 2]
        order += [*sorted(each for each in self._totals if each > level + 2), level - 3]
        counts: dict[int, float] = {}
        total = 0.0
        for each in order:
            if total >= _MANY or (total >= enough and abs(each - level) > 2):
                break
            for index, count in self._counts.get(each, {}).items():
                counts[index] = counts.get(index, 0.0) + count
            total += self._totals.get(each, 0.0)
        return Latencies(counts) if total >= enough else None

    def state(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        return {
            str(level): {str(index): count for index, count in counts.items() if count > 1e-3}
            for level, counts in self._counts.items()
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue with what was learned."""
        for level, counts in state.items():
            own = {int(index): float(count) for index, count in counts.items()}
            self._counts[int(level)] = own
            self._totals[int(level)] = math.fsum(own.values())


def upper(latencies: Latencies, share: float) -> float:
    """Return the latency that the given share of requests exceed, from few requests carefully.

    With fewer requests than it takes to see so small a share, a log-normal distribution with their
    mean and deviation stands in for the tail that has not been seen.
    """
    seen = latencies.percentile(100 * (1 - share)) or 0.0
    if latencies.total * share >= 1:
        return seen
    counts = latencies.counts()
    mean = sum(index * count for index, count in counts.items()) / latencies.total
    spread = sum((index - mean) ** 2 * count for index, count in counts.items())
    deviation = math.sqrt(spread / latencies.total)
    beyond = NormalDist().inv_cdf(1 - share) * (1 + 1.5 / math.sqrt(latencies.total))
    return max(seen, math.exp(_BIN * (mean + beyond * deviation)))

"""How much of the variation of times belongs to microbatches, rather than to single instructions.

Where microbatches differ in size, all their instructions take longer at all stages; where kernels
vary by chance, each for itself. It matters for plans: what is shared adds up along the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

_FEWEST = 20  # pairs of instructions
_MEMORY = 2_000.0  # pairs


class SharedVariation:
    """Learns the share of the variance that the instructions of a microbatch have in common."""

    def __init__(self) -> None:
        self._pairs = self._products = self._squares = 0.0

    def add(self, deviations: Iterable[float]) -> None:
        """Add the relative deviations of a microbatch's instructions from their mean times."""
        for one, other in combinations(deviations, 2):
            if self._pairs > _MEMORY:
                self._pairs *= 1 - 1 / _MEMORY
                self._products *= 1 - 1 / _MEMORY
                self._squares *= 1 - 1 / _MEMORY
            self._pairs += 1
            self._products += one * other
            self._squares += (one * one + other * other) / 2

    @property
    def share(self) -> float:
        """Share of the variance, from 0 to 1; 0 until enough was seen."""
        if self._pairs < _FEWEST or not self._squares:
            return 0.0
        return min(max(self._products / self._squares, 0.0), 1.0)

"""Corrects how energy was divided, once more is known of the powers of processes.

When processes begin to share a GPU, it is not known yet which of them draws more, and their energy
is divided by what is known. Blocks of time in which powers were uncertain are kept, and divided
again when they are better known. Totals never decrease: a process that was given too much owes it
to the others, and gets so much less of what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_BLOCK = 5.0  # seconds
_CERTAIN = 0.01  # standard deviation of a power, as a share of it, that needs no correction
_BETTER = 0.7  # a block is divided again when the deviation is smaller by this factor
_MAX_AGE = 1800.0  # seconds; until then powers may have changed


@dataclass
class _Block:
    begin: float
    uncertainty: float = 1.0
    seconds: dict[int, float] = field(default_factory=dict)
    given: dict[int, float] = field(default_factory=dict)


class Corrections:
    """Blocks that may be divided again, and what processes owe each other.

    Args:
        watts: Returns the power while a process runs, as far as it is known.
        uncertainty: Returns its standard deviation, as a share of it.
    """

    def __init__(self, watts: Callable[[int], float], uncertainty: Callable[[int], float]) -> None:
        self._watts = watts
        self._uncertainty = uncertainty
        self._block: _Block | None = None
        self._kept: list[_Block] = []
        self._owed: dict[int, float] = {}

    def add(
        self, begin: float, end: float, shares: Mapping[int, float], given: Mapping[int, float]
    ) -> dict[int, float]:
        """Note how an interval was divided; returns the parts after what is owed.

        Args:
            begin: Its begin, in seconds.
            end: Its end.
            shares: Share of it in which each process ran.
            given: Joules of each process for that.
        """
        block = self._block = self._block or _Block(begin)
        for pid, share in shares.items():
            block.seconds[pid] = block.seconds.get(pid, 0.0) + share * (end - begin)
            block.given[pid] = block.given.get(pid, 0.0) + given[pid]
        if end - block.begin >= _BLOCK:
            if len(block.seconds) > 1:
                block.uncertainty = self._least_certain(block)
                self._kept.append(block)
            self._block = None
            self._divide_again(end)
        return self._settled(given)

    def _least_certain(self, block: _Block) -> float:
        return max(self._uncertainty(pid) for pid in block.seconds)

    def _divide_again(self, now: float) -> None:
        for block in self._kept:
            uncertainty = self._least_certain(block)
            if uncertainty > _BETTER * block.uncertainty:
                continue
            block.uncertainty = uncertainty
            weights = {pid: ran * self._watts(pid) for pid, ran in block.seconds.items()}
            joules = sum(block.given.values())
            for pid, weight in weights.items():
                due = joules * weight / sum(weights.values())
                self._owed[pid] = self._owed.get(pid, 0.0) + due - block.given[pid]
                block.given[pid] = due
        self._kept = [
            block
            for block in self._kept
            if block.uncertainty > _CERTAIN and now - block.begin < _MAX_AGE
        ]

    def _settled(self, given: Mapping[int, float]) -> dict[int, float]:
        """Let processes that were given too much pay what they have now."""
        parts = dict(given)
        creditors = {pid: owed for pid, owed in self._owed.items() if owed > 0}
        if not creditors:
            return parts
        pool = 0.0
        for pid, owed in self._owed.items():
            paid = min(max(0.0, -owed), parts.get(pid, 0.0))
            if paid:
                parts[pid] -= paid
                self._owed[pid] += paid
                pool += paid
        for pid, owed in creditors.items():
            gets = pool * owed / sum(creditors.values())
            parts[pid] = parts.get(pid, 0.0) + gets
            self._owed[pid] -= gets
        return parts

"""Ends of windows on GPUs whose power meter is refreshed only when the counter ticks.

There, power between two ticks is not to be seen. What is known are the energy of the whole tick, by
the counter, and power at both of its ends. If load changes at the window's edge, which is where it
usually does, the part of the tick outside the window ran at the power of the tick's far end, and
what is left of its energy is the window's.
"""

from __future__ import annotations

from typing import NamedTuple


class StaleEnds(NamedTuple):
    """Ticks of a counter: their instants, the joules counted, and watts read at them."""

    instants: list[float]
    joules: list[float]
    watts: list[float]

    def before(self, tick: int, begin: float) -> tuple[float, float]:
        """Joules, and their variance, from `begin` to the first tick after it."""
        inside = self.watts[tick] * (self.instants[tick] - begin)
        if tick == 0:
            return inside, (inside / 2) ** 2
        whole = self.joules[tick] - self.joules[tick - 1]
        outside = self.watts[tick - 1] * (begin - self.instants[tick - 1])
        return _combined(inside, whole - outside)

    def after(self, tick: int, end: float) -> tuple[float, float]:
        """Joules, and their variance, from the last tick before `end` to it."""
        inside = self.watts[tick] * (end - self.instants[tick])
        if tick + 1 == len(self.instants):
            return inside, (inside / 2) ** 2
        whole = self.joules[tick + 1] - self.joules[tick]
        outside = self.watts[tick + 1] * (self.instants[tick + 1] - end)
        return _combined(inside, whole - outside)

    def between(self, tick: int, begin: float, end: float) -> tuple[float, float, bool]:
        """Joules of a window between a tick and the next, their variance, and if they are known.

        Otherwise they are a guess.
        """
        duration = end - begin
        if tick < 0 or tick + 1 == len(self.instants):
            # Before the first or after the last tick there is nothing to go by but power.
            near = self.watts[max(tick, 0)] * duration
            return near, near**2, False
        whole = self.joules[tick + 1] - self.joules[tick]
        first, second = self.watts[tick], self.watts[tick + 1]
        lead, rest = begin - self.instants[tick], self.instants[tick + 1] - end
        left = whole - first * lead - second * rest
        # If something else changed outside the window, this is about how far off it may be.
        spread = abs(second - first) * max(lead, rest) / 2 + 0.02 * whole
        if left <= 0:
            share = whole * duration / (lead + duration + rest)
            return share, share**2, False
        return left, spread**2 / 4, True


def _combined(inside: float, remainder: float) -> tuple[float, float]:
    """Two views of the same energy: their mean, and their difference as uncertainty."""
    remainder = max(remainder, 0.0)
    return (inside + remainder) / 2, (inside - remainder) ** 2 / 4

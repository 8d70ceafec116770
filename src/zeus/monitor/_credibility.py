"""Plausibility check of energy counters: those of some parts are simply wrong.

The counter is compared with the power meter over the long run. A meter that samples only part of
the time may be off by the whole swing of a load that repeats in step with it. So only a gross
disagreement counts, and the counter is trusted again once the disagreement ends.
"""

from __future__ import annotations

_CREDIBLE = (0.4, 2.5)
_JUDGED_AFTER = 2.0  # seconds
_JUDGED_ABOVE = 20.0  # joules
_MEMORY = 20.0  # seconds


class Credibility:
    """Compares an energy counter with a power meter."""

    def __init__(self) -> None:
        self.note = ""  # why the counter is not trusted; empty while it is
        self._time = self._counted = self._drawn = 0.0

    def compare(self, seconds: float, counted: float, watts: float) -> bool:
        """Compare counted joules with metered mean power; return whether the verdict changed."""
        keep = max(0.0, 1 - seconds / _MEMORY)
        self._time = keep * self._time + seconds
        self._counted = keep * self._counted + counted
        self._drawn = keep * self._drawn + watts * seconds
        if self._time < _JUDGED_AFTER or self._drawn < _JUDGED_ABOVE:
            return False
        ratio = self._counted / self._drawn
        credible = _CREDIBLE[0] < ratio < _CREDIBLE[1]
        before, self.note = (
            self.note,
            ""
            if credible
            else (
                f"the energy counter is not credible: it counts {ratio:.2f} times the metered power"
            ),
        )
        return bool(before) == credible

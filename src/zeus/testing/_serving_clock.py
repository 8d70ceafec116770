"""The clock of a simulated server's GPU: what is in force, and what was asked for."""

from __future__ import annotations

import math
from typing import Protocol


class ServingKnob(Protocol):
    """The clock, or the power limit, of a replica.

    Attributes:
        value: MHz, or watts, in force.
        changes_at: When that may change next, in seconds.
    """

    value: float
    changes_at: float

    def request(self, now: float, value: float) -> None:
        """Ask for a value."""

    def advance(self, now: float) -> None:
        """Bring `value` and `changes_at` up to date."""


class LaggingClock:
    """A knob whose changes come into force some time after they are requested.

    Changes are made one after the other: one that is requested while another is under way begins
    when that one is done, and only the latest request counts.

    Args:
        value: Value in force at the begin.
        lag: Seconds from a request to its effect.
    """

    __slots__ = ("_lag", "_target", "_wanted", "changes_at", "value")

    def __init__(self, value: float, lag: float) -> None:
        self.value = value
        self.changes_at = math.inf
        self._lag = lag
        self._target = value
        self._wanted = value

    def request(self, now: float, value: float) -> None:
        """Ask for a value."""
        self._wanted = value
        if self.changes_at == math.inf and value != self.value:
            self._begin(now)

    def advance(self, now: float) -> None:
        """Let the change that is under way come into force, if its time has come."""
        if now >= self.changes_at:
            self.value = self._target
            self.changes_at = math.inf
            if self._wanted != self.value:
                self._begin(now)

    def _begin(self, now: float) -> None:
        if self._lag <= 0:
            self.value = self._wanted
            return
        self._target = self._wanted
        self.changes_at = now + self._lag

"""Limits on the time and memory of the solver, its cancellation and progress, between threads."""

from __future__ import annotations

import ctypes
import math
import time

from zeus.errors import PipelineError

ROOM = 1 << 30


class SolvingCancelledError(Exception):
    """Planning was cancelled: the plans are not needed any more."""


class Limit:
    """Time and memory limits of a solver run.

    Args:
        seconds: Time limit, from now on. When it is over, the best plans so far are the solution.
        room: Maximum bytes for the choices of all plans, likewise.
    """

    def __init__(self, seconds: float = math.inf, room: int = ROOM) -> None:
        self.seconds = seconds
        self.room = room
        self.flag = ctypes.c_int32(0)  # not 0 once cancelled; read by the solver while it runs
        self.solving = (ctypes.c_int32 * 2)()  # written by the solver: points, and rounds
        self._aims = 0, 0
        self._ends = 0.0
        self.begin()

    def begin(self) -> None:
        """Restart the time limit from now on."""
        self._ends = time.monotonic() + self.seconds

    def within(self, seconds: float) -> Limit:
        """Return a limit of less time that is cancelled with this one; its progress is its own."""
        part = Limit(max(min(seconds, self.left), 0.0), self.room)
        part.flag = self.flag
        return part

    def aim(self, points: int, rounds: int) -> None:
        """Begin to count the progress of a solver run, with so many points and rounds to come."""
        self.solving[0] = self.solving[1] = 0
        self._aims = points, rounds

    @property
    def progress(self) -> str:
        """How far the solver has come, in words; empty before it begins."""
        points, rounds = self._aims
        if not points:
            return ""
        if self.solving[1]:
            return f"improving {points} points, round {min(self.solving[1], rounds)} of {rounds}"
        return f"{min(self.solving[0], points)} of {points} points"

    def cancel(self) -> None:
        """Cancel the solver run as soon as possible; may be called from any thread."""
        self.flag.value = 1

    @property
    def left(self) -> float:
        """Seconds left."""
        return self._ends - time.monotonic()

    def check(self) -> None:
        """Raise `SolvingCancelledError` if cancelled, `PipelineError` if the time is over."""
        if self.flag.value:
            raise SolvingCancelledError
        if self.left <= 0:
            raise PipelineError(
                f"a pipeline must be small enough to be planned within {self.seconds:g} s, but "
                "not even its graph was ready by then; ranks keep their present clocks"
            )

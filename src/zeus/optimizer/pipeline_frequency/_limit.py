"""Limits on the time and memory of the solver, and cancellation from another thread."""

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
        self._ends = 0.0
        self.begin()

    def begin(self) -> None:
        """Restart the time limit from now on."""
        self._ends = time.monotonic() + self.seconds

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

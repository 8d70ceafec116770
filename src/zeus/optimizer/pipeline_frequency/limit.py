"""How much making plans may take, and a way to end it from another thread."""

from __future__ import annotations

import ctypes
import math
import time

from zeus.errors import PipelineError

ROOM = 1 << 30


class SolvingCancelledError(Exception):
    """Nobody wants the plans any more."""


class Limit:
    """What a solution may take.

    Args:
        seconds: From now on. When they are over, the best plans so far are the solution.
        room: Bytes for the choices of all plans, likewise.

    Attributes:
        seconds: As given; infinite if there is no limit.
        room: As given.
        flag: Not 0 once it is cancelled; read by the compiled solver while it runs.
    """

    def __init__(self, seconds: float = math.inf, room: int = ROOM) -> None:
        self.seconds = seconds
        self.room = room
        self.flag = ctypes.c_int32(0)
        self._ends = 0.0
        self.begin()

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._ends = time.monotonic() + self.seconds

    def cancel(self) -> None:
        """End the solution as soon as can be; from any thread."""
        self.flag.value = 1

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._ends - time.monotonic()

    def check(self) -> None:
        """Called now and then where there is no plan yet.

        Raises:
            SolvingCancelledError: If it was cancelled.
            PipelineError: If the time is over.
        """
        if self.flag.value:
            raise SolvingCancelledError
        if self.left <= 0:
            raise PipelineError(
                f"a pipeline must be small enough to be planned within {self.seconds:g} s, but "
                "not even its graph was ready by then; ranks keep their present clocks"
            )

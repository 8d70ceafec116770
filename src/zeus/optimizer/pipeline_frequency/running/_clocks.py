"""Sets the clock of one GPU for its next instruction, from a background thread.

The training thread requests the next clock, now or for a later instant, and goes on without waiting
for the driver to set it. In virtual time there is nothing to wait for: a clock that is wanted now
is set synchronously.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass

from zeus.clock import Clock, Runner
from zeus.device import Gpu
from zeus.device._hold import Hold
from zeus.errors import CapabilityError, KnobError

_MAX_REQUESTS = 4_096


@dataclass(frozen=True)
class InForce:
    """A clock that is set.

    Attributes:
        clock: MHz.
        since: Time at which the driver had set it, in seconds.
    """

    clock: float
    since: float


class ClockSetter:
    """The graphics clock of one GPU, under one hold.

    Call `begin` and `end` from the training thread, so that signal handlers find the hold.

    Args:
        gpu: The GPU.
        clock: The source of time.

    Attributes:
        ladder: MHz that can be set, from the previously highest allowed clock down.
        in_force: The clock set now; `None` while nothing is held, or another hold overrides ours.
        covered: Whether another hold overrides ours: the wanted clock is set once that ends.
        requests: Latest requests to the driver: when, in seconds, and MHz.
        trouble: Why a clock could not be set; empty while all is well.

    Raises:
        CapabilityError: If the GPU cannot report its clocks.
        KnobError: If it has none.
    """

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        supported = sorted(set(gpu.supported_clocks().graphics), reverse=True)
        if not supported:
            raise KnobError(f"{gpu.name} reports no graphics clock that can be locked")
        lock = gpu.locked_graphics_clock()
        highest = supported[0] if lock is None else lock.maximum
        self.ladder = tuple(each for each in supported if each <= highest) or (supported[-1],)
        self.in_force: InForce | None = None
        self.covered = False
        self.requests: deque[tuple[float, float]] = deque(maxlen=_MAX_REQUESTS)
        self.trouble = ""
        self._gpu = gpu
        self._clock = clock
        self._lowest = supported[-1]
        self._hold: Hold | None = None
        self._wanted = float(self.ladder[0])
        self._due: float | None = None
        self._runner: Runner | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Hold the highest clock of the ladder.

        Raises:
            CapabilityError: If the GPU refuses.
            KnobError: Likewise.
            OSError: If the previous setting cannot be recorded.
        """
        if self._hold is not None:
            return
        self._wanted = highest = float(self.ladder[0])
        hold = self._gpu.hold(graphics_clock=(self._lowest, self.ladder[0]))
        self.requests.append((self._clock.now(), highest))
        hold.acquire()
        self._hold, self.in_force = hold, InForce(highest, self._clock.now())
        self.covered = False
        self._due = None
        if self._runner is None:
            self._runner = self._clock.run(self, "zeus-clocks")

    def want(self, clock: float, at: float | None = None) -> None:
        """Request a clock; only the latest request counts.

        Args:
            clock: MHz, one of `ladder`.
            at: When to set it, in seconds; by default as soon as possible.
        """
        if clock == self._wanted and self._due is None and not self.covered:
            return
        self._wanted = clock
        if at is not None and at > self._clock.now():
            self._due = at
        elif self._clock.virtual:
            self._due = None
            self._set(clock)
        else:
            self._due = self._clock.now()
        if self._runner is not None:
            self._runner.wake()

    def due(self) -> float | None:
        """Return when the requested clock is to be set; `None` if it is set already."""
        return self._due

    def fire(self) -> None:
        """Set the requested clock."""
        self._due = None
        if not self.trouble:
            self._set(self._wanted)

    @property
    def wanted(self) -> float:
        """MHz of the latest request."""
        return self._wanted

    def end(self) -> None:
        """Restore the previous setting."""
        hold, self._hold, self.in_force = self._hold, None, None
        self.covered, self._due = False, None
        if hold is not None:
            hold.release()

    def close(self) -> None:
        """Restore the previous setting, and end the thread."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop(wait=False)
        self.end()

    def confirm(self) -> None:
        """Check whether our clock is still in force: another process's hold may override it now.

        Costs next to nothing while no hold begins or ends.
        """
        hold = self._hold
        if hold is not None and (self.covered or not hold.surely_in_force()):
            self._set(self._wanted, confirm=True)

    def who_covers(self) -> str:
        """Return which process overrides our clock, and at which MHz, for people."""
        other = None
        with contextlib.suppress(CapabilityError, OSError):
            other = None if self._hold is None else self._hold.overridden_by()
        if other is None or not isinstance(other.value, list):
            return "another hold overrides it"
        return f"process {other.pid} holds it at {other.value[1]} MHz"

    def _set(self, clock: float, *, confirm: bool = False) -> None:
        with self._lock:
            hold, set_ = self._hold, self.in_force
            same = set_ is not None and set_.clock == clock
            if hold is None or (same and not confirm):
                return
            if not same:
                self.requests.append((self._clock.now(), clock))
            try:
                in_force = hold.retune(self._lowest, round(clock))
            except (CapabilityError, KnobError, OSError) as error:
                if self._hold is hold:  # else it has ended meanwhile, which is no failure
                    self.trouble = str(error)
                return
            if self._hold is not hold:
                return
            self.covered = not in_force
            if not in_force:
                self.in_force = None
            elif not same:
                self.in_force = InForce(clock, self._clock.now())


def thinned(ladder: tuple[int, ...], stride: float) -> tuple[int, ...]:
    """Return clocks at least `stride` MHz apart, from the highest down."""
    kept: list[int] = []
    for clock in ladder:
        if not kept or kept[-1] - clock >= stride:
            kept.append(clock)
    return tuple(kept)

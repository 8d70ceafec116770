"""Sets the clock of one GPU ahead of its next instruction, from a background thread.

The training thread requests the next clock and goes on, without waiting for the driver to set it.
In virtual time there is nothing to wait for, and clocks are set synchronously.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

from zeus.clock import Clock
from zeus.device import Gpu
from zeus.device._hold import Hold
from zeus.errors import CapabilityError, KnobError


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
        self.trouble = ""
        self._gpu = gpu
        self._clock = clock
        self._lowest = supported[-1]
        self._hold: Hold | None = None
        self._wanted = float(self.ladder[0])
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

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
        hold.acquire()
        self._hold, self.in_force = hold, InForce(highest, self._clock.now())
        self.covered = False
        if self._thread is None and not self._clock.virtual:
            self._thread = threading.Thread(target=self._run, name="zeus-clocks", daemon=True)
            self._thread.start()

    def want(self, clock: float) -> None:
        """Request a clock, to be set as soon as possible; only the latest request counts.

        Args:
            clock: MHz, one of `ladder`.
        """
        if clock == self._wanted and not self.covered:
            return
        self._wanted = clock
        if self._clock.virtual:
            self._set(clock)
        else:
            self._wake.set()

    @property
    def wanted(self) -> float:
        """MHz of the latest request."""
        return self._wanted

    def end(self) -> None:
        """Restore the previous setting."""
        hold, self._hold, self.in_force = self._hold, None, None
        self.covered = False
        if hold is not None:
            hold.release()

    def close(self) -> None:
        """Restore the previous setting, and end the thread."""
        self._closed = True
        self._wake.set()
        self.end()

    def _run(self) -> None:
        while not self._closed and not self.trouble:
            self._wake.wait()
            self._wake.clear()
            self._set(self._wanted)

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

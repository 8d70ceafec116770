"""Sets the clock of one GPU ahead of what runs on it, from a thread of its own.

The training thread says which clock it wants next and goes on; whatever the driver takes to set it
happens beside it. In virtual time there is nothing to wait for, and clocks are set at once.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

from zeus.clock import Clock
from zeus.device.base import Gpu
from zeus.device.hold import Hold
from zeus.device.records import record_signature
from zeus.errors import CapabilityError, KnobError


@dataclass(frozen=True)
class InForce:
    """A clock that is set.

    Attributes:
        clock: MHz.
        since: Instant at which the driver had taken it.
    """

    clock: float
    since: float


class ClockSetter:
    """The graphics clock of one GPU, under one hold.

    `begin` and `end` are called from the training thread, so that signals find the hold.

    Args:
        gpu: Whose clock.
        clock: Time.

    Attributes:
        ladder: MHz that can be set, from the clock that was in force before down.
        in_force: What is set now; `None` while nothing is held, or another hold lies above ours.
        covered: Whether that is so: what is wanted will be in force once the other hold ends.
        trouble: Why a clock could not be set; empty as long as all is well.

    Raises:
        CapabilityError: If the GPU cannot tell its clocks.
        KnobError: If it has none.
    """

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        supported = sorted(set(gpu.supported_clocks().graphics), reverse=True)
        if not supported:
            raise KnobError(f"{gpu.name} names no graphics clock that could be locked")
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
        self._seen: object = None  # the record as it was when last asked
        self._closed = False

    def begin(self) -> None:
        """Hold the highest clock of the ladder.

        Raises:
            CapabilityError: If the GPU refuses.
            KnobError: Likewise.
            OSError: If there is no place to record what was there before.
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
        """Have a clock set as soon as can be; only the latest that is wanted counts.

        Args:
            clock: MHz, one of the ladder.
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
        """MHz that were asked for last."""
        return self._wanted

    def end(self) -> None:
        """Put back what was there before."""
        hold, self._hold, self.in_force = self._hold, None, None
        self.covered = False
        if hold is not None:
            hold.release()

    def close(self) -> None:
        """The same, for good."""
        self._closed = True
        self._wake.set()
        self.end()

    def _run(self) -> None:
        while not self._closed and not self.trouble:
            self._wake.wait()
            self._wake.clear()
            self._set(self._wanted)

    def confirm(self) -> None:
        """See whether what is set is still in force: somebody else's hold may lie above it now.

        Costs next to nothing as long as the record of holds stays as it is.
        """
        found = self._look_at_record()
        if self.covered or found is None or found != self._seen:
            self._set(self._wanted, confirm=True)
            self._seen = found

    def _look_at_record(self) -> object:
        """What changes when the record of holds does; `None` if that cannot be told."""
        driver = self._gpu.driver
        try:
            return (
                record_signature(self._gpu.key, private=driver.private) if driver.shared else None
            )
        except OSError:
            return None

    def who_covers(self) -> str:
        """Who holds the clock above this one, and where."""
        other = None
        with contextlib.suppress(CapabilityError, OSError):
            other = None if self._hold is None else self._hold.overridden_by()
        if other is None or not isinstance(other.value, list):
            return "another hold lies above"
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
                if self._hold is hold:  # else it has ended meanwhile, which is no trouble
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
    """Clocks at least a stride apart, from the highest down."""
    kept: list[int] = []
    for clock in ladder:
        if not kept or kept[-1] - clock >= stride:
            kept.append(clock)
    return tuple(kept)

"""Holds: the only way knobs are changed.

A hold sets knobs of one GPU and puts back exactly what was there before when it ends: at the end
of its block, on an exception, at interpreter exit, on SIGTERM or SIGHUP, and, after a crash, when
Zeus next starts on the machine.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from zeus.device.base import ClockRange, GpuDriver
from zeus.device.journal import Entry, Journal, Value, critical_section
from zeus.errors import CapabilityError, KnobError

if TYPE_CHECKING:
    from zeus.device.base import Gpu

logger = logging.getLogger(__name__)

POWER_LIMIT, GRAPHICS_CLOCK, MEMORY_CLOCK = "power_limit", "graphics_clock", "memory_clock"


class Hold:
    """Knobs of one GPU, changed for a while. Made by `Gpu.hold`.

    Nothing is changed before the block is entered (or `acquire` called). A hold can be used again
    after it has ended.
    """

    def __init__(
        self,
        gpu: Gpu,
        power_limit: float | None,
        graphics_clock: int | tuple[int, int] | None,
        memory_clock: int | tuple[int, int] | None,
    ) -> None:
        self.gpu = gpu
        self._wanted = _checked(gpu, power_limit, graphics_clock, memory_clock)
        if not self._wanted:
            raise KnobError("a hold must set at least one knob, but none was given")
        memory = None if gpu.driver.shared else gpu.held
        self._journal = Journal(gpu.key, knob_setter(gpu.driver, gpu), memory)
        self._entries: dict[str, Entry] = {}
        self._owner = 0

    def __enter__(self) -> Hold:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Set the knobs. If one is refused, those set already are put back."""
        if self._entries:
            raise KnobError("the hold is in force already")
        self._owner = os.getpid()
        _holds.add(self)
        try:
            for knob, value in self._wanted.items():
                self._entries[knob] = self._journal.push(
                    knob,
                    value,
                    lambda knob=knob: _read(self.gpu, knob),  # type: ignore[misc]
                )
        except BaseException:
            self.release()
            raise

    def change(
        self,
        *,
        power_limit: float | None = None,
        graphics_clock: int | tuple[int, int] | None = None,
        memory_clock: int | tuple[int, int] | None = None,
    ) -> None:
        """Set knobs of this hold anew; what comes back at the end stays the same.

        Raises:
            KnobError: If the hold is not in force or does not hold that knob.
        """
        for knob, value in _checked(self.gpu, power_limit, graphics_clock, memory_clock).items():
            if knob not in self._entries:
                raise KnobError(f"the hold holds {sorted(self._entries)}, but got {knob}")
            self._journal.change(knob, self._entries[knob], value)

    def release(self) -> None:
        """Put everything back. Safe to call more than once, and in a forked child (no effect)."""
        if self._owner != os.getpid():
            return
        for knob in reversed(list(self._entries)):
            try:
                self._journal.pop(knob, self._entries[knob].id)
            except (CapabilityError, KnobError) as error:
                logger.error(
                    "could not put back the %s of %s: %s; `zeus restore` tries again",
                    knob,
                    self.gpu,
                    error,
                )
            del self._entries[knob]
        _holds.discard(self)


def knob_setter(driver: GpuDriver, gpu: Gpu | None = None) -> Any:
    """A function that sets a knob of this GPU to a recorded value."""

    def apply(knob: str, value: Value) -> None:
        if gpu is None:
            _set(driver, knob, value)
        else:
            gpu.apply(lambda: _set(driver, knob, value))

    return apply


def _set(driver: GpuDriver, knob: str, value: Value) -> None:
    if knob == POWER_LIMIT:
        assert isinstance(value, int | float)
        driver.set_power_limit(float(value))
    elif knob == GRAPHICS_CLOCK:
        driver.lock_graphics_clock(_range(value))
    elif knob == MEMORY_CLOCK:
        driver.lock_memory_clock(_range(value))
    else:
        logger.warning("an unknown knob %r in the record of changed knobs is skipped", knob)


def _read(gpu: Gpu, knob: str) -> Value:
    if knob == POWER_LIMIT:
        return gpu.power_limit()
    driver = gpu.driver
    lock = (
        driver.locked_graphics_clock() if knob == GRAPHICS_CLOCK else driver.locked_memory_clock()
    )
    return None if lock is None else [lock.minimum, lock.maximum]


def _range(value: Value) -> ClockRange | None:
    return ClockRange(*value) if isinstance(value, list) else None


def _checked(
    gpu: Gpu,
    power_limit: float | None,
    graphics_clock: int | tuple[int, int] | None,
    memory_clock: int | tuple[int, int] | None,
) -> dict[str, Value]:
    wanted: dict[str, Value] = {}
    if power_limit is not None:
        limits = gpu.power_limits()
        if not limits.minimum <= power_limit <= limits.maximum:
            raise KnobError(
                f"{limits.minimum:g} W <= power_limit <= {limits.maximum:g} W must hold for "
                f"{gpu.name}, but got {power_limit:g} W"
            )
        wanted[POWER_LIMIT] = float(power_limit)
    for knob, clock in ((GRAPHICS_CLOCK, graphics_clock), (MEMORY_CLOCK, memory_clock)):
        if clock is not None:
            wanted[knob] = _checked_clock(gpu, knob, clock)
    return wanted


def _checked_clock(gpu: Gpu, knob: str, clock: int | tuple[int, int]) -> list[int]:
    low, high = (clock, clock) if isinstance(clock, int) else clock
    clocks = gpu.supported_clocks()
    supported = clocks.graphics if knob == GRAPHICS_CLOCK else clocks.memory
    if not supported:
        raise KnobError(f"{gpu.name} names no {knob} that could be locked")
    if not min(supported) <= low <= high <= max(supported):
        raise KnobError(
            f"{min(supported)} MHz <= lowest <= highest <= {max(supported)} MHz must hold for the "
            f"{knob} of {gpu.name}, but got ({low}, {high}) MHz"
        )
    return [low, high]


class _Holds:
    """The holds in force in this process, and the handlers that end them with it."""

    _SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self._active: set[Hold] = set()
        self._previous: dict[int, Any] = {}
        self._registered = False

    def add(self, hold: Hold) -> None:
        self._active.add(hold)
        if not self._registered:
            self._registered = True
            atexit.register(self.release_all)
        if threading.current_thread() is threading.main_thread():
            for number in self._SIGNALS:
                current = signal.getsignal(number)
                if current in (self._handle, signal.SIG_IGN, None):
                    continue  # ours already; or the user wants to survive it; or not Python's
                self._previous[number] = current
                signal.signal(number, self._handle)

    def discard(self, hold: Hold) -> None:
        self._active.discard(hold)
        if self._active or threading.current_thread() is not threading.main_thread():
            return
        for number, previous in list(self._previous.items()):
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous)
            del self._previous[number]

    def release_all(self) -> None:
        for hold in list(self._active):
            hold.release()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number, signal.SIG_DFL)

        def finish() -> None:
            with contextlib.suppress(Exception):  # dying comes first; the journal has the rest
                self.release_all()
            if callable(previous):
                previous(number, frame)
            else:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        critical_section.when_free(finish)


_holds = _Holds()

"""Holds: the only way knobs are changed.

A hold sets knobs of one GPU and restores exactly the previous values when it ends: at the end of
its block, on an exception, at interpreter exit, on SIGTERM or SIGHUP, and, after a crash, when Zeus
next starts on the machine.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import operator
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from types import FrameType
from typing import Any

from zeus.device._base import (
    ClockRange,
    GpuDriver,
    PowerLimits,
    SupportedClocks,
    clock_refused,
    limit_refused,
)
from zeus.device._guarded_gpu import GuardedGpu
from zeus.device._journal import Journal
from zeus.device._records import (
    GRAPHICS_CLOCK,
    MEMORY_CLOCK,
    POWER_LIMIT,
    Entry,
    HoldKeeper,
    Value,
)
from zeus.errors import CapabilityError, KnobError, Reason
from zeus.state._critical import critical_section

logger = logging.getLogger(__name__)


class KnobRange:
    """The values that the knobs of a GPU accept; asked of its driver once.

    Args:
        gpu: The GPU.
    """

    def __init__(self, gpu: GuardedGpu) -> None:
        self._gpu = gpu

    def checked(
        self,
        power_limit: float | None = None,
        graphics_clock: int | tuple[int, int] | None = None,
        memory_clock: int | tuple[int, int] | None = None,
    ) -> dict[str, Value]:
        """Return the values of the given knobs, if this GPU accepts them.

        Raises:
            KnobError: If it does not.
            CapabilityError: If the GPU does not report what it accepts.
        """
        wanted: dict[str, Value] = {}
        if power_limit is not None:
            limits = self._limits
            if not limits.minimum <= power_limit <= limits.maximum:
                raise limit_refused(self._gpu.name, limits, power_limit)
            wanted[POWER_LIMIT] = float(power_limit)
        if graphics_clock is not None:
            wanted[GRAPHICS_CLOCK] = self._clock(GRAPHICS_CLOCK, graphics_clock)
        if memory_clock is not None:
            wanted[MEMORY_CLOCK] = self._clock(MEMORY_CLOCK, memory_clock)
        return wanted

    def _clock(self, knob: str, clock: int | tuple[int, int]) -> list[int]:
        pair = clock if isinstance(clock, tuple | list) else (clock, clock)
        try:
            low, high = map(operator.index, pair)
        except (TypeError, ValueError):
            raise KnobError(
                f"{knob} must be whole MHz or a pair (lowest, highest) of them, but got {clock!r}"
            ) from None
        clocks = self._clocks.graphics if knob == GRAPHICS_CLOCK else self._clocks.memory
        if not clocks:
            raise KnobError(f"{self._gpu.name} reports no {knob} that can be locked")
        if not clocks[-1] <= low <= high <= clocks[0]:
            raise clock_refused(self._gpu.name, knob, clocks, ClockRange(low, high))
        return [low, high]

    @cached_property
    def _limits(self) -> PowerLimits:
        return self._gpu.power_limits()

    @cached_property
    def _clocks(self) -> SupportedClocks:
        return self._gpu.supported_clocks()


class Hold:
    """Temporarily changed knobs of one GPU. Made by `Gpu.hold`.

    Nothing is changed before the block is entered (or `acquire` called). A hold can be used again
    after it has ended.

    Args:
        gpu: The GPU.
        power_limit: Watts; `None` leaves the limit alone.
        graphics_clock: MHz, or a range of them; `None` leaves the clock alone.
        memory_clock: Likewise.
    """

    def __init__(
        self,
        gpu: GuardedGpu,
        power_limit: float | None,
        graphics_clock: int | tuple[int, int] | None,
        memory_clock: int | tuple[int, int] | None,
    ) -> None:
        self.gpu = gpu
        self._range = KnobRange(gpu)
        self._wanted = self._range.checked(power_limit, graphics_clock, memory_clock)
        if not self._wanted:
            raise KnobError("a hold must set at least one knob, but none was given")
        self._journal = _keeper(gpu)
        self._entries: dict[str, Entry] = {}
        self._owner = 0

    def __enter__(self) -> Hold:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Set the knobs. If one is refused, those already set are restored."""
        if self._entries:
            raise KnobError("the hold is in force already")
        try:
            # Around all of it: a signal must not find a knob set that this hold has not recorded.
            with critical_section:
                self._owner = os.getpid()
                _holds.add(self)
                for knob, value in self._wanted.items():
                    self._entries[knob] = self._journal.push(
                        knob,
                        value,
                        lambda knob=knob: read_knob(self.gpu, knob),  # type: ignore[misc]
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
    ) -> bool:
        """Set knobs of this hold again; the values restored at the end stay the same.

        Args:
            power_limit: Watts; `None` leaves the limit as it is held.
            graphics_clock: MHz, or a range of them; `None` likewise.
            memory_clock: Likewise.

        Returns:
            Whether all values are in force. They are not while a later hold, perhaps another
            process's, overrides this one; they will be when that one ends.

        Raises:
            KnobError: If the hold is not in force (a forked child has no part in it), does not
                hold that knob, or the value is outside the range that this GPU accepts.
        """
        wanted = self._range.checked(power_limit, graphics_clock, memory_clock)
        with critical_section:
            if not self._entries or self._owner != os.getpid():
                raise KnobError(f"the hold must be in force in this process to change {[*wanted]}")
            for knob in wanted:
                if knob not in self._entries:
                    raise KnobError(f"the hold covers {sorted(self._entries)}, but got {knob}")
            in_force = True
            for knob, value in wanted.items():
                in_force &= self._journal.change(knob, self._entries[knob], value)
            return in_force

    def surely_in_force(self) -> bool:
        """Whether all values of this hold are in force; false if finding out could take long.

        Waits for nothing, so `overridden_by` or `change` may know better.
        """
        entries = list(self._entries.items()) if self._owner == os.getpid() else []
        in_force = (self._journal.in_force(knob, entry.id) for knob, entry in entries)
        return bool(entries) and all(in_force)

    def overridden_by(self) -> Entry | None:
        """Return the later hold whose value is in force instead of this one's.

        Returns:
            Its record, with process and value; `None` if all values of this hold are in force.

        Raises:
            CapabilityError: If the record of holds cannot be used.
        """
        with critical_section:
            for knob, entry in self._entries.items() if self._owner == os.getpid() else ():
                above = self._journal.above(knob, entry.id)
                if above is not None:
                    return above
        return None

    def retune(self, lowest: int, highest: int) -> bool:
        """Lock the graphics clock again, up to many times a second.

        As `change`, but the bounds are not checked.

        Args:
            lowest: MHz, a clock that the GPU supports.
            highest: MHz, a clock that the GPU supports.

        Returns:
            Whether the clock is in force, as for `change`.

        Raises:
            KnobError: If the hold is not in force, or does not hold the graphics clock.
            CapabilityError: If the GPU refuses.
        """
        with critical_section:
            if self._owner != os.getpid() or GRAPHICS_CLOCK not in self._entries:
                raise KnobError("a graphics clock must be held in this process to be set again")
            entry = self._entries[GRAPHICS_CLOCK]
            return self._journal.change(GRAPHICS_CLOCK, entry, [lowest, highest])

    def release(self) -> None:
        """Restore all knobs. Safe to call more than once, and in a forked child (no effect)."""
        if self._owner != os.getpid():
            return
        with critical_section:
            for knob in reversed(list(self._entries)):
                if self._put_back(knob, self._entries[knob]):
                    del self._entries[knob]
            if not self._entries:
                _holds.discard(self)

    def _put_back(self, knob: str, entry: Entry) -> bool:
        """End the hold on one knob; returns whether nothing is left to retry in this process."""
        try:
            try:
                self._journal.pop(knob, entry.id)
            except CapabilityError as error:
                if error.reason is not Reason.UNREADABLE or not self._untouched(knob, entry):
                    raise
                self.gpu.apply(lambda: _set(self.gpu.driver, knob, entry.original))
        except (CapabilityError, KnobError, OSError) as error:
            # No other process removes the entry while this process lives: so this one tries again.
            again = isinstance(error, CapabilityError) and error.reason is Reason.BLOCKED
            logger.error(
                "could not restore the %s of %s: %s; %s tries again",
                knob.replace("_", " "),
                self.gpu,
                error,
                "the end of this process" if again else "`zeus restore`",
            )
            return not again
        return True

    def _untouched(self, knob: str, entry: Entry) -> bool:
        """Whether the GPU still has the value of this hold; for when the record is unreadable."""
        with contextlib.suppress(CapabilityError, KnobError):
            return read_knob(self.gpu, knob) == entry.value
        return False


def _keeper(gpu: GuardedGpu) -> HoldKeeper:
    return gpu.driver.holds or shared_journal(gpu)


def shared_journal(
    gpu: GuardedGpu, section: AbstractContextManager[Any] = critical_section
) -> Journal:
    """Return the record of holds on this GPU that all processes of the machine share.

    Args:
        gpu: The GPU.
        section: Lets one thread change its knobs at a time; see `Journal`.
    """
    driver = gpu.driver
    memory = None if driver.shared else gpu.held
    return Journal(gpu.key, knob_setter(gpu), memory, private=driver.private, section=section)


def knob_setter(gpu: GuardedGpu) -> Callable[[str, Value], None]:
    """Return a function that sets a knob of this GPU to a recorded value."""
    return lambda knob, value: gpu.apply(lambda: _set(gpu.driver, knob, value))


def _set(driver: GpuDriver, knob: str, value: Value) -> None:
    if knob == POWER_LIMIT:
        if not isinstance(value, int | float):
            raise KnobError(f"a power limit must be a number of watts, but got {value!r}")
        driver.set_power_limit(float(value))
    elif knob == GRAPHICS_CLOCK:
        driver.lock_graphics_clock(_range(value))
    else:
        driver.lock_memory_clock(_range(value))


def read_knob(gpu: GuardedGpu, knob: str) -> Value:
    """Return the current value of a knob; `None` for a clock that is not locked."""
    if knob == POWER_LIMIT:
        return gpu.power_limit()
    lock = gpu.locked_graphics_clock() if knob == GRAPHICS_CLOCK else gpu.locked_memory_clock()
    return None if lock is None else [lock.minimum, lock.maximum]


def rewrite_power_limit(gpu: GuardedGpu) -> None:
    """Set the power limit to its current value, which shows whether setting it is allowed.

    Raises:
        CapabilityError: If setting is not allowed.
        KnobError: If the driver does not accept its own value.
    """
    if gpu.driver.holds is not None:
        gpu.driver.holds.probe(POWER_LIMIT)
        return
    with contextlib.ExitStack() as alone:
        # Between reading and writing, another program's hold could begin and would be undone.
        with contextlib.suppress(OSError):  # no place for records: then there are no holds either
            alone.enter_context(shared_journal(gpu).exclusive())
        current = gpu.power_limit()
        gpu.apply(lambda: gpu.driver.set_power_limit(current))


def _range(value: Value) -> ClockRange | None:
    return ClockRange(*value) if isinstance(value, list) else None


class _Holds:
    """The holds in force in this process, and the handlers that end them when it exits."""

    _SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self._active: set[Hold] = set()
        self._registered = False

    def add(self, hold: Hold) -> None:
        self._active.add(hold)
        if not self._registered:
            self._registered = True
            atexit.register(self.release_all)
        if threading.current_thread() is threading.main_thread():
            for number in self._SIGNALS:
                current = signal.getsignal(number)
                if isinstance(current, _Handler) or current in (signal.SIG_IGN, None):
                    continue  # ours already; or the user ignores it; or not set by Python
                signal.signal(number, _Handler(self, current))

    def discard(self, hold: Hold) -> None:
        self._active.discard(hold)
        if self._active or threading.current_thread() is not threading.main_thread():
            return
        for number in self._SIGNALS:
            current = signal.getsignal(number)
            if isinstance(current, _Handler):
                signal.signal(number, current.previous)

    def release_all(self) -> None:
        for hold in list(self._active):
            try:
                hold.release()
            except Exception:  # try the others too; the record keeps this one
                logger.exception("could not end %s", hold)


class _Handler:
    """Signal handler that ends all holds, then does what would happen without Zeus.

    Each instance keeps the handler it replaced. So a program that chains its own handler between
    two of these does not cause an endless loop.
    """

    def __init__(self, holds: _Holds, previous: Any) -> None:
        self._holds = holds
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        def finish() -> None:
            self._holds.release_all()
            if callable(self.previous):
                self.previous(number, frame)
            else:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        critical_section.when_free(finish)


_holds = _Holds()

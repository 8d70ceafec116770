"""Clocks, real and virtual.

All of Zeus reads the time from one clock object and lets it run periodic work, so that the same
code runs in real time on hardware and in virtual time on a simulated node, where a day passes in
a second and nothing ever sleeps. Instants are seconds of a monotonic clock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

# Unix times are above 1e9 since 2001; monotonic clocks count from boot and stay far below.
_SMALLEST_UNIX_TIME = 1e9


class Alarm(Protocol):
    """Periodic work that a clock runs when it is due."""

    def due(self) -> float | None:
        """The instant at which to fire next, or `None` to wait until woken."""

    def fire(self) -> None:
        """Do the work and set the next `due`."""


class Runner(Protocol):
    """A running alarm."""

    def wake(self) -> None:
        """Read `due` again now, because it changed."""

    def stop(self, *, wait: bool = True) -> None:
        """Stop the alarm, and wait until it will not fire again (unless it is stuck)."""


class Clock(Protocol):
    """Source of time and of periodic work."""

    @property
    def virtual(self) -> bool:
        """Whether time advances only when the program advances it."""

    def now(self) -> float:
        """Seconds of a monotonic clock."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def run(self, alarm: Alarm, name: str) -> Runner:
        """Fire the alarm whenever it is due, until stopped."""


def to_monotonic(instant: float, clock: Clock) -> float:
    """Return a monotonic instant for one from `time.monotonic()` or `time.time()`."""
    if instant < _SMALLEST_UNIX_TIME or clock.virtual:
        return instant
    return instant - time.time() + clock.now()


class _AlarmThread:
    """Fires an alarm from a daemon thread, so a hanging driver call cannot hold the program."""

    def __init__(self, clock: Clock, alarm: Alarm, name: str) -> None:
        self._clock = clock
        self._alarm = alarm
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, *, wait: bool = True) -> None:
        self._stopped = True
        self._wake.set()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(timeout=0.5)

    def _loop(self) -> None:
        # Local names: this loop runs a hundred times a second beside the user's work.
        now, wake, alarm = self._clock.now, self._wake, self._alarm
        while not self._stopped:
            due = alarm.due()
            if due is not None and due > threading.TIMEOUT_MAX:
                due = None  # "never" as a number: longer than the system can wait
            wait = None if due is None else due - now()
            if (wait is None or wait > 0) and wake.wait(wait):
                wake.clear()
                continue  # `due` may have changed, or the alarm was stopped
            try:
                alarm.fire()
            except Exception:
                logger.exception("background sampling failed and stops")
                return


class MonotonicClock:
    """Real time, from the same clock as `time.monotonic()`."""

    virtual = False

    def now(self) -> float:
        """Seconds of `time.monotonic()`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep in real time."""
        if seconds > 0:
            time.sleep(seconds)

    def run(self, alarm: Alarm, name: str) -> Runner:
        """Fire the alarm from a daemon thread."""
        return _AlarmThread(self, alarm, name)


class _VirtualRunner:
    def __init__(self, clock: VirtualClock, alarm: Alarm) -> None:
        self._clock = clock
        self._alarm = alarm

    def wake(self) -> None:
        pass  # `_advance` polls every alarm anyway

    def stop(self, *, wait: bool = True) -> None:  # noqa: ARG002  (nothing runs by itself here)
        self._clock.forget(self._alarm)


class VirtualClock:
    """Time that advances only by `sleep`, which fires the alarms that become due.

    One `sleep` is one uniform segment: nothing changes inside it. Alarms are therefore fired
    densely at its beginning and its end and skipped in between, which makes a day cost no more
    than a second.

    Args:
        start: Time at the beginning, in seconds.
    """

    virtual = True
    _FIRINGS_AT_EACH_END = 32

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._alarms: list[Alarm] = []
        self._advancing = False
        self._lock = threading.RLock()

    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance time, firing the alarms that become due.

        Raises:
            ValueError: If `seconds` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"`seconds >= 0` must hold, but got {seconds}")
        with self._lock:
            if self._advancing:
                raise RuntimeError("an alarm must not move the clock that fires it")
            self._advancing = True
            try:
                self._advance(self._now + seconds)
            finally:
                self._advancing = False

    def run(self, alarm: Alarm, name: str) -> Runner:  # noqa: ARG002  (no thread to name)
        """Fire the alarm from within `sleep`.

        Args:
            alarm: Called when it is due.
            name: Not used: there is no thread to name.
        """
        self._alarms.append(alarm)
        return _VirtualRunner(self, alarm)

    def next_due(self) -> float | None:
        """Return when the next alarm is due; `None` if none is.

        Simulations whose load an alarm may change must not sleep beyond that.
        """
        return min(
            (due for alarm in self._alarms if (due := alarm.due()) is not None), default=None
        )

    def forget(self, alarm: Alarm) -> None:
        """Stop firing an alarm."""
        with contextlib.suppress(ValueError):
            self._alarms.remove(alarm)

    def _advance(self, target: float) -> None:
        begin = self._now
        fired: Counter[int] = Counter()
        while True:
            pending = [(due, alarm) for alarm in self._alarms if (due := alarm.due()) is not None]
            due, alarm = min(pending, key=lambda entry: entry[0], default=(None, None))
            if due is None or alarm is None or due > target:
                break
            self._now = max(self._now, due)
            alarm.fire()
            # Counted per alarm: many alarms due at once must not count as a dense beginning.
            fired[id(alarm)] += 1
            head = self._now - begin
            enough = fired[id(alarm)] == self._FIRINGS_AT_EACH_END
            if enough and target - self._now > 2 * head:
                self._now = target - head
        self._now = target


def every(period: float, action: Callable[[], None], clock: Clock) -> Alarm:
    """An alarm that calls `action` every `period` seconds, starting one period from now."""
    return _Periodic(period, action, clock)


class _Periodic:
    def __init__(self, period: float, action: Callable[[], None], clock: Clock) -> None:
        self._period = period
        self._action = action
        self._clock = clock
        self._due = clock.now() + period

    def due(self) -> float | None:
        return self._due

    def fire(self) -> None:
        self._action()
        self._due = max(self._due + self._period, self._clock.now())

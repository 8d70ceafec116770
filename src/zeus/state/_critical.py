"""Section for changes of knobs: one at a time in this process, not interrupted by signals."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # whose wrappers look up enums, which takes 25 µs
import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any


class CriticalSection:
    """Serializes changes of knobs in this process, and lets signal handlers wait for the end.

    A handler interrupts the main thread anywhere. Restoring knobs in a handler while the same
    thread is changing one would deadlock; so the handler registers a callback for the end of the
    section. Ctrl-C is deferred as well: an exception in the middle would leave a changed knob that
    no hold records. Code that only waits inside, with nothing changed yet, polls
    `interrupt_pending` and gives up.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._afterwards: list[Callable[[], None]] = []
        self._on_interrupt: Any = None
        self._interrupted_inside = False

    def __enter__(self) -> None:
        if not self._inside() and threading.current_thread() is threading.main_thread():
            self._postpone_interrupts()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._inside() or threading.current_thread() is not threading.main_thread():
            return  # handlers run in the main thread, so only there can actions be deferred
        self._allow_interrupts()
        with ExitStack() as actions:  # each of them runs, whatever the others raise
            while self._afterwards:
                actions.callback(self._afterwards.pop())

    def interrupt_pending(self) -> bool:
        """Whether a Ctrl-C is deferred until this thread leaves the section."""
        return self._interrupted_inside and threading.current_thread() is threading.main_thread()

    def when_free(self, action: Callable[[], None]) -> None:
        """Run the action now, or, if this thread is inside the section, when it leaves."""
        if self._inside():
            self._afterwards.append(action)
        else:
            action()

    def reset_after_fork(self) -> None:
        """Reset in a forked child, which must not wait for a thread it does not have."""
        self._lock = threading.RLock()
        self._afterwards = []

    def _inside(self) -> bool:
        # From the lock itself: a handler may run between acquiring it and recording that.
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _postpone_interrupts(self) -> None:
        handler = _signal.getsignal(signal.SIGINT)
        if callable(handler) and handler != self._interrupted:
            self._on_interrupt = handler
            _signal.signal(signal.SIGINT, self._interrupted)

    def _allow_interrupts(self) -> None:
        self._interrupted_inside = False
        if self._on_interrupt is not None and _signal.getsignal(signal.SIGINT) == self._interrupted:
            _signal.signal(signal.SIGINT, self._on_interrupt)
        self._on_interrupt = None

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        handler = self._on_interrupt
        if handler is not None:
            self._interrupted_inside = self._inside()
            self.when_free(lambda: handler(number, frame))


critical_section = CriticalSection()
os.register_at_fork(after_in_child=critical_section.reset_after_fork)

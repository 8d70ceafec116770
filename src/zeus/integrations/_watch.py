"""Detects that an exception has left a framework's training function.

Some frameworks do not call their callbacks then. A thread polls whether the function is still on
the stack of its thread, and acts if it is not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_INTERVAL = 0.25  # seconds; a poll takes microseconds


class Watch:
    """Watches a function that the calling thread is running.

    Args:
        frame: Frame of the function.
        left: Called from another thread, with this watch, after the function has been left.
    """

    def __init__(self, frame: FrameType, left: Callable[[Watch], None]) -> None:
        self._frame = frame
        self._left = left
        self._watched = threading.get_ident()
        self._stopped = threading.Event()
        threading.Thread(target=self._poll, name="zeus-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop polling. A poll that is under way may still find that the function was left."""
        self._stopped.set()

    def _poll(self) -> None:
        while not self._stopped.wait(_INTERVAL):
            if not self._on_stack():
                self._left(self)
                return

    def _on_stack(self) -> bool:
        innermost = sys._current_frames().get(self._watched)
        return any(frame is self._frame for frame in frames(innermost))


def frames(innermost: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it, up to the outermost."""
    while innermost is not None:
        yield innermost
        innermost = innermost.f_back


def calling_method(owner: object) -> FrameType | None:
    """Return the outermost method of an object on the calling thread's stack, or `None`."""
    callers = [frame for frame in frames(sys._getframe(1)) if frame.f_locals.get("self") is owner]
    return callers[-1] if callers else None

"""Detects that an exception has left a framework's training function.

Some frameworks do not call their callbacks then. A thread polls whether the function is still on
the stack of its thread, and acts if it is not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
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
        frame = sys._current_frames().get(self._watched)
        while frame is not None:
            if frame is self._frame:
                return True
            frame = frame.f_back
        return False


def calling_method(owner: object) -> FrameType | None:
    """Return the outermost method of an object on the calling thread's stack, or `None`."""
    found = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_locals.get("self") is owner:
            found = frame
        frame = frame.f_back
    return found

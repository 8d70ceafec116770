"""Notices that a framework's training function was left by an exception.

Some frameworks tell their callbacks nothing then. A thread looks from time to time whether the
function is still on the stack of its thread, and acts if it is not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

_INTERVAL = 0.25  # seconds; a look takes microseconds


class Watch:
    """Watches a function that the calling thread is running.

    Args:
        frame: Of the function.
        left: Called, by another thread and with this watch, when the function was left.
    """

    def __init__(self, frame: FrameType, left: Callable[[Watch], None]) -> None:
        self._frame = frame
        self._left = left
        self._watched = threading.get_ident()
        self._stopped = threading.Event()
        threading.Thread(target=self._look, name="zeus-watch", daemon=True).start()

    def stop(self) -> None:
        """Look no more. A look that is under way may still find the function left."""
        self._stopped.set()

    def _look(self) -> None:
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
    """The outermost method of an object that the calling thread is running, if it is."""
    found = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_locals.get("self") is owner:
            found = frame
        frame = frame.f_back
    return found

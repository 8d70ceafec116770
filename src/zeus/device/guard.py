"""Driver calls that hang must not take the program with them.

A guarded call runs in a daemon thread that belongs to one device. If it does not come back in
time the caller gets an error, and the device is left alone until the stuck call returns.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.errors import CapabilityError, Reason

T = TypeVar("T")

DEFAULT_TIMEOUT = 3.0
"""Seconds after which a driver call counts as hanging. Slow drivers answer within 0.1 s."""


class _Call:
    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # handed to the caller, whatever it is
            self.error = error
        self.done.set()


class Guard:
    """Runs the driver calls of one device, one at a time, each with a time limit."""

    def __init__(self, device: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._device = device
        self._timeout = timeout
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stuck: _Call | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Run the function in the device's thread.

        Raises:
            CapabilityError: With `Reason.HANGS` if it does not return in time, or at once while
                an earlier call is still stuck.
        """
        with self._lock:
            if self._stuck is not None and not self._stuck.done.is_set():
                raise self._hanging()
            self._stuck = None
            if self._thread is None or not self._thread.is_alive():
                # Also after a fork, which keeps the object but not its thread.
                self._calls = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=_serve, args=(self._calls,), name="zeus-driver-calls", daemon=True
                )
                self._thread.start()
            call = _Call(function)
            self._calls.put(call)
            if not call.done.wait(self._timeout):
                self._stuck = call
                raise self._hanging()
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def _hanging(self) -> CapabilityError:
        return CapabilityError(
            Reason.HANGS, f"{self._device} did not answer within {self._timeout:g} s"
        )


def _serve(calls: queue.SimpleQueue[_Call]) -> None:
    while True:
        calls.get().run()

"""Protection against driver calls that hang.

A guarded call runs in a daemon thread that belongs to one device. If it does not return in time
the caller gets an error, and no more calls are made to the device until the stuck call returns.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.errors import CapabilityError, Reason

T = TypeVar("T")

DEFAULT_TIMEOUT = 3.0
"""Seconds after which a driver call counts as hanging. Slow drivers answer within 0.1 s."""


class _Call:
    """A pending call. Waits on a bare lock, because releasing one can never block.

    Setting an event could block while its waiter is interrupted at a bad moment; and that waiter
    may be in a signal handler that needs the next call of the same device.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._gate = threading.Lock()
        self._gate.acquire()
        self.since = 0.0
        self.finished = False
        self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            # Its caller has given up, so no hold would record what it sets now.
            if not self.abandoned:
                self.result = self._function()
        except BaseException as error:  # handed to the caller, whatever it is
            self.error = error
        self.finished = True
        self._gate.release()

    def wait(self, seconds: float) -> bool:
        return self.finished or self._gate.acquire(timeout=seconds) or self.finished


class _Worker:
    """The thread of a device and its queue of calls."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.current: _Call | None = None
        self.thread = threading.Thread(target=self._serve, name="zeus-driver-calls", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (call := self.calls.get()) is not None:
            call.since = time.monotonic()
            self.current = call
            call.run()
            self.current = call = None  # keep no result alive while waiting


class Guard:
    """Runs the driver calls of one device, one at a time, each with a time limit.

    No lock is held during a call. A signal handler may interrupt a caller at any point and call
    again, and other threads may wait for a lock that the handler's thread holds.
    """

    def __init__(self, device: str, timeout: float | None = None) -> None:
        """Guard a device.

        Args:
            device: Name of the device, for the error.
            timeout: Seconds; if not given, the value of `DEFAULT_TIMEOUT` at the time of a call.
        """
        self._device = device
        self._timeout = timeout
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._starting = threading.RLock()
        self._worker: _Worker | None = None
        self._stuck: _Call | None = None

    def __del__(self) -> None:
        worker = getattr(self, "_worker", None)
        if worker is not None:
            worker.calls.put(None)

    def call(self, function: Callable[[], T]) -> T:
        """Run the function in the device's thread.

        Raises:
            CapabilityError: With `Reason.HANGS` if it does not return in time, or at once while
                an earlier call is still stuck.
        """
        return self.begin(function)()

    def begin(self, function: Callable[[], T]) -> Callable[[], T]:
        """Start the function in the device's thread, so that several devices work at once.

        Returns:
            A function that waits for the result, once; it raises as `call` does.

        Raises:
            CapabilityError: With `Reason.HANGS` while an earlier call is still stuck.
        """
        timeout = DEFAULT_TIMEOUT if self._timeout is None else self._timeout
        worker = self._ready_worker()
        if self._stuck is not None:
            if not self._stuck.finished:
                raise self._hanging(timeout)
            self._stuck = None
        call = _Call(function)
        worker.calls.put(call)
        return lambda: self._result(worker, call, timeout)

    def _result(self, worker: _Worker, call: _Call, timeout: float) -> Any:
        left = timeout
        while not call.wait(left):
            # The time limit applies to the call in progress, which may be another caller's.
            now = time.monotonic()
            current = worker.current
            left = timeout if current is None else current.since + timeout - now
            if current is not None and left <= 0:
                call.abandoned = True
                self._stuck = current
                raise self._hanging(timeout)
        if call.error is not None:
            raise call.error
        return call.result

    def _ready_worker(self) -> _Worker:
        if self._process != os.getpid():
            self._begin()  # a fork keeps the objects, but neither threads nor lock owners
        if self._worker is not None:
            return self._worker
        with self._starting:
            if self._worker is None:
                self._worker = _Worker()
            return self._worker

    def _hanging(self, timeout: float) -> CapabilityError:
        return CapabilityError(Reason.HANGS, f"{self._device} did not answer within {timeout:g} s")

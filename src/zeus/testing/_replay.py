"""Measurements from a log instead of from devices.

Measurements recorded once on expensive hardware can be replayed to the code that made them, on any
machine, as often as needed.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path

from zeus.errors import WindowError
from zeus.monitor._log import LoggedWindow, read_log
from zeus.monitor._measurement import GPU, Measurement, Reading
from zeus.monitor._samples import Method
from zeus.monitor._scopes import ScopeMonitor


class ReplayMonitor(ScopeMonitor):
    """Replaces a `ZeusMonitor` and returns the windows of its log, in order of their ends.

    A window that is cancelled or forgotten was never logged and so takes nothing from the log.

    Args:
        log_file: Log that a `ZeusMonitor` has written.
        match_window_name: Whether a window's name must match the one in the log.

    Raises:
        ValueError: If the file is not a log.
    """

    def __init__(self, log_file: str | Path, match_window_name: bool = True) -> None:
        self.match_window_name = match_window_name
        self._path = Path(log_file)
        self._rows = read_log(log_file)
        self._next = 0
        self._open: dict[object, str] = {}
        self._lock = threading.Lock()
        self.gpu_indices = list(self._rows[0].gpu_energy) if self._rows else []

    @property
    def remaining(self) -> int:
        """Number of windows of the log that have not been replayed."""
        return len(self._rows) - self._next

    def begin_window(
        self,
        key: str,
        sync_execution: bool = True,  # noqa: ARG002  (nothing runs)
        restart: bool = False,
    ) -> None:
        """Begin a window.

        Args:
            key: Name of the window.
            sync_execution: Ignored; part of the interface.
            restart: If the window is open already, begin it again instead of raising.

        Raises:
            ValueError: If a window of this name is open.
        """
        with self._lock:
            if key in self._open and not restart:
                raise WindowError(f"window {key!r} is open already")
            self._open[key] = key

    def end_window(
        self,
        key: str,
        sync_execution: bool = True,  # noqa: ARG002  (nothing runs)
        cancel: bool = False,
    ) -> Measurement:
        """End a window and return its measurement from the log.

        Args:
            key: Name of the window.
            sync_execution: Ignored; part of the interface.
            cancel: Forget the window; nothing is taken from the log, and the measurement is empty.

        Raises:
            ValueError: If no window of this name is open, the log's next window has another
                name, or the log is at its end.
        """
        measurement = self._end(key, cancel)
        if measurement is None:
            raise WindowError(f"window {key!r} is not open")
        return measurement

    def reset_windows(self) -> None:
        """Forget all open windows."""
        with self._lock:
            self._open.clear()

    def open_scope(self, name: str, sync_execution: bool) -> object:  # noqa: ARG002
        """Begin a window that is identified by the returned token instead of its name.

        Args:
            name: Name of the window.
            sync_execution: Has no effect.
        """
        token = object()
        with self._lock:
            self._open[token] = name
        return token

    def close_scope(
        self,
        token: object,
        sync_execution: bool,  # noqa: ARG002
        cancel: bool,
    ) -> Measurement | None:
        """End the window behind a token; `None` if `reset_windows` has forgotten it.

        Args:
            token: From `open_scope`.
            sync_execution: Has no effect.
            cancel: Has no effect.
        """
        return self._end(token, cancel)

    def close(self) -> None:
        """Forget all open windows."""
        self.reset_windows()

    def _end(self, key: object, cancel: bool) -> Measurement | None:
        with self._lock:
            name = self._open.get(key)
            if name is None:
                return None
            measurement = Measurement(math.nan) if cancel else self._replay(name)
            del self._open[key]
            return measurement

    def _replay(self, name: str) -> Measurement:
        if self._next == len(self._rows):
            raise WindowError(
                f"window {name!r} ends after the end of {self._path}, "
                f"which holds {len(self._rows)} windows"
            )
        row = self._rows[self._next]
        if self.match_window_name and row.name != name:
            raise WindowError(
                f"window {name!r} ends, but the next window in {self._path} is {row.name!r} "
                f"(line {self._next + 2})"
            )
        self._next += 1
        return _measurement(row)


def _measurement(row: LoggedWindow) -> Measurement:
    readings = [
        Reading(GPU, index, "", energy, Method.COUNTER, note="from the log")
        if energy is not None
        else Reading(GPU, index, "", None, Method.UNAVAILABLE, note="not in the log")
        for index, energy in row.gpu_energy.items()
    ]
    return Measurement.of(row.elapsed_time, readings)

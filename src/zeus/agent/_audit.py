"""The audit log: one JSON object per line for everything that clients changed, or tried to.

Lines are only ever appended. A log that has grown large is renamed, and the oldest one deleted.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
_KEPT = 4  # older logs beside the current one
_REFUSALS, _REFUSALS_PERIOD = 30, 60.0  # lines of one user, within so many seconds
_MAX_USERS = 1024  # whose refusals are counted


class Audit:
    """Appends lines to a log.

    An agent that cannot write its log goes on, and says so once: knobs that stay held because
    a disk is full would be worse.

    Args:
        path: The file; `None` to keep no log.
        max_bytes: Size from which on it is renamed.
    """

    def __init__(self, path: Path | None, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._file: int | None = None
        self._size = 0
        self._failed = False
        self._refused: dict[int, tuple[float, int]] = {}  # by user: begin of the period, how many

    def refused(self, uid: int, **fields: Any) -> None:
        """Append a refusal, unless there were many of this user just now.

        Whoever may do nothing could push all else out of the log otherwise. The next line of the
        user says how many were left out.
        """
        now = time.monotonic()
        with self._lock:
            begin, count = self._refused.get(uid, (now, 0))
            left_out = 0
            if now - begin > _REFUSALS_PERIOD:
                begin, left_out, count = now, max(0, count - _REFUSALS), 0
            if len(self._refused) >= _MAX_USERS:
                self._refused.clear()
            self._refused[uid] = begin, count + 1
        if count < _REFUSALS:
            self.write("refused", **fields, **({"left_out": left_out} if left_out else {}))

    def write(self, event: str, **fields: Any) -> None:
        """Append an event, with the time."""
        if self.path is None:
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now := time.time()))
        line = {"time": f"{stamp}.{int(now % 1 * 1e3):03d}Z", "event": event, **fields}
        raw = (json.dumps(line, separators=(",", ":"), default=str) + "\n").encode()
        with self._lock:
            try:
                self._append(raw)
                self._failed = False
            except OSError as error:
                self._close()
                if not self._failed:
                    logger.error("cannot write the audit log %s: %s", self.path, error)
                self._failed = True

    def _append(self, raw: bytes) -> None:
        assert self.path is not None
        if self._file is None:
            self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, 0o640)
            self._size = os.fstat(self._file).st_size
        written = os.write(self._file, raw)  # one call: lines of a log are whole
        if written < len(raw):  # but on a disk that is full by now: the next line begins anew
            os.ftruncate(self._file, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written
        if self._size >= self._max_bytes:
            self._close()
            for number in reversed(range(_KEPT)):
                older = rotated(self.path, number)
                with contextlib.suppress(FileNotFoundError):
                    older.replace(rotated(self.path, number + 1))

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def close(self) -> None:
        """Close the file; a later event opens it again."""
        with self._lock:
            self._close()


def rotated(path: Path, number: int) -> Path:
    """Return the path of an older log; number 0 is the current one."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log, the oldest first; lines that cannot be read are left out.

    Raises:
        OSError: If the current log cannot be read.
    """
    for number in reversed(range(_KEPT + 1)):
        file = rotated(path, number)
        if number and not file.exists():
            continue
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event

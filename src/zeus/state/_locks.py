"""Locks between processes, each with a deadline.

The process that holds a lock may be stopped: by a debugger, a paused container, a stalled disk. No
process waits for it forever: after a few seconds the wait ends in an error that names the holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from zeus.state._files import PinnedFile

LOCK_TIMEOUT = 3.0
"""Seconds after which a lock counts as stuck. They are held for milliseconds."""

_SHORT_TIMEOUT = 0.25  # seconds, for a while after one was stuck: others may be, too
_A_WHILE = 30.0  # seconds
_FLOCK = "hhqqi"  # struct flock of Linux
_FIRST_PAUSE, _LONGEST_PAUSE = 2e-4, 0.02  # seconds between tries

_last_timeout = -_A_WHILE
# In a shared directory there may be a pipe instead of a file: opening it must not block.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class LockTimeoutError(TimeoutError):
    """A lock was not free in time; names its holder, where the system reports it."""


class locked:
    """Context manager: an exclusive lock between processes, which also ends with its process.

    Args:
        path: The lock file, created if missing.
        give_up: Polled while waiting: whether to stop waiting early.
        mode: Permissions of a file that is created.

    Raises:
        LockTimeoutError: On entering, if it is not free within `LOCK_TIMEOUT`.
    """

    def __init__(
        self, path: Path, give_up: Callable[[], bool] = lambda: False, *, mode: int = 0o600
    ) -> None:
        self._path = path
        self._give_up = give_up
        self._mode = mode

    def __enter__(self) -> None:
        self._descriptor = _open(self._path, self._mode)
        try:
            _acquire(self._descriptor, self._path, self._give_up)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *_: object) -> None:
        try:
            # Closing is not enough if another thread forked meanwhile: the child has a copy.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            os.close(self._descriptor)


def _open(path: Path, mode: int) -> int:
    # In a world-writable directory the kernel refuses to "create" a file of another user; to lock
    # a file, read permission is enough.
    try:
        return os.open(path, _READ)
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)  # whatever the umask
        return descriptor
    return os.open(path, _READ)


def _acquire(descriptor: int, path: Path, give_up: Callable[[], bool]) -> None:
    global _last_timeout  # noqa: PLW0603
    if _try(descriptor):
        return
    began = time.monotonic()
    timeout = LOCK_TIMEOUT if began - _last_timeout > _A_WHILE else _SHORT_TIMEOUT
    pause = _FIRST_PAUSE
    while not _try(descriptor):
        waited = time.monotonic() - began
        if waited > timeout or give_up():
            if waited > timeout:
                _last_timeout = time.monotonic()
            raise LockTimeoutError(f"{path} has been locked for {waited:.1f} s {_holder(path)}")
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    """Return the lock's holder, if the kernel reports it; it may be in another container."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode and fields[4] > "0":
                pid = fields[4]
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
                stopped = stat.rpartition(")")[2].split()[0] in "Tt"
                return f"by process {pid}" + (", which is stopped" if stopped else "")
    return "by another process"


class SignsOfLife:
    """Shows whether processes of other PID namespaces are alive, by locks on bytes of a file.

    A lock of this kind belongs to one process, is not inherited by its children, and ends with it,
    however it ends; and all containers that share the file see it. A process loses its locks when
    it closes the file, so the file is never closed.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[Path, int], int] = {}
        self._given: dict[tuple[Path, int], int] = {}
        self._groups: dict[Path, PinnedFile] = {}
        self._lock = threading.RLock()

    def give(self, path: Path) -> int:
        """Mark this process as alive; returns the locked byte, or 0 if locking fails."""
        with self._lock, contextlib.suppress(OSError):
            mine = (path, os.getpid())  # a forked child needs its own
            if mine not in self._given:
                byte = uuid.uuid4().int >> 66 or 1
                descriptor = self._descriptor(path, os.O_RDWR | os.O_CREAT)
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                self._given[mine] = byte
            return self._given[mine]
        return 0

    def seen(self, path: Path, byte: int) -> bool:
        """Whether the process that locked this byte is alive; true if unknown."""
        if not byte or byte in self._given.values():
            return True
        with self._lock:
            try:
                # Shared, because the file of another user can only be read; it conflicts with the
                # other's exclusive lock all the same.
                descriptor = self._descriptor(path, os.O_RDONLY)
                fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
                fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)
            except OSError:
                return True
        return False

    def join(self, path: Path, byte: int) -> None:
        """Enter this process into the group of a byte, until it leaves or ends.

        Raises:
            OSError: If locking fails.
        """
        # Shared, because all members lock the same byte.
        fcntl.lockf(self._group(path), fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)

    def leave(self, path: Path, byte: int) -> None:
        """Take this process out of the group of a byte.

        Raises:
            OSError: If unlocking fails.
        """
        fcntl.lockf(self._group(path), fcntl.LOCK_UN, 1, byte)

    def others_joined(self, path: Path, byte: int) -> bool:
        """Whether other processes are in the group of a byte; true if unknown."""
        try:
            query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            found = fcntl.fcntl(self._group(path), fcntl.F_GETLK, query)
        except OSError:
            return True
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)

    def _group(self, path: Path) -> int:
        """Return a descriptor of the file of a group, which may have been deleted meanwhile."""
        with self._lock:
            file = self._groups.get(path)
            if file is None or not file.in_place():
                file = self._groups[path] = PinnedFile(path, _open(path, 0o644))
            return file.descriptor

    def reset_after_fork(self) -> None:
        """Replace the lock: a thread of the parent may have held it."""
        self._lock = threading.RLock()

    def _descriptor(self, path: Path, flags: int) -> int:
        key = path, flags
        if key not in self._files:
            self._files[key] = os.open(path, flags | os.O_CLOEXEC, 0o644)
        return self._files[key]


signs_of_life = SignsOfLife()
os.register_at_fork(after_in_child=signs_of_life.reset_after_fork)

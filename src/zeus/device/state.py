"""Where Zeus keeps the little it must remember between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

STATE_VARIABLE = "ZEUS_STATE_DIR"

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)


def state_directory() -> Path:
    """The directory for state that outlives a process, created on first use.

    `ZEUS_STATE_DIR` if set, else the user's state directory, else one in the temporary directory
    for accounts without a writable home.
    """
    chosen = os.environ.get(STATE_VARIABLE)
    if chosen:
        directory = Path(chosen)
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    home = Path(base) / "zeus"
    for directory in (home, _private_temporary()):
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            writable = os.access(directory, os.W_OK | os.X_OK)
            if writable and (directory == home or _nobody_elses(directory)):
                return directory
    raise PermissionError(
        f"no writable state directory (tried {base} and the temporary directory); "
        f"set {STATE_VARIABLE}"
    )


def _private_temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"zeus-{os.getuid()}"


def _nobody_elses(directory: Path) -> bool:
    # Whoever can write here decides what knobs are set to, and in the temporary directory anybody
    # may have been first.
    status = directory.lstat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not others_write


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; it ends with the process that holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing is not enough if another thread forked meanwhile: the child has a copy.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that every reader, and every crash, sees the old or the new one whole."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (`temporary` is a str)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot; the file is there
            os.fsync(directory)
    finally:
        os.close(directory)


def boot_id() -> str:
    """Names this boot of the machine: knobs do not survive the next one."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def job_wide(gpu_key: str) -> str:
    """A GPU's key that no GPU of another machine has: some are known by PCI address only."""
    return f"{boot_id()} {gpu_key}" if _PCI_ADDRESS.fullmatch(gpu_key) else gpu_key


def process_namespace() -> str:
    """Names the processes whose numbers mean anything here: a container has its own."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  (what it says, not where it leads)
    return ""


class SignsOfLife:
    """Tells whether processes live whose numbers mean nothing here, by locks on bytes of a file.

    A lock of this kind belongs to one process, is not inherited by its children, and ends with it,
    whatever ends it; and all containers that share the file see it. A process loses its locks when
    it closes the file, so that is never closed.
    """

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}
        self._given: dict[tuple[Path, int], int] = {}
        self._lock = threading.RLock()

    def give(self, path: Path) -> int:
        """Show life from now on; returns by which byte, or 0 where files cannot be locked."""
        with self._lock, contextlib.suppress(OSError):
            mine = (path, os.getpid())  # a forked child must show its own
            if mine not in self._given:
                byte = uuid.uuid4().int >> 66 or 1
                fcntl.lockf(self._descriptor(path), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                self._given[mine] = byte
            return self._given[mine]
        return 0

    def seen(self, path: Path, byte: int) -> bool:
        """Whether another process lives that shows life by this byte. If unsure, it does."""
        if not byte:
            return True
        with self._lock:
            try:
                descriptor = self._descriptor(path)
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)
            except OSError:
                return True
        return False

    def reset_after_fork(self) -> None:
        """A thread of the parent may have held our lock."""
        self._lock = threading.RLock()

    def _descriptor(self, path: Path) -> int:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._files[path]


signs_of_life = SignsOfLife()
os.register_at_fork(after_in_child=signs_of_life.reset_after_fork)


def process_start(pid: int) -> str | None:
    """When a process started, to tell it from a later one with the same number; `None` if gone."""
    try:
        # The command name may hold spaces and parentheses: fields are counted after the last one.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        # A zombie has ended already; only its parent has not noticed.
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:  # no /proc (macOS): the number alone must do
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""

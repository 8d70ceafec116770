"""State directory, for the little that Zeus keeps between processes."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import tempfile
import time
import weakref
from pathlib import Path

STATE_VARIABLE = "ZEUS_STATE_DIR"

_LEFTOVER = 60.0  # seconds; writing a file takes far less

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)


def state_directory() -> Path:
    """Return the directory for state that outlives a process, created on first use.

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
            if writable and (directory == home or _is_private(directory)):
                return directory
    raise PermissionError(
        f"no writable state directory (tried {base} and the temporary directory); "
        f"set {STATE_VARIABLE}"
    )


def _private_temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"zeus-{os.getuid()}"


def _is_private(directory: Path) -> bool:
    # A user who can write here decides what knobs are set to, and in the temporary directory any
    # user may have created it first.
    status = directory.lstat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not others_write


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file so that readers see the old or the new one whole, even after a crash."""
    _remove_leftovers(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
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
        with contextlib.suppress(OSError):  # some network file systems cannot; the file exists
            os.fsync(directory)
    finally:
        os.close(directory)


class PinnedFile:
    """An open file, so that no other file can have its number, and whether it is in its place.

    Args:
        path: Its path.
        descriptor: Its descriptor, which is closed with this object.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor).atexit = False
        self._status = _compared(os.fstat(descriptor))

    def in_place(self) -> bool:
        """Whether the path is still that of this file, and its size the same."""
        try:
            return _compared(self._path.stat()) == self._status
        except OSError:
            return False


def _compared(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_size


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of processes that were killed while writing this file."""
    with contextlib.suppress(OSError):
        for leftover in path.parent.glob(f"{glob.escape(path.name)}*.new"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _LEFTOVER:
                    leftover.unlink()


def boot_id() -> str:
    """Return the ID of this boot of the machine: knobs do not survive the next one."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def job_wide(gpu_key: str) -> str:
    """Return a GPU's key, unique across machines: some are known by PCI address only."""
    return f"{boot_id()} {gpu_key}" if _PCI_ADDRESS.fullmatch(gpu_key) else gpu_key


def in_container() -> bool:
    """Whether this is a container, as far as its runtime reveals it."""
    signs = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(sign.exists() for sign in signs) or "KUBERNETES_SERVICE_HOST" in os.environ


def process_namespace() -> str:
    """Return the ID of this process's PID namespace: a container has its own."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  (the link's text, not its target)
    return ""


def process_start(pid: int) -> str | None:
    """Return the start time of a process, as its PID may be reused later.

    Returns:
        `None` if it is gone, an empty string if it exists but its start time is unknown.
    """
    try:
        # The command name may have spaces and parentheses: fields are counted after the last one.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        # A zombie has ended already; only its parent has not reaped it.
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    try:  # no /proc (macOS), or one that hides the processes of other users
        os.kill(pid, 0)
    except PermissionError:
        return ""
    except (ProcessLookupError, OverflowError):
        return None
    return ""

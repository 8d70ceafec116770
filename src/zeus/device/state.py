"""Where Zeus keeps the little it must remember between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

STATE_VARIABLE = "ZEUS_STATE_DIR"


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

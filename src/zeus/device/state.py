"""Where Zeus keeps the little it must remember between processes."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import tempfile
import time
from pathlib import Path

STATE_VARIABLE = "ZEUS_STATE_DIR"

_LEFTOVER = 60.0  # seconds; writing a file takes far less

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


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file so that every reader, and every crash, sees the old or the new one whole."""
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
        with contextlib.suppress(OSError):  # some network file systems cannot; the file is there
            os.fsync(directory)
    finally:
        os.close(directory)


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed amid writing this file have left."""
    with contextlib.suppress(OSError):
        for leftover in path.parent.glob(f"{glob.escape(path.name)}*.new"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _LEFTOVER:
                    leftover.unlink()


def boot_id() -> str:
    """Names this boot of the machine: knobs do not survive the next one."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def job_wide(gpu_key: str) -> str:
    """A GPU's key that no GPU of another machine has: some are known by PCI address only."""
    return f"{boot_id()} {gpu_key}" if _PCI_ADDRESS.fullmatch(gpu_key) else gpu_key


def in_container() -> bool:
    """Whether this is a container, as far as its runtime shows it."""
    signs = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(sign.exists() for sign in signs) or "KUBERNETES_SERVICE_HOST" in os.environ


def process_namespace() -> str:
    """Names the processes whose numbers mean anything here: a container has its own."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  (what it says, not where it leads)
    return ""


def process_start(pid: int) -> str | None:
    """When a process started, to tell it from a later one with the same number.

    Returns:
        `None` if it is gone, an empty text if it is there but nothing more can be told.
    """
    try:
        # The command name may hold spaces and parentheses: fields are counted after the last one.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        # A zombie has ended already; only its parent has not noticed.
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

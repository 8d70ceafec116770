"""The token of this user's own server, in a file that no other user can read.

`zeus serve` on a loopback address creates it; clients of the same user on the same machine find it
automatically. It is sent to this machine only.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from zeus.state._files import state_directory

FILE = "server-token"
_MAX_BYTES = 4096


@dataclass(frozen=True)
class StoredToken:
    """Content of the token file."""

    secret: str  # the token
    private: bool  # whether this user owns the file and no other user can read it


def local_token_path() -> Path:
    """Return the path of the token file; raise `OSError` if there is no state directory."""
    return state_directory() / FILE


def stored_token() -> StoredToken | None:
    """Return the token in the file; `None` if there is no valid one."""
    with contextlib.suppress(OSError, ValueError):
        # Neither follow a symbolic link nor block on a pipe without a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(local_token_path(), flags), "rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MAX_BYTES).decode("ascii").strip()
        if stat.S_ISREG(status.st_mode) and text.isprintable() and text and " " not in text:
            return StoredToken(text, status.st_uid == os.geteuid() and not status.st_mode & 0o077)
    return None


def local_token() -> str | None:
    """Return the token for a server on this machine, if this user has a private one."""
    kept = stored_token()
    return kept.secret if kept is not None and kept.private else None

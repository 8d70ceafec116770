"""Who is at the other end of a connection, as the kernel says."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import select
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zeus.device._process_owner import owner_of

_CREDENTIALS = struct.Struct("3i")
_MAX_NAME = 15  # characters of a command's name that the kernel keeps


@dataclass(frozen=True)
class Peer:
    """A client's process.

    Attributes:
        pid: Its number in the agent's PID namespace; 0 if it has none there.
        uid: Its user.
        groups: Names of the user's groups.
        user: Name of the user.
        command: Name of its program.
        cgroup: Path of its control group.
        slurm_job: Slurm job that it belongs to.
        pod: Kubernetes pod that it belongs to.
        container: Container that it runs in.
    """

    pid: int
    uid: int
    user: str
    groups: frozenset[str] = field(default_factory=frozenset)
    command: str = ""
    cgroup: str = ""
    slurm_job: str = ""
    pod: str = ""
    container: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object, without what is unknown."""
        shown = {
            "user": self.user,
            "uid": self.uid,
            "pid": self.pid,
            "command": self.command,
            "slurm_job": self.slurm_job,
            "pod": self.pod,
        }
        return {name: value for name, value in shown.items() if value != ""}

    def __str__(self) -> str:
        job = f", job {self.slurm_job}" if self.slurm_job else ""
        job += f", pod {self.pod}" if self.pod else ""
        return f"{self.user} (process {self.pid} {self.command}{job})"


def credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid and gid of the process that made a connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return pid, uid, gid


def process_descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends, where that is possible."""
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None


def peer_of(connection: socket.socket, process: int | None) -> Peer:
    """Return the process that made a connection.

    Args:
        connection: The connection.
        process: Descriptor of the process, opened before: if the process has ended when all is
            read, its number may have been another's meanwhile, and nothing is believed of that.
    """
    pid, uid, gid = credentials(connection)
    user = user_name(uid)
    owner, command = (owner_of(pid), _command(pid)) if pid else (None, "")
    if process is not None and select.select([process], [], [], 0)[0]:
        owner, command = None, ""
    return Peer(
        pid,
        uid,
        user,
        _groups(user, gid),
        command,
        (owner.cgroup or "") if owner else "",
        (owner.slurm_job or "") if owner else "",
        (owner.pod or "") if owner else "",
        owner.container if owner else "",
    )


def user_name(uid: int) -> str:
    """Return the name of a user; its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _groups(user: str, gid: int) -> frozenset[str]:
    numbers = {gid}
    with contextlib.suppress(KeyError, OSError):
        numbers |= set(os.getgrouplist(user, gid))
    return frozenset(_group_name(number) for number in numbers)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        raw = Path(f"/proc/{pid}/comm").read_bytes()[: _MAX_NAME + 1]
        return raw.decode("utf-8", "replace").strip()
    return ""

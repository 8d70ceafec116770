"""Labels for the owner of a process: user, Slurm job and pod."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from zeus.device._process_owner import owner_of
from zeus.state._files import process_namespace

OWNER_LABELS = ("user", "slurm_job", "pod")
"""Names of the labels; a value is empty where there is none."""


@dataclass(frozen=True)
class Owner:
    """Owner of a process.

    Attributes:
        user: Name of the user; the number if it has no name.
        slurm_job: Number of its Slurm job; empty if it has none.
        pod: UID of its Kubernetes pod; empty if it has none.
    """

    user: str = ""
    slurm_job: str = ""
    pod: str = ""

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values of `OWNER_LABELS`."""
        return self.user, self.slurm_job, self.pod


def owner_in(namespace: str, pid: int, started: str, uid: int, proc: Path = Path("/proc")) -> Owner:
    """Return the owner of a process that a file of a user names.

    Args:
        namespace: PID namespace of the process: in another one, its number means nothing here.
        pid: Number of the process.
        started: When it was started, as its number may be used again.
        uid: Owner of the file. A file that names a process of another user gets no more labels.
        proc: Where the kernel shows processes.
    """
    if namespace != process_namespace():
        return Owner(_user_name(uid))
    return _owner(pid, started, uid, proc)


@lru_cache(maxsize=1024)
def _owner(pid: int, started: str, uid: int, proc: Path) -> Owner:  # noqa: ARG001  (part of the key)
    found = owner_of(pid, proc)
    if found is None or found.uid != uid:
        return Owner(_user_name(uid))
    return Owner(_user_name(uid), found.slurm_job, found.pod)


@lru_cache(maxsize=1024)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{uid}"

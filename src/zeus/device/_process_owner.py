"""Owner of a process: its user, Slurm job, Kubernetes pod and container.

Everything comes from `/proc/PID/status` and `/proc/PID/cgroup`, which the kernel writes. Names of
cgroups are chosen by their creator, though, and a user may create cgroups below the user manager
(`user@1000.service`), and a container below its own. So a Slurm job or a pod is recognized above
these places only. A process that is given a job or a pod here is in it; a container is a label.
"""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

#: More than the kernel writes into either file, in bytes.
_MAX_SIZE = 1 << 20

_UUID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_ID = r"[0-9a-f]{64}"

# Slurm's plugin for cgroup v1 and for v2; a node with several slurmd puts its name into both.
_SLURM_V1 = re.compile(r"slurm(_.+)?")
_SLURM_V1_USER = re.compile(r"uid_\d+")
_SLURM_V2 = re.compile(r"(.+_)?slurmstepd\.scope")
_SLURM_JOB = re.compile(r"job_(\d+)")

# The kubelet's two drivers: slices of systemd, and directories (`kubepods/burstable/pod...`).
_POD_SLICE = re.compile(rf"(?:[a-z0-9]+-)*kubepods(?:-burstable|-besteffort)?-pod({_UUID})\.slice")
_POD_DIRECTORY = re.compile(rf"pod({_UUID})")
_POD_PARENTS = frozenset({"kubepods", "burstable", "besteffort", ".."})
#: containerd without systemd's driver on a node that has it: both in one name.
_POD_AND_CONTAINER = re.compile(rf"(?P<slice>.+\.slice):cri-containerd:(?P<id>{_ID})")

_CONTAINER_UNIT = re.compile(
    rf"(?:cri-containerd|docker|crio|libpod|libpod-payload|nerdctl)-({_ID})(?:\.scope)?"
)
_CONTAINER_DIRECTORY = re.compile(rf"({_ID})")
_USER_MANAGER = re.compile(r"user@\d+\.service")


@dataclass(frozen=True)
class ProcessOwner:
    """Owner of a process. A string is empty, and `uid` is `None`, where it is not known.

    Attributes:
        pid: Number of the process.
        uid: Number of its (real) user.
        user: Name of the user; empty if this machine knows no name.
        cgroup: Path of its cgroup: in the unified hierarchy, or in systemd's where there is none.
        slurm_job: Number of the Slurm job that it belongs to.
        pod: UID of the Kubernetes pod.
        container: ID of the container, 64 digits.
    """

    pid: int
    uid: int | None = None
    user: str = ""
    cgroup: str = ""
    slurm_job: str = ""
    pod: str = ""
    container: str = ""


def owner_of(pid: int, proc: Path = Path("/proc")) -> ProcessOwner | None:
    """Find the owner of a process.

    Args:
        pid: Number of the process, in the namespace of `proc`.
        proc: Where the kernel shows processes; `/host/proc` or the like inside a container.

    Returns:
        The owner, with as much as may be read, or `None` if there is no such process.
    """
    if pid <= 0:
        return None
    try:
        # All files of one process: its number may be another's as soon as it has ended.
        directory = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return ProcessOwner(pid)
    except OSError:
        return None
    try:
        uid = _real_uid(_read(directory, "status"))
        paths = _cgroup_paths(_read(directory, "cgroup"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    finally:
        os.close(directory)
    memberships = [_membership(path) for path in paths]
    slurm_job, pod, container = (
        next((found[which] for found in memberships if found[which]), "") for which in range(3)
    )
    return ProcessOwner(
        pid, uid, _user_name(uid), paths[0] if paths else "", slurm_job, pod, container
    )


def _read(directory: int, name: str) -> str:
    """Return a file's text, empty if it may not be read."""
    try:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_MAX_SIZE).decode(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        raise
    except OSError:
        return ""


def _real_uid(status: str) -> int | None:
    # The name in the first line is the program's own choice, but the kernel escapes its newlines.
    found = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else None


def _user_name(uid: int | None) -> str:
    if uid is None:
        return ""
    try:
        return _known_user_name(uid)
    except KeyError:
        return ""


@lru_cache(maxsize=1024)
def _known_user_name(uid: int) -> str:
    # May ask a directory service. An error is not kept.
    return pwd.getpwuid(uid).pw_name


def _cgroup_paths(text: str) -> list[str]:
    """Return the cgroups of a process, one per hierarchy: the unified one, systemd's, others."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    # On a hybrid host, the unified hierarchy exists but has only systemd's own cgroups.
    rank = {"": 0, "name=systemd": 1}
    rows.sort(key=lambda row: rank.get(row[1], 2))
    return list(dict.fromkeys(row[2] for row in rows))


def _membership(path: str) -> tuple[str, str, str]:
    """Return Slurm job, pod and container of a cgroup."""
    slurm_job = pod = container = ""
    parts = [part for part in path.split("/") if part]
    delegated = False
    for place, part in enumerate(parts):
        before = parts[place - 1] if place else ""
        both = _POD_AND_CONTAINER.fullmatch(part)
        if both and not delegated:
            pod = _pod(both["slice"], before) or pod
        else:
            slurm_job = slurm_job or ("" if delegated else _slurm_job(parts, place))
            pod = pod or ("" if delegated else _pod(part, before))
        container = both["id"] if both else _container(part, before)
        if container:
            break  # whatever is below may be of its own making
        delegated = delegated or _USER_MANAGER.fullmatch(part) is not None
    return slurm_job, pod, container


def _slurm_job(parts: list[str], place: int) -> str:
    job = _SLURM_JOB.fullmatch(parts[place])
    if job is None or not place:
        return ""
    before = parts[place - 1]
    version_1 = (
        place > 1 and _SLURM_V1_USER.fullmatch(before) and _SLURM_V1.fullmatch(parts[place - 2])
    )
    return job[1] if version_1 or _SLURM_V2.fullmatch(before) else ""


def _pod(part: str, before: str) -> str:
    found = _POD_SLICE.fullmatch(part)
    if found is None and before in _POD_PARENTS:
        found = _POD_DIRECTORY.fullmatch(part)
    return found[1].replace("_", "-") if found else ""


def _container(part: str, before: str) -> str:
    found = _CONTAINER_UNIT.fullmatch(part)
    if found is None and (before == "docker" or _POD_DIRECTORY.fullmatch(before)):
        found = _CONTAINER_DIRECTORY.fullmatch(part)
    return found[1] if found else ""

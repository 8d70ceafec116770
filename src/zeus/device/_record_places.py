"""Directories of the records of holds on GPUs.

Records of real GPUs are in one place per machine, so that users and containers that share it see
each other's holds; those of simulated GPUs are with the state of these GPUs, per user.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zeus.state._files import STATE_VARIABLE, state_directory

SHARED_PLACES = (Path("/run/zeus"), Path("/dev/shm"))
"""Directories that all users of a machine may write. An administrator must create the first."""

_PREFIX = "zeus-holds-"


@dataclass(frozen=True)
class Place:
    """A directory for records.

    Attributes:
        own: Directory of this user's files.
        shared: Whether other users have their directories beside it.
        old: Previous directories of this user's files.
    """

    own: Path
    shared: bool = False
    old: tuple[Path, ...] = ()

    @property
    def directory(self) -> Path:
        """Directory to show to users."""
        return self.own.parent if self.shared else self.own

    def lock(self, name: str) -> Path:
        """Return the lock file for changes to a GPU's knobs, by the name of its record."""
        if self.shared:
            return self.own.parent / f"{_PREFIX}{name}.lock"
        return self.own / f"{name}.lock"

    def moved_from(self, name: str) -> list[Path]:
        """Return the previous paths of this user's record of a GPU."""
        return [directory / f"{name}.json" for directory in self.old]

    def files(self, name: str) -> list[Path]:
        """Return the records of one GPU, of all trusted users, this user's first."""
        others = [directory / f"{name}.json" for directory in self._others()]
        return [self.own / f"{name}.json", *self.moved_from(name), *others]

    def all_files(self) -> Iterator[Path]:
        """Yield the records of all GPUs, of all trusted users."""
        for directory in (self.own, *self.old, *self._others()):
            with contextlib.suppress(OSError):
                yield from sorted(directory.glob("*.json"))

    def _others(self) -> list[Path]:
        if not self.shared:
            return []
        with contextlib.suppress(OSError):
            directories = sorted(self.own.parent.glob(f"{_PREFIX}*"))
            return [each for each in directories if each != self.own and _trusted(each)]
        return []


def places() -> list[Place]:
    """Return all places where there may be records for this user."""
    found: list[Place] = []
    with contextlib.suppress(OSError):
        found.append(machine_place())
    with contextlib.suppress(OSError):
        private = private_place()
        if all(private.own not in (place.own, *place.old) for place in found):
            found.append(private)
    return found


def private_place() -> Place:
    """Return the place for records of this user only.

    Raises:
        OSError: If no directory can be written.
    """
    return Place(state_directory() / "holds")


def machine_place() -> Place:
    """Return the first shared place that this user may write; else the user's own.

    Raises:
        OSError: If no directory can be written.
    """
    if os.environ.get(STATE_VARIABLE):
        return private_place()
    candidates = [directory / f"{_PREFIX}{os.getuid()}" for directory in SHARED_PLACES]
    for own in filter(usable, candidates):
        old = [each for each in candidates if each != own and usable(each)]
        with contextlib.suppress(OSError):
            old.append(private_place().own)
        return Place(own, shared=True, old=tuple(old))
    return private_place()


def usable(own: Path) -> bool:
    """Whether this user can use that directory: no other user may have created it."""
    with contextlib.suppress(FileNotFoundError):
        return owned_by(own, os.getuid()) and os.access(own, os.W_OK | os.X_OK)
    return own.parent.is_dir() and os.access(own.parent, os.W_OK | os.X_OK)


def _trusted(directory: Path) -> bool:
    """Whether to act on the records of another user.

    The author of a record decides what a privileged process sets later. In a world-writable place,
    root therefore acts on no other user's records; in one that an administrator restricts to users
    who may change knobs, on all of them.
    """
    number = directory.name.removeprefix(_PREFIX)
    with contextlib.suppress(OSError):  # gone meanwhile
        if number.isdecimal() and owned_by(directory, int(number)):
            return number == "0" or os.getuid() != 0 or not _world_writable(directory.parent)
    return False


def owned_by(directory: Path, uid: int) -> bool:
    status = directory.lstat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not others_write


def _world_writable(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IWOTH)

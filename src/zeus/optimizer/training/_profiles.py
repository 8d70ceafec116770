"""Profiles kept between runs: time and energy of a job's step at each setting of a GPU knob.

One file holds any number of them. A profile belongs to a GPU model, a number of GPUs, a job and a
batch size, and is never used for others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.errors import FrontierError, ProfileError
from zeus.frontier import Frontier
from zeus.state._files import write_atomically
from zeus.state._locks import locked

FORMAT, VERSION = "zeus-profiles", 1
_MAX_GPUS = 1_000_000


@dataclass(frozen=True)
class ProfileKey:
    """Identifies a profile.

    Attributes:
        gpu: Product name; for mixed GPUs "2 x this + 4 x that".
        gpus: Number of GPUs that the job uses.
        knob: "power_limit" or "graphics_clock".
        job: Name of the job, if it has one.
        batch_size: Batch size of the job, of all its processes together, if given.
    """

    gpu: str
    gpus: int
    knob: str
    job: str | None = None
    batch_size: int | None = None

    def __str__(self) -> str:
        job = self.job if self.job is not None else "a job without a name"
        batch = "" if self.batch_size is None else f", batch size {self.batch_size}"
        mixed = " + " in self.gpu
        return f"{job}{batch}, on {self.gpu if mixed else f'{self.gpus} x {self.gpu}'}"


@dataclass(frozen=True)
class Profile:
    """A step of a job at each measured setting."""

    key: ProfileKey
    frontier: Frontier

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as types that JSON supports."""
        return {**vars(self.key), "frontier": self.frontier.to_dict()}

    @classmethod
    def from_dict(cls, record: Any, where: str = "profile") -> Profile:
        """Inverse of `to_dict`.

        Raises:
            ProfileError: If it is not the record of a profile.
        """
        if not isinstance(record, Mapping):
            raise ProfileError(f"{where} must be an object, but got {record!r:.60}")
        rules: tuple[tuple[str, type | tuple[type, ...]], ...] = (
            ("gpu", str),
            ("gpus", int),
            ("knob", str),
            ("job", (str, type(None))),
            ("batch_size", (int, type(None))),
        )
        for name, kind in rules:
            if name not in record:
                raise ProfileError(f"{where}: `{name}` is missing; it has {sorted(record)!r:.200}")
            value = record[name]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ProfileError(f"{where}: `{name}` is missing or wrong: {value!r:.60}")
        if not 1 <= record["gpus"] <= _MAX_GPUS:
            raise ProfileError(
                f"{where}: `1 <= gpus <= {_MAX_GPUS}` must hold, but got {record['gpus']!r:.60}"
            )
        try:
            frontier = Frontier.from_dict(record.get("frontier"))  # type: ignore[arg-type]
        except FrontierError as error:
            raise ProfileError(f"{where}: {error}") from error
        return cls(ProfileKey(**{name: record[name] for name, _ in rules}), frontier)


class _DamagedError(ProfileError):
    """The file is one of profiles, but damaged."""


class ProfileFile:
    """The file of profiles at a path. Every change is atomic."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> list[Profile]:
        """Return all profiles; none if there is no file.

        Raises:
            ProfileError: If the file cannot be read or is not one of profiles; says where.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"{self.path} cannot be read: {error}") from error
        if not text.strip():
            return []
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, too
            kind = _DamagedError if f'"{FORMAT}"' in text[:100] else ProfileError
            raise kind(f"{self.path} is not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ProfileError(f'{self.path} must be an object with "format": "{FORMAT}"')
        if content.get("version") != VERSION:
            raise ProfileError(
                f"{self.path} must have version {VERSION}, but has {content.get('version')!r}"
            )
        profiles = content.get("profiles")
        if not isinstance(profiles, list):
            raise _DamagedError(f"{self.path}: `profiles` must be a list, but got {profiles!r:.60}")
        try:
            return [
                Profile.from_dict(record, f"{self.path}: profiles[{number}]")
                for number, record in enumerate(profiles)
            ]
        except ProfileError as error:
            raise _DamagedError(str(error)) from error

    def find(self, key: ProfileKey) -> Profile | None:
        """Return the profile with this key.

        Raises:
            ProfileError: If the file is not one of profiles.
        """
        return next((profile for profile in self.read() if profile.key == key), None)

    def keep(self, profile: Profile) -> Path | None:
        """Add a profile, in place of an older one of the same key.

        Returns:
            Path to which a damaged file of profiles was moved, if there was one.

        Raises:
            OSError: If the file cannot be written.
            ProfileError: If it cannot be read, or is another kind of file, which is left alone.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        moved = None
        with locked(self.path.with_name(f".{self.path.name}.lock")):
            try:
                others = [known for known in self.read() if known.key != profile.key]
            except _DamagedError:
                others = []
                moved = _unused(self.path.with_name(f"{self.path.name}.unreadable"))
                self.path.replace(moved)
            content = {
                "format": FORMAT,
                "version": VERSION,
                "profiles": [known.to_dict() for known in (*others, profile)],
            }
            write_atomically(self.path, json.dumps(content, indent=1) + "\n")
        return moved


def _unused(path: Path) -> Path:
    """Return the path, or a similar one that does not exist."""
    free, number = path, 2
    while free.exists():
        free, number = path.with_name(f"{path.name}.{number}"), number + 1
    return free

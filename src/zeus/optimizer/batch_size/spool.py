"""Notes of runs that could not be told yet, in files that outlive the process.

One file per run, in the state directory. The run itself writes it; whoever reaches the server next
tells what it says and removes it. Nothing is counted twice, because telling it twice does no harm.
What cannot be delivered is kept and tried again after a pause, and holds up nobody but itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zeus.device.locks import locked
from zeus.device.state import state_directory, write_atomically
from zeus.errors import (
    FrontierError,
    JobConflictError,
    JobLogError,
    JobSpecError,
    RequestError,
    ServerError,
    TokenError,
    UnknownJobError,
)
from zeus.optimizer.batch_size.answers import JobsApi
from zeus.optimizer.batch_size.notes import Notes

logger = logging.getLogger(__name__)

FORMAT, VERSION = "zeus-undelivered", 1
MOST_FILES = 100
"""Runs whose notes are kept; beyond, the oldest are given up."""

# Seconds until a run is told of again that the server could not take; each time twice as many.
_FIRST_PAUSE, _MAX_PAUSE = 60.0, 86_400.0

REFUSALS = (
    FrontierError,
    JobConflictError,
    JobLogError,
    JobSpecError,
    RequestError,
    UnknownJobError,
)
"""What is answered to something that will never be accepted, however often it is told."""


class Spool:
    """A directory of notes.

    Args:
        directory: By default one among Zeus's state, created when it is needed.
        now: Seconds since 1970; pauses are counted by it.
    """

    def __init__(self, directory: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self._given = directory
        self._now = now

    @property
    def directory(self) -> Path:
        """Where the files are.

        Raises:
            OSError: If there is no place for state.
        """
        return self._given or state_directory() / "undelivered"

    def save(self, notes: Notes) -> None:
        """Keep notes, in place of what was kept of the same run.

        Raises:
            OSError: If they cannot be written.
        """
        directory = self.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path_of(notes.request)
        with self._locked():
            write_atomically(path, _Kept(path, notes).text())
            others = sorted(directory.glob("*.json"), key=_changed)
            for old in others[: max(len(others) - MOST_FILES, 0)]:
                if old != path:
                    old.unlink(missing_ok=True)
                    logger.warning("%s was given up: more than %d runs wait", old, MOST_FILES)

    def find(self, request: str) -> Notes | None:
        """What was kept of a run, if anything."""
        try:
            kept = _found(self._path_of(request))
            return None if kept is None else kept.notes
        except (OSError, ValueError):
            return None

    def remove(self, notes: Notes) -> None:
        """Everything was told."""
        self._path_of(notes.request).unlink(missing_ok=True)

    def deliver(
        self,
        api: JobsApi,
        place: str,
        *,
        but: str | None = None,
        job: str | None = None,
        within: float,
    ) -> int:
        """Tell what runs have left behind, the oldest first.

        A run that cannot be told of now stays, and the others are told of all the same. If nobody
        answers any more, all that are left stay.

        Args:
            api: Who is told.
            place: Its URL: notes for others stay.
            but: Request of a run that tells its notes itself.
            job: Name of the only job whose runs are told of; by default all are.
            within: Seconds after which the rest has to wait.

        Returns:
            How many runs were told of to their end.
        """
        began, count = time.monotonic(), 0
        for kept in self._waiting(place):
            notes = kept.notes
            if notes.request == but or job not in (None, notes.spec.name):
                continue
            left = within - (time.monotonic() - began)
            if left < 0:
                break
            complete = True
            try:
                notes.tell(api, partial(_complain, notes.spec.name), within=left)
                complete = not notes.pending
            except REFUSALS as error:
                said = f"what a run had kept is not accepted, and given up: {error}"
                _complain(notes.spec.name, said)
            except TokenError:
                continue  # it waits for somebody who may talk about its job
            except Exception as error:  # what a server may do to us has no bounds
                if _away(error):
                    break  # which says nothing about these notes
                self._postpone(kept, error)
                if _no_answer(error):
                    break
                continue
            self._replace(kept, None if complete else kept.text())
            if not complete:
                break
            count += 1
        return count

    def _postpone(self, kept: _Kept, error: Exception) -> None:
        kept.failures += 1
        pause = min(_FIRST_PAUSE * 2.0 ** min(kept.failures - 1, 30), _MAX_PAUSE)
        kept.not_before = self._now() + pause
        about = kept.notes.trial or kept.notes.request
        _complain(
            kept.notes.spec.name,
            f"what was kept of trial {about!r:.80} is not delivered, and is tried again in "
            f"{pause:g} s or later ({kept.path}): {error!s:.300}",
        )
        self._replace(kept, kept.text())

    def _replace(self, kept: _Kept, text: str | None) -> None:
        with self._locked():
            # The run may have had more to say meanwhile, and will say it, or the next one does.
            if _read(kept.path) != kept.read:
                return
            if text is None:
                kept.path.unlink(missing_ok=True)
            else:
                write_atomically(kept.path, text)

    def _waiting(self, place: str) -> list[_Kept]:
        """Notes for a place that are due, the oldest first."""
        try:
            paths = list(self.directory.glob("*.json"))
        except OSError:
            return []
        found: list[_Kept] = []
        for path in paths:
            try:
                kept = _found(path)
            except ValueError as error:
                self._set_aside(path, error)
                continue
            # A pause that is longer than any comes from a clock that was wrong.
            pause = 0.0 if kept is None else kept.not_before - self._now()
            if kept is not None and kept.notes.place == place and not 0 < pause <= _MAX_PAUSE:
                found.append(kept)
        return sorted(found, key=lambda kept: kept.notes.at)

    def _set_aside(self, path: Path, error: ValueError) -> None:
        """Keep what cannot be read for a person to look at, and out of the way."""
        aside = path.with_suffix(".unreadable")
        try:
            path.rename(aside)
        except OSError:
            return
        logger.warning("%s cannot be read and is kept as %s: %.300s", path, aside.name, error)

    def _path_of(self, request: str) -> Path:
        name = hashlib.sha256(request.encode()).hexdigest()[:32]
        return self.directory / f"{name}.json"

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.directory / ".lock")


@dataclass
class _Kept:
    """A file of notes.

    Attributes:
        path: Where it is.
        notes: What it says.
        read: Its text when it was read.
        failures: How often it could not be delivered.
        not_before: When it is tried again, in seconds since 1970.
    """

    path: Path
    notes: Notes
    read: str | None = None
    failures: int = 0
    not_before: float = 0.0

    def text(self) -> str:
        """What the file is to say."""
        head = {"format": FORMAT, "version": VERSION}
        tries = {"failures": self.failures, "not_before": self.not_before}
        return json.dumps({**head, **tries, **self.notes.to_dict()})


def _found(path: Path) -> _Kept | None:
    """A file of notes; `None` if it is gone, or a newer Zeus has written it.

    Raises:
        ValueError: If it is not one.
    """
    text = _read(path)
    if text is None:
        return None
    record = json.loads(text)
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise ValueError(f'it must be an object with "format": "{FORMAT}"')
    if record.pop("version", None) != VERSION:
        return None
    failures, not_before = (_count(record.pop(name, 0)) for name in ("failures", "not_before"))
    return _Kept(path, Notes.from_dict(record), text, int(failures), not_before)


def _count(value: Any) -> float:
    good = isinstance(value, int | float) and 0 <= value < 1e12
    return float(value) if good else 0.0


def _away(error: Exception) -> bool:
    """Whether there is no server just now."""
    return isinstance(error, ServerError) and isinstance(
        error.__cause__, ConnectionRefusedError | socket.gaierror
    )


def _no_answer(error: Exception) -> bool:
    """Whether the server was not heard at all; one that answers with an error was."""
    return isinstance(error, ServerError) and error.__cause__ is not None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _complain(job: str, said: str) -> None:
    logger.warning("job %r: %s", job, said)

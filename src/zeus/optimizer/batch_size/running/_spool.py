"""Undelivered notes of runs, in files that outlive the process.

One file per run, in the state directory. The run itself writes it; the next process that reaches
the server delivers it and removes the file. Nothing is counted twice, because delivery is
idempotent. Notes that cannot be delivered are retried after a pause, and do not block others.
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
from zeus.optimizer.batch_size.api._api import JobsApi
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.state._files import state_directory, write_atomically
from zeus.state._locks import locked

logger = logging.getLogger(__name__)

FORMAT, VERSION = "zeus-undelivered", 1
MAX_FILES = 100
"""Maximum number of runs whose notes are kept; the oldest are dropped."""

# Seconds until a failed delivery is retried; doubled each time.
_FIRST_PAUSE, _MAX_PAUSE = 60.0, 86_400.0

REFUSALS = (
    FrontierError,
    JobConflictError,
    JobLogError,
    JobSpecError,
    RequestError,
    UnknownJobError,
)
"""Errors for reports that will never be accepted, however often they are sent."""


class Spool:
    """A directory of undelivered notes.

    Args:
        directory: By default a folder of Zeus's state directory, created when needed.
        now: Returns seconds since 1970; pauses are measured by it.
    """

    def __init__(self, directory: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self._given = directory
        self._now = now

    @property
    def directory(self) -> Path:
        """Directory of the files.

        Raises:
            OSError: If there is no state directory.
        """
        return self._given or state_directory() / "undelivered"

    def save(self, notes: RunReport) -> None:
        """Save notes, replacing those saved earlier for the same run.

        Raises:
            OSError: If they cannot be written.
        """
        directory = self.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path_of(notes.request)
        with self._locked():
            write_atomically(path, _Kept(path, notes).text())
            others = sorted(directory.glob("*.json"), key=_changed)
            for old in others[: max(len(others) - MAX_FILES, 0)]:
                if old != path:
                    old.unlink(missing_ok=True)
                    logger.warning("%s was given up: more than %d runs wait", old, MAX_FILES)

    def find(self, request: str) -> RunReport | None:
        """Return the saved notes of a run, if any."""
        try:
            kept = _found(self._path_of(request))
            return None if kept is None else kept.notes
        except (OSError, ValueError):
            return None

    def remove(self, notes: RunReport) -> None:
        """Remove notes after everything was delivered."""
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
        """Deliver saved notes of runs, the oldest first.

        Notes that cannot be delivered now stay, and the others are delivered anyway. If the server
        stops answering, all remaining notes stay.

        Args:
            api: Server or store.
            place: Its URL: notes for other places stay.
            but: Request of a run that delivers its notes itself.
            job: Name of the only job whose notes are delivered; by default all.
            within: Seconds after which the rest has to wait.

        Returns:
            Number of runs whose notes were delivered completely.
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
                said = f"saved reports of a run are rejected and dropped: {error}"
                _complain(notes.spec.name, said)
            except TokenError:
                continue  # it waits for a client whose token covers its job
            except Exception as error:  # whatever a server answers must not stop the training
                if _away(error):
                    break  # no server: not a failure of these notes
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
            f"saved report of trial {about!r:.80} is not delivered, and is tried again in "
            f"{pause:g} s or later ({kept.path}): {error!s:.300}",
        )
        self._replace(kept, kept.text())

    def _replace(self, kept: _Kept, text: str | None) -> None:
        with self._locked():
            # The run may have saved more meanwhile; that file must stay for the next delivery.
            if _read(kept.path) != kept.read:
                return
            if text is None:
                kept.path.unlink(missing_ok=True)
            else:
                write_atomically(kept.path, text)

    def _waiting(self, place: str) -> list[_Kept]:
        """Return notes for a place that are due, the oldest first."""
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
            # A pause beyond the maximum comes from a clock that was wrong.
            pause = 0.0 if kept is None else kept.not_before - self._now()
            if kept is not None and kept.notes.place == place and not 0 < pause <= _MAX_PAUSE:
                found.append(kept)
        return sorted(found, key=lambda kept: kept.notes.at)

    def _set_aside(self, path: Path, error: ValueError) -> None:
        """Rename an unreadable file, so that it is skipped but can be inspected."""
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
        path: Path of the file.
        notes: Its contents.
        read: Its text when it was read.
        failures: Number of failed deliveries.
        not_before: Earliest time of the next delivery, in seconds since 1970.
    """

    path: Path
    notes: RunReport
    read: str | None = None
    failures: int = 0
    not_before: float = 0.0

    def text(self) -> str:
        """Return the text to write to the file."""
        head = {"format": FORMAT, "version": VERSION}
        tries = {"failures": self.failures, "not_before": self.not_before}
        return json.dumps({**head, **tries, **self.notes.to_dict()})


def _found(path: Path) -> _Kept | None:
    """Read a file of notes; `None` if it is gone, or was written by a newer Zeus.

    Raises:
        ValueError: If it is not a file of notes.
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
    return _Kept(path, RunReport.from_dict(record), text, int(failures), not_before)


def _count(value: Any) -> float:
    good = isinstance(value, int | float) and 0 <= value < 1e12
    return float(value) if good else 0.0


def _away(error: Exception) -> bool:
    """Whether no server is running at the moment."""
    return isinstance(error, ServerError) and isinstance(
        error.__cause__, ConnectionRefusedError | socket.gaierror
    )


def _no_answer(error: Exception) -> bool:
    """Whether the server did not answer at all, not even with an error."""
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

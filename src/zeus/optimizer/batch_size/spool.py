"""Notes of runs that could not be told yet, in files that outlive the process.

One file per run, in the state directory. The run itself writes it; whoever reaches the server next
tells what it says and removes it. Nothing is counted twice, because telling it twice does no harm.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from zeus.device.locks import locked
from zeus.device.state import state_directory, write_atomically
from zeus.errors import (
    FrontierError,
    JobConflictError,
    JobLogError,
    JobSpecError,
    RequestError,
    TokenError,
    UnknownJobError,
)
from zeus.optimizer.batch_size.answers import JobsApi
from zeus.optimizer.batch_size.notes import Notes

logger = logging.getLogger(__name__)

FORMAT, VERSION = "zeus-undelivered", 1
MOST_FILES = 100
"""Runs whose notes are kept; beyond, the oldest are given up."""

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
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._given = directory

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
            write_atomically(path, _text(notes))
            others = sorted(directory.glob("*.json"), key=_changed)
            for old in others[: max(len(others) - MOST_FILES, 0)]:
                if old != path:
                    old.unlink(missing_ok=True)
                    logger.warning("%s was given up: more than %d runs wait", old, MOST_FILES)

    def find(self, request: str) -> Notes | None:
        """What was kept of a run, if anything."""
        try:
            text = _read(self._path_of(request))
            return None if text is None else _parsed(text)
        except (OSError, ValueError):
            return None

    def remove(self, notes: Notes) -> None:
        """Everything was told."""
        self._path_of(notes.request).unlink(missing_ok=True)

    def deliver(self, api: JobsApi, place: str, *, but: str | None = None, within: float) -> int:
        """Tell what runs have left behind, the oldest first.

        Args:
            api: Who is told.
            place: Its URL: notes for others stay.
            but: Request of a run that tells its notes itself.
            within: Seconds after which the rest has to wait.

        Returns:
            How many runs were told of to their end.

        Raises:
            ZeusError: If they are not taken now; the rest stays.
        """
        began, count = time.monotonic(), 0
        for text, path, notes in self._waiting(place):
            if notes.request == but:
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
            with self._locked():
                # The run may have had more to say meanwhile, and will say it, or the next one does.
                if _read(path) == text:
                    if complete:
                        path.unlink(missing_ok=True)
                    else:
                        write_atomically(path, _text(notes))
            if not complete:
                break
            count += 1
        return count

    def _waiting(self, place: str) -> Iterator[tuple[str, Path, Notes]]:
        try:
            paths = list(self.directory.glob("*.json"))
        except OSError:
            return
        found: list[tuple[float, str, Path, Notes]] = []
        for path in paths:
            text = _read(path)
            if text is None:
                continue
            try:
                notes = _parsed(text)
            except ValueError as error:
                logger.warning("%s is not readable and is removed: %s", path, error)
                path.unlink(missing_ok=True)
                continue
            if notes is not None and notes.place == place:
                found.append((notes.at, text, path, notes))
        for _, text, path, notes in sorted(found, key=lambda each: each[0]):
            yield text, path, notes

    def _path_of(self, request: str) -> Path:
        name = hashlib.sha256(request.encode()).hexdigest()[:32]
        return self.directory / f"{name}.json"

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.directory / ".lock")


def _text(notes: Notes) -> str:
    return json.dumps({"format": FORMAT, "version": VERSION, **notes.to_dict()})


def _parsed(text: str) -> Notes | None:
    """The notes; `None` if a newer Zeus has written them."""
    record = json.loads(text)
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise ValueError(f'it must be an object with "format": "{FORMAT}"')
    return Notes.from_dict(record) if record.pop("version", None) == VERSION else None


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

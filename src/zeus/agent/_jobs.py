"""GPUs that a scheduler has given to jobs, with the values their knobs had then.

Slurm's prolog and epilog report them (`zeus agent job`). They are kept in a file, so that an agent
that is restarted while a job runs still knows what to put back. An epilog that finds no agent
leaves a file named by the job's number in the directory `ended-jobs`, beside it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zeus.device._records import Value
from zeus.state._files import boot_id, write_atomically

logger = logging.getLogger(__name__)

MISSED_ENDS = "ended-jobs"


@dataclass(frozen=True)
class ScheduledJob:
    """A running job of the scheduler.

    Attributes:
        id: Its number.
        uid: The user that it runs as.
        values: For each of its GPUs, by key, the values of the knobs when it began.
    """

    id: str
    uid: int
    values: dict[str, dict[str, Value]]


class Jobs:
    """The jobs that run on this node.

    Args:
        path: File that keeps them; `None` for memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._jobs: dict[str, ScheduledJob] = {job.id: job for job in self._read()}

    def add(self, job: ScheduledJob) -> None:
        """Note a job that begins. A job that is known keeps the values of its first beginning."""
        with self._lock:
            self._jobs.setdefault(job.id, job)
            self._write()

    def remove(self, job_id: str) -> ScheduledJob | None:
        """Note the end of a job; returns it, or `None` if it was not known."""
        with self._lock:
            job = self._jobs.pop(job_id, None)
            self._write()
            return job

    def missed_ends(self) -> list[str]:
        """Return the jobs whose ends epilogs noted that found no agent, and remove the notes."""
        if self._path is None:
            return []
        notes = self._path.with_name(MISSED_ENDS)
        found: list[str] = []
        with contextlib.suppress(OSError):  # most often there are none
            if notes.lstat().st_uid == os.getuid():
                for note in sorted(notes.iterdir()):
                    note.unlink()
                    found.append(note.name)
        return found

    def gpus_of(self, uid: int, job_id: str) -> frozenset[str]:
        """Return the keys of the GPUs of a user's job; of all jobs of the user for no job."""
        with self._lock:
            return frozenset(
                key
                for job in self._jobs.values()
                if job.uid == uid and job_id in ("", job.id)
                for key in job.values
            )

    def only_job_of(self, uid: int) -> str:
        """Return the job of a user who has exactly one here; else an empty string."""
        with self._lock:
            found = [job.id for job in self._jobs.values() if job.uid == uid]
            return found[0] if len(found) == 1 else ""

    def to_list(self) -> list[dict[str, Any]]:
        """Return the jobs as JSON objects."""
        with self._lock:
            return [
                {"job": job.id, "uid": job.uid, "gpus": sorted(job.values)}
                for job in self._jobs.values()
            ]

    def _read(self) -> list[ScheduledJob]:
        if self._path is None:
            return []
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["boot"] != boot_id():
                return []  # the scheduler has ended them, and the driver reset the knobs
            return [ScheduledJob(**each) for each in found["jobs"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning("cannot read the scheduler's jobs in %s: %s", self._path, error)
            return []

    def _write(self) -> None:
        if self._path is None:
            return
        jobs = [asdict(job) for job in self._jobs.values()]
        try:
            write_atomically(self._path, json.dumps({"boot": boot_id(), "jobs": jobs}), 0o600)
        except OSError as error:
            logger.error("cannot keep the scheduler's jobs in %s: %s", self._path, error)

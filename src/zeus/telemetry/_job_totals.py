"""Joules of jobs and users so far, which outlive processes, jobs and the exporter."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.state._files import write_atomically

logger = logging.getLogger(__name__)

_VERSION = 1
_FORGET = 7 * 86400.0  # seconds after its last joule, for a job that will not come back


@dataclass(frozen=True)
class Job:
    """Owner of energy of a GPU. Strings are empty where nothing is known.

    Attributes:
        gpu: Key of the GPU.
        job: Number of the Slurm job.
        pod: UID of the Kubernetes pod.
        user: Name of the user, or the number of one without a name.
        method: "usage" where the driver reports the time of processes, "equal" where all processes
            on the GPU count alike.
    """

    gpu: str
    job: str = ""
    pod: str = ""
    user: str = ""
    method: str = "usage"


class JobTotals:
    """Joules by job, idle joules and idle power by GPU.

    Args:
        file: Where they are kept; `None` to keep them in memory only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.jobs: dict[Job, float] = {}
        self.idle: dict[str, float] = {}
        self.idle_power: dict[str, float] = {}
        self._seen: dict[Job, float] = {}
        self._file = file
        if file is not None:
            self._load(file)

    def add(self, job: Job, joules: float) -> None:
        """Add energy of a job."""
        self.jobs[job] = self.jobs.get(job, 0.0) + joules
        self._seen[job] = time.time()

    def add_idle(self, gpu: str, joules: float) -> None:
        """Add energy of a GPU that is due to no process."""
        self.idle[gpu] = self.idle.get(gpu, 0.0) + joules

    def save(self) -> None:
        """Write them to the file, without jobs that ended a week ago."""
        now = time.time()
        for job, seen in list(self._seen.items()):
            if now - seen > _FORGET:
                del self._seen[job], self.jobs[job]
        if self._file is None:
            return
        record = {
            "version": _VERSION,
            "jobs": [
                [*(getattr(job, name) for name in _NAMES), joules, self._seen[job]]
                for job, joules in self.jobs.items()
            ],
            "idle": self.idle,
            "idle_power": self.idle_power,
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(record))
        except OSError as error:
            logger.warning("energy by job is not kept: %s", error)

    def _load(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            self._refuse(file, str(error))
            return
        try:
            self._take(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.jobs, self.idle, self.idle_power, self._seen = {}, {}, {}, {}
            self._refuse(file, f"{type(error).__name__}: {error}")

    def _take(self, record: dict[str, Any]) -> None:
        if record["version"] != _VERSION:
            raise ValueError(f"version {_VERSION} is expected, but got {record['version']!r}")
        for *names, joules, seen in record["jobs"]:
            job = Job(*map(_text, names))
            self.jobs[job], self._seen[job] = _number(joules), _number(seen)
        self.idle = {_text(gpu): _number(value) for gpu, value in record["idle"].items()}
        powers = record["idle_power"].items()
        self.idle_power = {_text(gpu): _number(value) for gpu, value in powers}

    @staticmethod
    def _refuse(file: Path, why: str) -> None:
        """Keep a file that cannot be read beside the one that follows it."""
        kept = file.with_name(f"{file.name}.unreadable")
        with contextlib.suppress(OSError):
            os.replace(file, kept)  # noqa: PTH105  (like its counterpart in `state`)
        logger.warning("energy by job begins at 0, as %s cannot be read: %s", kept, why)


_NAMES = ("gpu", "job", "pod", "user", "method")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, but got {value!r}")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"a number is expected, but got {value!r}")
    if value < 0:
        raise ValueError(f"`value >= 0` must hold, but got {value!r}")
    return float(value)

"""How `zeus run` passes a trial to the script that it starts, and receives its result.

The trial is passed in environment variables, which launchers such as `torchrun` pass on to all
processes of a job. The result comes back in a small file that the first process writes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from zeus.errors import JobConflictError, RunError
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._share import BatchShare
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._placeholders import values_of
from zeus.optimizer.batch_size.running._run_report import RunReport

T = TypeVar("T")

VARIABLE = "ZEUS_TRIAL_NOTES"
"""Holds everything that Zeus itself needs; the other variables are for scripts and users."""


@dataclass(frozen=True)
class LaunchContext:
    """A trial as passed to a script.

    Attributes:
        notes: Notes of the run, without any reports yet.
        decision: Configuration of the trial.
        answer: Path of the file for the result.
        timeout: Seconds that one request to a server may take.
        replicas: Number of data-parallel replicas as the user has stated it; `None` if it is that
            of the processes.
    """

    notes: RunReport
    decision: Decision
    answer: Path
    timeout: float = 5.0
    replicas: int | None = None

    @property
    def use(self) -> Path:
        """Path of the file for what the script has done with its trial."""
        return self.answer.with_name("use.json")

    @property
    def share(self) -> BatchShare:
        """Share of each replica, as far as is known before the processes start."""
        notes = self.notes
        replicas = notes.replicas or 1
        return BatchShare.of(self.decision.batch_size, replicas, notes.max_local_batch_size)

    def variables(self, place: Location) -> dict[str, str]:
        """Return environment variables for the script."""
        values = values_of(self.decision, self.share)
        machine = {
            "notes": self.notes.to_dict(),
            "decision": self.decision.to_dict(),
            "answer": str(self.answer),
            "timeout": self.timeout,
            "replicas": self.replicas,
        }
        return {
            **{f"ZEUS_{name.upper()}": value for name, value in values.items()},
            "ZEUS_EPOCHS_REPORTED": str(self.decision.epochs),
            VARIABLE: json.dumps(machine),
            **place.variables(),
        }

    @classmethod
    def found(cls, environment: Mapping[str, str] | None = None) -> LaunchContext | None:
        """Return the trial of this process; `None` if it was not started by `zeus run`.

        Raises:
            RunError: If the variable is malformed.
        """
        text = (os.environ if environment is None else environment).get(VARIABLE)
        if not text:
            return None
        try:
            record = json.loads(text)
            return cls(
                RunReport.from_dict(record["notes"]),
                Decision.from_dict(record["decision"]),
                Path(record["answer"]),
                float(record["timeout"]),
                record["replicas"],
            )
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"{VARIABLE} must be as `zeus run` has set it: {error!r}") from error

    @property
    def place(self) -> Location:
        """Where the job is kept."""
        url = self.notes.place
        is_server = url.startswith("http")
        return Location.of(
            url if is_server else None, None if is_server else url, timeout=self.timeout
        )

    @property
    def claimed(self) -> bool:
        """Whether a training run in this process has claimed the trial."""
        return self.notes.request in _claimed

    def claim(self) -> bool:
        """Claim the trial; `False` if another training run in this process has claimed it."""
        with _lock:
            if self.notes.request in _claimed:
                return False
            _claimed.add(self.notes.request)
            return True


# One training run is one trial: a second run in the same process is not a trial.
_claimed: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class Answer:
    """Result of a run, as reported by its first process.

    Attributes:
        outcome: How its trial ends, if the run is over; `None` if it was left before its end.
        reason: Why, in words.
        epochs: Number of reported epochs.
        time: Seconds of these; `energy` in joules, `None` if a part could not be measured.
        cost: Cost in joules.
        metric: The latest validation metric.
        trial: Identifier of the trial; empty if the run could not become one.
    """

    outcome: str | None
    reason: str
    epochs: int
    time: float
    energy: float | None
    cost: float
    metric: float | None
    trial: str

    def write(self, path: Path) -> None:
        """Write the file atomically.

        Raises:
            OSError: If it cannot be written.
        """
        _write(path, vars(self))

    @classmethod
    def read(cls, path: Path) -> Answer | None:
        """Read the file; `None` if the script has reported nothing."""
        return _read(path, cls)


@dataclass
class TrialUse:
    """What a script has done with its trial, as noted by its first process.

    Attributes:
        replicas: Number of its data-parallel replicas.
        batch_size_read: Whether it has asked for its batch size.
        refusal: Why it could not train with the batch size that was decided, if so.
        out_of_memory: Whether it has run out of memory before the end of its first epoch.
    """

    replicas: int
    batch_size_read: bool = False
    refusal: str = ""
    out_of_memory: bool = False

    def write(self, path: Path) -> None:
        """Write the file atomically.

        Raises:
            OSError: If it cannot be written.
        """
        _write(path, vars(self))

    @classmethod
    def read(cls, path: Path) -> TrialUse | None:
        """Read the file; `None` if the script has not claimed its trial."""
        return _read(path, cls)


def _write(path: Path, record: Mapping[str, Any]) -> None:
    # It need not survive a power failure, so no fsync.
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
        return kind(**record)
    except (OSError, ValueError, TypeError):
        return None


def agreed(told: JobSpec, given: JobSpec) -> None:
    """Check that a script uses the job that it was started for.

    Raises:
        JobConflictError: If not; lists the differences.
    """
    different = told.differences(given)
    if different:
        raise JobConflictError(
            f"the script was started for another specification of job {told.name!r}: {different}"
        )

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
from typing import Any

from zeus.errors import JobConflictError, RunError
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._run_report import RunReport

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
    """

    notes: RunReport
    decision: Decision
    answer: Path
    timeout: float = 5.0

    def variables(self, place: Location) -> dict[str, str]:
        """Return environment variables for the script."""
        decision = self.decision
        machine = {
            "notes": self.notes.to_dict(),
            "decision": decision.to_dict(),
            "answer": str(self.answer),
            "timeout": self.timeout,
        }
        return {
            "ZEUS_JOB": decision.job,
            "ZEUS_TRIAL": decision.trial,
            "ZEUS_RECURRENCE": str(decision.recurrence),
            "ZEUS_ATTEMPT": str(decision.attempt),
            "ZEUS_BATCH_SIZE": str(decision.batch_size),
            "ZEUS_LEARNING_RATE_SCALE": repr(decision.learning_rate_scale),
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
        # It need not survive a power failure, so no fsync.
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(json.dumps(vars(self)), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answer | None:
        """Read the file; `None` if the script has reported nothing."""
        try:
            record: Any = json.loads(path.read_text(encoding="utf-8"))
            return cls(**record)
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

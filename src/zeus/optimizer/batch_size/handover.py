"""How `zeus run` tells the script that it starts which trial it is, and hears what became of it.

Everything goes through environment variables, which launchers such as `torchrun` pass on to all
processes of a job. What became of the run comes back in a small file that the first process writes.
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
from zeus.optimizer.batch_size.answers import Decision
from zeus.optimizer.batch_size.notes import Notes
from zeus.optimizer.batch_size.place import Place
from zeus.optimizer.batch_size.spec import JobSpec

VARIABLE = "ZEUS_TRIAL_NOTES"
"""Holds everything that Zeus itself needs; the others are for scripts and people."""


@dataclass(frozen=True)
class Handover:
    """What a script is told.

    Attributes:
        notes: Of the run, in which nothing is reported yet.
        decision: What it is to do.
        answer: File for what becomes of it.
        timeout: Seconds that one question to a server may take.
    """

    notes: Notes
    decision: Decision
    answer: Path
    timeout: float = 5.0

    def variables(self, place: Place) -> dict[str, str]:
        """Environment variables for the script."""
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
    def found(cls, environment: Mapping[str, str] | None = None) -> Handover | None:
        """What this process was told; `None` if it was not started by `zeus run`.

        Raises:
            RunError: If the variable does not make sense.
        """
        text = (os.environ if environment is None else environment).get(VARIABLE)
        if not text:
            return None
        try:
            record = json.loads(text)
            return cls(
                Notes.from_dict(record["notes"]),
                Decision.from_dict(record["decision"]),
                Path(record["answer"]),
                float(record["timeout"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"{VARIABLE} must be as `zeus run` has set it: {error!r}") from error

    @property
    def place(self) -> Place:
        """Where the job is kept."""
        url = self.notes.place
        is_server = url.startswith("http")
        return Place.of(
            url if is_server else None, None if is_server else url, timeout=self.timeout
        )

    @property
    def claimed(self) -> bool:
        """Whether a training in this process is the trial already."""
        return self.notes.request in _claimed

    def claim(self) -> bool:
        """Whether this is the first training in this process that wants to be the trial."""
        with _lock:
            if self.notes.request in _claimed:
                return False
            _claimed.add(self.notes.request)
            return True


# One training is one trial: a second one in the same process is none.
_claimed: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class Answer:
    """What became of a run, as its first process tells.

    Attributes:
        outcome: As `events.OUTCOMES`, if it is over; `None` if it was left before.
        reason: In words.
        epochs: How many were reported.
        time: Seconds of these; `energy` joules, `None` if a part could not be measured.
        cost: Joules of cost.
        metric: The latest.
        trial: The trial that it is; empty if it could not become one.
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
        """Put it there, whole or not at all.

        Raises:
            OSError: If that cannot be.
        """
        # Nobody needs it after a power failure, so that nothing waits for the disk.
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(json.dumps(vars(self)), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answer | None:
        """What is there; `None` if the script has said nothing."""
        try:
            record: Any = json.loads(path.read_text(encoding="utf-8"))
            return cls(**record)
        except (OSError, ValueError, TypeError):
            return None


def agreed(told: JobSpec, given: JobSpec) -> None:
    """Check that a script means the job that it was started for.

    Raises:
        JobConflictError: If not; says where they differ.
    """
    different = told.differences(given)
    if different:
        raise JobConflictError(
            f"the script was started for another specification of job {told.name!r}: {different}"
        )

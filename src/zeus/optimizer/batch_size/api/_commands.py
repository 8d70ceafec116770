"""Commands that change jobs, as values, so that many can be executed in one batch.

`scope` is the name of the only job that a command may access; `None` allows any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zeus.errors import JobLogError, JobSpecError, UnknownJobError
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._values import DEFAULT_LEASE

MAX_TRIALS = 2**31


@dataclass(frozen=True, kw_only=True)
class Command:
    """Base class of commands."""

    scope: str | None = None

    def job_name(self) -> str | None:
        """Name of the job, if the command refers to it by name."""
        return None

    def trial_key(self) -> tuple[int, int] | None:
        """Numbers of the job and the trial, if the command refers to a trial."""
        return None


@dataclass(frozen=True, kw_only=True)
class Create(Command):
    """Command for `JobsApi.create`.

    Raises:
        JobSpecError: If the job is too large, or its name cannot be part of a URL.
    """

    spec: JobSpec

    def __post_init__(self) -> None:
        _check(self.spec)

    def job_name(self) -> str:
        """Name in the specification."""
        return self.spec.name


@dataclass(frozen=True, kw_only=True)
class _OfJob(Command):
    job: str

    def job_name(self) -> str:
        """Name given with the command."""
        return self.job


@dataclass(frozen=True, kw_only=True)
class Decide(_OfJob):
    """Command for `JobsApi.decide`."""

    gpu: str
    max_power: float
    request: str
    gpus: int = 1
    retry_of: str | None = None
    lease: float = DEFAULT_LEASE
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class PutProfile(_OfJob):
    """Command for `JobsApi.put_profile`."""

    gpu: str
    batch_size: int
    gpus: int = 1
    frontier: Mapping[str, Any] | None = None
    epoch_cost: float | None = None
    load: float | None = None
    power_limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Delete(_OfJob):
    """Command for `JobsApi.delete`."""


@dataclass(frozen=True, kw_only=True)
class _OfTrial(Command):
    trial: str

    def trial_key(self) -> tuple[int, int]:
        """Numbers of the job and the trial."""
        return trial_key(self.trial)


@dataclass(frozen=True, kw_only=True)
class ReportEpoch(_OfTrial):
    """Command for `JobsApi.report_epoch`."""

    epoch: int
    time: float
    energy: float | None = None
    metric: float | None = None
    power_limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class End(_OfTrial):
    """Command for `JobsApi.end`."""

    outcome: str
    time: float = 0.0
    energy: float | None = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Renew(_OfTrial):
    """Command for `JobsApi.renew`."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Command):
    """Expire trials of a job whose lease has passed."""

    job_id: int


def trial_name(job: int, number: int) -> str:
    """Return the identifier of a trial, as clients use it."""
    return f"{job}-{number}"


def trial_key(name: object) -> tuple[int, int]:
    """Parse the identifier of a trial into the numbers of its job and the trial.

    Raises:
        UnknownJobError: If it is not a valid identifier.
    """
    if isinstance(name, str) and len(name) <= 40 and name.isascii():
        job, dash, number = name.partition("-")
        if dash and job.isdigit() and number.isdigit():
            key = int(job), int(number)
            if trial_name(*key) == name and key[0] < 2**63 and key[1] < MAX_TRIALS:
                return key
    raise UnknownJobError(f"there is no trial {str(name)[:80]!r}")


def _check(spec: JobSpec) -> None:
    try:
        values.text("name", spec.name)
    except JobLogError as error:
        raise JobSpecError(str(error)) from None
    if "/" in spec.name or spec.name in (".", ".."):
        raise JobSpecError(f"`name` must have no / and not be . or .., but got {spec.name!r}")
    bounds = {
        "batch_sizes": (spec.batch_sizes[-1], values.MAX_BATCH_SIZE),
        "max_epochs": (spec.max_epochs, values.MAX_EPOCHS),
        "window": (spec.window, values.MAX_WINDOW),
        "pruning_rounds": (spec.pruning_rounds, values.MAX_ROUNDS),
        "number of power_limits": (len(spec.power_limits), values.MAX_POWER_LIMITS),
    }
    for name, (found, most) in bounds.items():
        if found > most:
            raise JobSpecError(f"`{name} <= {most}` must hold, but got more")

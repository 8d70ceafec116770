"""What a command must fulfill before it is executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus._rules import enforce
from zeus.errors import JobConflictError, JobLogError, RunError, UnknownJobError
from zeus.frontier import Frontier
from zeus.optimizer.batch_size.api._commands import Decide, JobCommand
from zeus.optimizer.batch_size.job._share import nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec

_MAX_POINTS = 1_000  # of a stored frontier


def key_of(command: JobCommand[Any]) -> tuple[int, int] | None:
    """Return the numbers of the job and the trial, if a command refers to one that can exist."""
    try:
        return command.trial_key()
    except UnknownJobError:
        return None


def storable(text: object) -> bool:
    """Whether the store can hold a text at all."""
    return isinstance(text, str) and text.isprintable()


def check_same_job(there: JobSpec, here: JobSpec) -> None:
    """Check that a job that exists is the one that is created.

    Raises:
        JobConflictError: If it has another specification.
    """
    different = there.differences(here)
    if different:
        raise JobConflictError(
            f"job {here.name!r} exists with another specification: {different} (a changed job is "
            "a new job: give it another name, or `zeus jobs delete` the existing one)"
        )


def check_decide(spec: JobSpec, command: Decide) -> None:
    """Check the values of a command, and that replicas can share some batch size equally.

    Raises:
        JobLogError: If a value breaks its rule, or they cannot.
    """
    enforce(command, JobLogError)
    try:
        nearest_shared(spec.default_batch_size, spec.batch_sizes, command.replicas or 1)
    except RunError as error:
        raise JobLogError(f"job {spec.name!r}: {error}") from error


def checked_frontier(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a validated frontier as it is stored.

    Raises:
        FrontierError: If it breaks a rule.
    """
    points = record.get("points")
    if isinstance(points, list) and len(points) > _MAX_POINTS:
        raise JobLogError(f"a frontier has at most {_MAX_POINTS} points, but got {len(points)}")
    return Frontier.from_dict(record).to_dict()

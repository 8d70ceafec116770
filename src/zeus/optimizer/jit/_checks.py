"""Validation of the arguments of the just-in-time optimizers."""

from __future__ import annotations

from typing import Any

from zeus._rules import Number, Whole
from zeus.errors import KnobError
from zeus.optimizer.jit._optimizer import Job
from zeus.optimizer.jit._segment_lengths import SegmentLengths


def checked_lengths(wait: int, warmup: int | None, profile: int | None) -> SegmentLengths:
    """Validate numbers of steps.

    Raises:
        KnobError: If one is not a whole number, or too small.
    """
    Whole(0).check("wait_steps", wait, KnobError)
    if warmup is not None:
        Whole(0).check("warmup_steps", warmup, KnobError)
    if profile is not None:
        Whole(1).check("profile_steps", profile, KnobError)
    return SegmentLengths(wait, warmup, profile)


def checked_job(
    name: Any,
    batch_size: int | None,
    steps: int,
    run_steps: int | None = None,
    max_profile_share: float = 0.05,
) -> Job:
    """Validate the arguments about the job.

    Raises:
        KnobError: If a value is of the wrong type, or too small.
    """
    if name is not None and (not isinstance(name, str) or not name):
        raise KnobError(f"`job` must be a name that is not empty, but got {name!r}")
    if batch_size is not None:
        Whole(1).check("batch_size", batch_size, KnobError)
    Whole(1).check("job_steps", steps, KnobError)
    if run_steps is not None:
        Whole(1).check("run_steps", run_steps, KnobError)
    positive("max_profile_share", max_profile_share)
    Number(most=1).check("max_profile_share", max_profile_share, KnobError)
    return Job(name, batch_size, steps, run_steps, max_profile_share)


def positive(name: str, value: float) -> float:
    """Return the value, if it is a number above 0.

    Raises:
        KnobError: If it is not.
    """
    Number(0, above=True).check(name, value, KnobError)
    return value

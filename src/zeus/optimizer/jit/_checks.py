"""Validation of the arguments of the just-in-time optimizers."""

from __future__ import annotations

import math
from typing import Any

from zeus.errors import KnobError
from zeus.frontier._point import is_real
from zeus.optimizer.jit._optimizer import Job
from zeus.optimizer.jit._segment_lengths import SegmentLengths


def checked_lengths(wait: int, warmup: int | None, profile: int | None) -> SegmentLengths:
    """Validate numbers of steps.

    Raises:
        KnobError: If one is not a whole number, or too small.
    """
    _whole("wait_steps", wait, 0)
    if warmup is not None:
        _whole("warmup_steps", warmup, 0)
    if profile is not None:
        _whole("profile_steps", profile, 1)
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
        _whole("batch_size", batch_size, 1)
    _whole("job_steps", steps, 1)
    if run_steps is not None:
        _whole("run_steps", run_steps, 1)
    if positive("max_profile_share", max_profile_share) > 1:
        raise KnobError(f"`max_profile_share <= 1` must hold, but got {max_profile_share}")
    return Job(name, batch_size, steps, run_steps, max_profile_share)


def positive(name: str, value: float) -> float:
    """Return the value, if it is a number above 0.

    Raises:
        KnobError: If it is not.
    """
    if not is_real(value):
        raise KnobError(f"`{name}` must be a number, but got {value!r}")
    if not 0 < value < math.inf:
        raise KnobError(f"`{name} > 0` must hold, but got {value}")
    return value


def _whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise KnobError(f"`{name}` must be a whole number, but got {value!r}")
    if value < least:
        raise KnobError(f"`{name} >= {least}` must hold, but got {value}")

"""Checks whether a job's steps still match its profile."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from zeus.frontier import Point
from zeus.optimizer.jit._segment import Idle, Segment, SegmentResult

#: A step whose time or energy is off by more than this share is not the one that was profiled.
DRIFT = 0.1
#: That share where points of another run are to be compared with points of this one.
MISMATCH = 0.01
# Seconds of a check.
_CHECK_TIME = 2.0
# Consecutive checks that must agree: one may coincide with a checkpoint or a busy host.
_AGREEING = 2


def watch_drift(
    point: Point, setting: Any, *, at_once: bool
) -> Generator[Segment | Idle, SegmentResult | None, str]:
    """Check some steps of every epoch; returns the reason when they have drifted.

    Args:
        point: Expected time and energy of a step.
        setting: Setting in force meanwhile; `None` for the one before the run.
        at_once: Whether to check before the next epoch: the profile is from another run.
    """
    if at_once:
        drift = yield from check_drift(point, setting, cold=True)
        if drift:
            return drift
    while True:
        yield Idle(setting)
        drift = yield from check_drift(point, setting)
        if drift:
            return drift


def check_drift(
    point: Point, setting: Any, *, cold: bool = False, tolerance: float = DRIFT
) -> Generator[Segment, SegmentResult | None, str]:
    """Check some steps; returns the reason if they have drifted, else an empty string.

    Args:
        point: Expected time and energy of a step.
        setting: Setting in force meanwhile.
        cold: Whether the run has just begun: then the first steps do not count.
        tolerance: Share by which a step may differ.
    """
    steps = max(1, math.ceil(_CHECK_TIME / point.time))
    if cold:
        yield Segment(max(1, steps // 2), setting, measured=False)
    drift = ""
    for _ in range(_AGREEING):
        result = yield Segment(steps, setting)
        assert result is not None
        drift = _drift_message(result, point, tolerance)
        if not drift:
            break
    return drift


def _drift_message(result: SegmentResult, point: Point, tolerance: float) -> str:
    shares = {
        "time": ((result.time - result.late) / result.steps / point.time, "s"),
        "energy": (result.energy / result.steps / point.energy if point.energy else 1.0, "J"),
    }
    for what, (share, unit) in shares.items():
        if abs(share - 1) > tolerance:
            expected = getattr(point, what)
            return (
                f"a step takes {expected * share:.4g} {unit} where its profile says "
                f"{expected:.4g} {unit}"
            )
    return ""

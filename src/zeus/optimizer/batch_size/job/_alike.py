"""Detects two batch sizes that behave alike, as if a program ignored its batch size.

A program that follows its batch size takes half as many steps per epoch with twice the batch. Where
steps are counted, equal numbers of them at sizes that differ by a factor of two or more are the
evidence, together with equal time and energy, because an epoch may be defined as a number of
steps: of such pairs in the recorded traces of V100 and A40, 7 in 1,000 would agree within 2 % in
both. Where steps are not counted, time and energy alone must do, at sizes that differ more, because
large batches saturate a GPU: of pairs that differ by 8 or more, 1 in 1,000 agrees within 1 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

WARNING = "warning: "
"""Comes before a warning in the note of a trial."""

_COUNTED_FACTOR, _COUNTED_TOLERANCE = 2.0, 0.02
_UNCOUNTED_FACTOR, _UNCOUNTED_TOLERANCE = 8.0, 0.01


class EpochFigures(NamedTuple):
    """What an epoch took.

    Attributes:
        steps: Number of training steps; `None` if they were not counted.
        time: Seconds.
        energy: Joules; `None` if not measured.
    """

    steps: int | None
    time: float
    energy: float | None


def alike(batch_size: int, mine: EpochFigures, others: Mapping[int, EpochFigures]) -> str:
    """Return a warning if another batch size behaves like this one; empty if none does.

    Args:
        batch_size: Batch size of a trial.
        mine: Its latest epoch.
        others: The latest epochs at other batch sizes on the same GPUs, by batch size.
    """
    for other, figures in sorted(others.items()):
        factor = max(batch_size / other, other / batch_size)
        counted = mine.steps is not None and figures.steps is not None
        if counted and not (mine.steps == figures.steps != 1):
            continue
        least = _COUNTED_FACTOR if counted else _UNCOUNTED_FACTOR
        tolerance = _COUNTED_TOLERANCE if counted else _UNCOUNTED_TOLERANCE
        if factor >= least and _agree(mine, figures, tolerance):
            steps = f"as many steps ({mine.steps}) and " if counted else ""
            return (
                f"an epoch takes {steps}as much time and energy with batch size {batch_size} as "
                f"with {other}: the program may ignore its batch size"
            )
    return ""


def _agree(one: EpochFigures, other: EpochFigures, tolerance: float) -> bool:
    if one.energy is None or other.energy is None:
        return False
    pairs = ((one.time, other.time), (one.energy, other.energy))
    return all(abs(first - second) <= tolerance * max(first, second) for first, second in pairs)

"""How far a job has come with measuring and planning, as ranks and the solver report it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from zeus._rules import Number, Whole
from zeus.optimizer.pipeline_frequency.job._messages import MAX_CLOCKS, MAX_SECONDS

_ROUNDED = ((10, 1), (30, 5), (100, 10))  # seconds below which to round to so many
_MINUTE = 60.0


@dataclass(frozen=True)
class Progress:
    """How far a rank has come with measuring its instructions at several clocks.

    Attributes:
        steps: Number of steps measured.
        expected: Number of steps that it will take in all, about.
        clocks: Number of clocks that were visited.
        targets: Number of clocks to visit, as far as known.
        step_time: Mean seconds of a step so far; 0 before the first has ended.
    """

    steps: Annotated[int, Whole(0, 1_000_000)]
    expected: Annotated[int, Whole(0, 1_000_000)]
    clocks: Annotated[int, Whole(0, MAX_CLOCKS)]
    targets: Annotated[int, Whole(0, MAX_CLOCKS)]
    step_time: Annotated[float, Number(0, MAX_SECONDS)] = 0.0

    @property
    def left(self) -> float | None:
        """Seconds left, about; `None` until a step has ended."""
        return (self.expected - self.steps) * self.step_time if self.step_time else None

    def __str__(self) -> str:
        now = min(self.steps + 1, self.expected)
        said = f"step {now} of about {self.expected}"
        return said if self.left is None else f"{said}, {about_left(self.left)}"


def about_left(seconds: float) -> str:
    """Return in words how long something takes, such as "about 40 seconds left"."""
    for below, unit in _ROUNDED:
        if seconds < below:
            count = max(round(seconds / unit) * unit, 1)
            return f"about {count} second{'s' if count > 1 else ''} left"
    count = round(seconds / _MINUTE)
    return f"about {count} minute{'s' if count > 1 else ''} left"


def slowest(ranks: Iterable[Progress]) -> Progress | None:
    """Return the progress of the rank that takes longest: the others wait for it."""
    return max(
        ranks, key=lambda each: (each.left is None, each.left, each.expected - each.steps),
        default=None,
    )  # fmt: skip

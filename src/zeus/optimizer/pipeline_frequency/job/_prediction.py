"""What the plans that pipelines follow are expected to do to an iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zeus.frontier import Point
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._planning import Planned


@dataclass(frozen=True)
class Prediction:
    """What plans are expected to do to an iteration of all pipelines.

    Attributes:
        time: Seconds with the plans.
        energy: Joules with them.
        time_before: Seconds at the highest clocks.
        energy_before: Joules likewise.
    """

    time: float
    energy: float
    time_before: float
    energy_before: float

    @property
    def saved(self) -> float:
        """Share of the energy that is saved."""
        return 1 - self.energy / self.energy_before if self.energy_before else 0.0

    @property
    def slowdown(self) -> float:
        """Share of time by which an iteration takes longer."""
        return self.time / self.time_before - 1


def predict(
    planned: Planned,
    points: Sequence[Point],
    stragglers: Mapping[int, Straggler],
    step_time: float | None,
) -> Prediction:
    """Return what the plans that pipelines follow are expected to do.

    Args:
        planned: The plans.
        points: The one that each pipeline follows.
        stragglers: Straggler reports by pipeline: all pipelines wait for the slowest.
        step_time: Seconds of a whole step without stragglers, if known.
    """
    pipeline, expected = planned.before.pipeline, planned.expected
    pace = planned.pace(stragglers, step_time) if stragglers else 0.0
    paces = (point.time for number, point in enumerate(points) if number not in stragglers)
    after = max(pace, max(paces, default=0.0))
    waiting = pipeline.blocking_power * pipeline.gpus * pipeline.data_parallel
    energies = (point.energy + waiting * max(after - point.time, 0.0) for point in points)
    before = max(pace, expected.time)
    return Prediction(
        after,
        math.fsum(energies) / len(points),
        before,
        expected.energy + waiting * (before - expected.time),
    )

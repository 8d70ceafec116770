"""The picture of a running job: without a plan, as planned, as measured; and its total power."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.drawing._shapes import Picture
from zeus.optimizer.pipeline_frequency._gantt import (
    BELOW,
    LEFT,
    WIDTH,
    Chart,
    Gantt,
    without_tooltips,
)
from zeus.optimizer.pipeline_frequency._pipeline import Execution
from zeus.optimizer.pipeline_frequency._power_figure import power_frame, power_panel
from zeus.optimizer.pipeline_frequency._slack import critical_operations

_CYCLES = 4  # in a picture of one part


@dataclass(frozen=True)
class Timelines:
    """What is drawn of a pipeline.

    Attributes:
        before: An iteration at the highest clocks.
        plan: One by the plan.
        measured: A step as measured, if there is one, with its title.
    """

    before: Execution
    plan: Execution
    measured: tuple[str, Execution] | None = None

    def draw(self, window: tuple[float, float] | None = None, *, tooltips: bool = True) -> Picture:
        """Return the picture.

        Args:
            window: Seconds between which it is drawn; by default all of an iteration.
            tooltips: Whether each operation has one.
        """
        charts = [
            Chart("Before: every clock at its highest", self.before),
            Chart("Now: the plan", self.plan, critical_operations(self.plan)),
        ]
        if self.measured is not None:
            title, step = self.measured
            charts.append(Chart(title, step, planned=self.plan))
        gantt = Gantt(charts, 82.0, "place", window)
        shapes = gantt.shapes(LEFT)
        frame = power_frame(gantt.bottom + BELOW)
        power = power_panel(self.before, self.plan, gantt.time, frame, gantt.measure)
        name = f"{self.before.pipeline.name}: before, as planned" + (
            "" if self.measured is None else ", and as measured"
        )
        both = (*(shapes if tooltips else without_tooltips(shapes)), *power)
        return Picture(name, WIDTH, frame.height, both)

    def cycles(self) -> tuple[float, float] | None:
        """Return seconds between which a few cycles in the middle of the plan lie.

        A cycle is the time from the begin of a microbatch on the first rank to that of the next.
        """
        begins: dict[int, float] = {}
        for operation, start in zip(self.plan.pipeline.operations, self.plan.starts, strict=True):
            if operation.device == 0 and operation.microbatch is not None:
                begins.setdefault(operation.microbatch, start)
        if len(begins) <= 2 * _CYCLES:
            return None
        times = sorted(begins.values())
        middle = (len(times) - _CYCLES) // 2
        return times[middle], times[middle + _CYCLES]

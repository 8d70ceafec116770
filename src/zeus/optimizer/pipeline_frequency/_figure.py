"""Pictures of plans: the pipeline and its power before and after, to scale, and the frontier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from zeus.drawing._axes import Axis, axes
from zeus.drawing._captions import Sample, heading, legend
from zeus.drawing._shapes import Frame, Mark, Path, Picture, Shape, Text
from zeus.drawing._text import Measure, estimated_width
from zeus.drawing._units import energy_unit, time_unit
from zeus.optimizer.pipeline_frequency._gantt import BELOW, LEFT, RIGHT, WIDTH, Chart, Gantt, letter
from zeus.optimizer.pipeline_frequency._pipeline import Execution
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency._power_figure import power_frame, power_panel
from zeus.optimizer.pipeline_frequency._solver import Solution

_PANEL = 300.0  # height of the frontier's plot

_Point = tuple[float, float]


@dataclass(frozen=True)
class Others:
    """A frontier from another source, to compare with."""

    name: str = ""  # its source, for the legend
    points: Sequence[_Point] = ()  # its times (s) and energies (J)


_NO_OTHERS = Others()


def draw(
    before: Execution,
    plan: Plan,
    solution: Solution,
    others: Others = _NO_OTHERS,
    measure: Measure = estimated_width,
) -> Picture:
    """Draw the pipeline and its power before and after a plan, and the frontier of plans."""
    after = plan.execute()
    charts = Chart("Before: every clock at its highest", before), Chart("After: the plan", after)
    pipeline = Gantt(charts, 118.0, measure=measure)
    power = power_frame(pipeline.bottom + BELOW)
    top = power.height + 62.0
    height = top + _PANEL + BELOW
    frame = Frame(WIDTH, height, LEFT, RIGHT, top, BELOW, (10, 6))
    shapes = (
        *heading(
            LEFT, WIDTH - LEFT - RIGHT - 320, before.pipeline.name,
            *_summary(before, after, plan), measure=measure,
        ),
        *pipeline.shapes(WIDTH - RIGHT - 300),
        *power_panel(before, after, pipeline.time, power, measure),
        *_Frontier(before, plan, solution, others, frame=frame, measure=measure).shapes(),
    )  # fmt: skip
    return Picture(f"{before.pipeline.name}: before and after", WIDTH, height, shapes)


def _summary(before: Execution, after: Execution, plan: Plan) -> Iterator[str]:
    slower = round(100 * (after.time / before.time - 1), 1)
    speed = f"{abs(slower):.1f} % {'slower' if slower > 0 else 'faster'}" if slower else "as fast"
    less = 100 * (1 - after.energy / before.energy) if before.energy else 0.0
    yield (
        f"{abs(less):.1f} % {'less' if less >= 0 else 'more'} energy, {speed}; "
        f"proven to be at most {100 * plan.gap:.2f} % from the best at this time"
    )
    whole = before.pipeline
    letters = {
        letter(operation.instruction): operation.instruction.replace("_", " ")
        for operation in whole.operations
        if operation.device is not None
    }
    key = ", ".join(f"{letter} {instruction}" for letter, instruction in letters.items())
    gpus = whole.gpus * whole.data_parallel
    yield f"{gpus} GPUs; one that waits draws {whole.blocking_power:g} W; {key}, by microbatch"


# --- the frontier ---------------------------------------------------------------------------------


class _Frontier:
    """Energy over time of all plans, with the lower bound and the frontier to compare with."""

    def __init__(
        self,
        before: Execution,
        plan: Plan,
        solution: Solution,
        others: Others,
        *,
        frame: Frame,
        measure: Measure,
    ) -> None:
        self.before = before.time, before.energy
        self.plan, self.frame, self.measure = plan, frame, measure
        self.ours = [(point.time, point.energy) for point in solution.frontier]
        self.bound = solution.continuous.corners()
        # Points slower than the one of minimum energy are useless.
        least = min((energy for _, energy in others.points), default=0.0)
        useful = [time for time, energy in others.points if energy <= least]
        last = max([self.ours[-1][0], *useful])
        self.others = sorted(point for point in others.points if point[0] <= last)
        self.others_name = others.name
        points = [*self.ours, *self.bound, *self.others, self.before]
        times, energies = [time for time, _ in points], [energy for _, energy in points]
        plot = frame.plot
        self.x = Axis.over(times, time_unit(max(times)), plot.left, plot.right)
        self.y = Axis.over(energies, energy_unit(max(energies)), plot.bottom, plot.top)

    def at(self, point: _Point) -> _Point:
        return self.x.place(point[0]), self.y.place(point[1])

    def shapes(self) -> Iterator[Shape]:
        lines = [(f"plans ({len(self.ours)})", self.ours, Path((), "line", 2.2))]
        if len(self.others) > 1:
            lines.append((self.others_name, self.others, Path((), "other", 1.8)))
        lines.append(("proven lower bound", self.bound, Path((), "ink", 1.2, dashed=True)))
        top = self.frame.plot.top
        yield Text(LEFT, top - 34, "The frontier", 13, "ink", bold=True)
        entries: list[tuple[Sample, str]] = [(line, name) for name, _, line in lines]
        yield from legend(LEFT, top - 12, [*entries, ("chosen", "chosen")], self.measure)
        time, energy = self.x.unit.name, self.y.unit.name
        yield from axes(
            self.frame, self.x, self.y, f"time of an iteration ({time})", f"energy ({energy})"
        )
        yield from (replace(line, corners=tuple(map(self.at, at))) for _, at, line in lines)
        yield from self.marks("every clock at its highest")

    def marks(self, name: str) -> Iterator[Shape]:
        x, y = self.at(self.before)
        yield Mark(x, y, 5.5, "reference", self.words(name, self.before))
        if x + 12 + self.measure(name, 12) <= self.frame.plot.right:
            yield Text(x + 12, y + 4, name, 12, "ink")
        else:
            yield Text(x - 12, y + 4, name, 12, "ink", "end")
        chosen = self.plan.time, self.plan.energy
        yield Mark(*self.at(chosen), 5.5, "chosen", self.words(str(self.plan), chosen))

    def words(self, label: str, point: _Point) -> str:
        return f"{label}: {self.x.unit.text(point[0])}, {self.y.unit.text(point[1])}"

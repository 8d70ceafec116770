"""Pictures of plans: the pipeline before and after, to scale, and the frontier of plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from zeus.drawing._axes import Axis, axes, lower_side
from zeus.drawing._captions import Sample, heading, legend
from zeus.drawing._colors import HEAT, readable_on, shade
from zeus.drawing._shapes import Bar, Frame, Mark, Path, Picture, Shape, Text
from zeus.drawing._text import BOLD, Measure, estimated_width
from zeus.drawing._units import energy_unit, time_unit
from zeus.optimizer.pipeline_frequency._pipeline import Execution, Operation
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency._solver import Solution

_WIDTH, _LEFT, _RIGHT = 1200.0, 84.0, 36.0
_ROW, _GAP = 26.0, 4.0  # height of a device, and the space to the next
_BETWEEN = 44.0  # space between two charts
_PANEL = 300.0  # height of the frontier's plot
_BELOW = 60.0  # space below a plot, for its labels
_LETTERS = {"backward_input": "B", "backward_weight": "W", "communication": "→"}

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
    """Draw the pipeline before and after a plan, and the frontier that it was chosen from."""
    pipeline = _Pipeline(before, plan.execute(), 118.0, measure)
    top = pipeline.bottom + _BELOW + 62.0
    height = top + _PANEL + _BELOW
    frame = Frame(_WIDTH, height, _LEFT, _RIGHT, top, _BELOW, (10, 6))
    shapes = (
        *heading(
            _LEFT, _WIDTH - _LEFT - _RIGHT - 320, before.pipeline.name,
            *_summary(pipeline, plan), measure=measure,
        ),
        *pipeline.shapes("After: the plan", "rank", _WIDTH - _RIGHT - 300),
        *_Frontier(before, plan, solution, others, frame=frame, measure=measure).shapes(),
    )  # fmt: skip
    return Picture(f"{before.pipeline.name}: before and after", _WIDTH, height, shapes)


def draw_pipeline(before: Execution, after: Execution, tooltips: bool = True) -> Picture:
    """Draw the pipeline alone, before and after a plan, with a tooltip per operation or not."""
    pipeline = _Pipeline(before, after, 82.0, estimated_width)
    shapes = pipeline.shapes("Now: the plan", "place", _LEFT)
    if not tooltips:
        shapes = (replace(s, tooltip="") if isinstance(s, Bar) else s for s in shapes)
    name = f"{before.pipeline.name}: before and after"
    return Picture(name, _WIDTH, pipeline.bottom + _BELOW, tuple(shapes))


def _summary(pipeline: _Pipeline, plan: Plan) -> Iterator[str]:
    before, after = pipeline.before, pipeline.after
    slower = round(100 * (after.time / before.time - 1), 1)
    speed = f"{abs(slower):.1f} % {'slower' if slower > 0 else 'faster'}" if slower else "as fast"
    less = 100 * (1 - after.energy / before.energy) if before.energy else 0.0
    yield (
        f"{abs(less):.1f} % {'less' if less >= 0 else 'more'} energy, {speed}; "
        f"proven to be at most {100 * plan.gap:.2f} % from the best at this time"
    )
    whole = before.pipeline
    letters = {
        _letter(operation.instruction): operation.instruction.replace("_", " ")
        for operation in whole.operations
        if operation.device is not None
    }
    key = ", ".join(f"{letter} {instruction}" for letter, instruction in letters.items())
    gpus = whole.gpus * whole.data_parallel
    yield f"{gpus} GPUs; one that waits draws {whole.blocking_power:g} W; {key}, by microbatch"


# --- the pipeline ---------------------------------------------------------------------------------


class _Pipeline:
    """Two timelines of the devices, one below the other, on one time scale."""

    def __init__(self, before: Execution, after: Execution, top: float, measure: Measure) -> None:
        self.before, self.after, self.top, self.measure = before, after, top, measure
        self.rows = before.pipeline.devices * (_ROW + _GAP)
        self.second = top + self.rows + _BETWEEN
        self.bottom = self.second + self.rows
        longest = max(before.time, after.time)
        unit = time_unit(longest)
        self.time = Axis(unit, 0.0, longest / unit.size, _LEFT, _WIDTH - _RIGHT)
        powers = [
            option.power
            for execution in (before, after)
            for operation, option in zip(before.pipeline.operations, execution.options, strict=True)
            if operation.device is not None
        ]
        microbatches = [operation.microbatch or 0 for operation in before.pipeline.operations]
        self.digits = len(str(max(microbatches, default=0)))
        self.powers = before.pipeline.blocking_power, max(powers, default=0.0)

    def shapes(self, after: str, row: str, legend: float) -> Iterator[Shape]:
        yield from self.legend(legend, self.top - 60)
        yield from self.chart("Before: every clock at its highest", self.before, self.top, row)
        yield from self.chart(after, self.after, self.second, row)
        frame = Frame(_WIDTH, self.bottom + _BELOW, _LEFT, _RIGHT, self.top, _BELOW, (12, 0))
        yield from lower_side(frame, self.time, f"time ({self.time.unit.name})")

    def heat(self, watts: float) -> str:
        low, high = self.powers
        return shade((watts - low) / (high - low)) if high > low else HEAT[-1]

    def legend(self, x: float, y: float) -> Iterator[Shape]:
        width, steps = 220.0, 60
        for step in range(steps):
            left, right = x + step * width / steps, x + (step + 1) * width / steps + 0.4
            yield Bar(left, y, right, y + 12, shade(step / (steps - 1)))
        yield Bar(x + width + 24, y, x + width + 46, y + 12, "idle", "axis")
        low, high = self.powers
        yield Text(x, y - 5, "power of a GPU", 11.5, "muted")
        yield Text(x, y + 26, f"{low:.0f} W", 11.5, "muted")
        yield Text(x + width, y + 26, f"{high:.0f} W", 11.5, "muted", "end")
        yield Text(x + width + 52, y + 10, "waits", 11.5, "muted")

    def chart(self, title: str, execution: Execution, top: float, row: str) -> Iterator[Shape]:
        yield Text(_LEFT, top - 9, title, 13, "ink", bold=True)
        share = 100 * execution.waiting_energy / execution.energy if execution.energy else 0.0
        yield Text(
            _LEFT + self.measure(title, 13) * BOLD + 14,
            top - 9,
            f"{self.time.unit.text(execution.time)}, "
            f"{energy_unit(self.before.energy).text(execution.energy)}, "
            f"{share:.0f} % of it for waiting",
            12,
            "muted",
        )
        tops = [top + device * (_ROW + _GAP) for device in range(execution.pipeline.devices)]
        start, end = self.time.place(0), self.time.place(execution.time)
        for device, y in enumerate(tops):
            label = f"{row} {device}"
            yield Text(_LEFT - 10, y + _ROW / 2 + 4, label, 11.5, "muted", "end")
        yield from (Bar(start, y, end, y + _ROW, "idle") for y in tops)
        words: list[Shape] = []  # drawn on top of all bars
        for operation, bar in self.bars(execution, tops):
            yield bar
            words += self.words(operation, bar)
        yield from words
        yield Path(((end, top - 3), (end, tops[-1] + _ROW + 3)), "ink", 1.2)

    def bars(self, execution: Execution, tops: Sequence[float]) -> Iterator[tuple[Operation, Bar]]:
        for operation, option, start in zip(
            execution.pipeline.operations, execution.options, execution.starts, strict=True
        ):
            if operation.device is None:
                continue
            end = start + option.time
            left, right, top = self.time.place(start), self.time.place(end), tops[operation.device]
            clock = "" if option.frequency is None else f" at {option.frequency:g} MHz"
            yield (
                operation,
                Bar(
                    left,
                    top,
                    right,
                    top + _ROW,
                    self.heat(option.power) if option.frequency is not None else "axis",
                    "paper" if right - left > 5 else "",
                    f"{operation}{clock}: {1e3 * start:.1f} to {1e3 * end:.1f} ms, "
                    f"{option.energy:.4g} J, {option.power:.0f} W",
                ),
            )

    def words(self, operation: Operation, bar: Bar) -> Iterator[Shape]:
        """Yield the label of an operation, shortened to fit its bar, or nothing."""
        room, label, size = bar.right - bar.left, _label(operation), 11.0
        widest = label
        if self.measure(label, size) > room - 4:
            # The number alone, if the longest one would fit: else only the first bars had one.
            label, size, widest = label[1:], 8.5, "0" * self.digits
        if label and self.measure(widest, size) <= room - 1:
            color = readable_on(bar.fill) if bar.fill.startswith("#") else "ink"
            middle, line = (bar.left + bar.right) / 2, (bar.top + bar.bottom + 0.7 * size) / 2
            yield Text(middle, line, label, size, color, "middle")


def _letter(instruction: str) -> str:
    return _LETTERS.get(instruction, instruction[:1].upper())


def _label(operation: Operation) -> str:
    letter = _letter(operation.instruction)
    return letter if operation.microbatch is None else f"{letter}{operation.microbatch}"


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
        yield Text(_LEFT, top - 34, "The frontier", 13, "ink", bold=True)
        entries: list[tuple[Sample, str]] = [(line, name) for name, _, line in lines]
        yield from legend(_LEFT, top - 12, [*entries, ("chosen", "chosen")], self.measure)
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

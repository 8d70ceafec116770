"""Timelines of the ranks of a pipeline: charts below each other, on one scale of time and power."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from zeus.drawing._axes import Axis, lower_side
from zeus.drawing._colors import HEAT, readable_on, shade
from zeus.drawing._shapes import Bar, Frame, Path, Shape, Text
from zeus.drawing._text import BOLD, Measure, estimated_width
from zeus.drawing._units import energy_unit, time_unit
from zeus.optimizer.pipeline_frequency._pipeline import Execution, Operation

WIDTH, LEFT, RIGHT = 1200.0, 84.0, 36.0
BELOW = 60.0  # space below a plot, for its labels
_ROW, _GAP = 26.0, 4.0  # height of a rank, and the space to the next
_BETWEEN = 44.0  # space between two charts
_LETTERS = {
    "backward_input": "B",
    "backward_weight": "W",
    "communication": "→",
    "gradient_exchange": "X",
}


@dataclass(frozen=True)
class Chart:
    """One chart of timelines.

    Attributes:
        title: Its title.
        execution: The iteration it shows.
        marked: Numbers of operations to underline.
        planned: If the execution was measured, so that only its times are known: what was planned.
    """

    title: str
    execution: Execution
    marked: Collection[int] = ()
    planned: Execution | None = None


@dataclass(frozen=True)
class Gantt:
    """Charts of the same pipeline, one below the other.

    Attributes:
        charts: The charts, at least one that was not measured.
        top: Upper edge of the first, in pixels.
        row: What a row is called.
        window: Seconds from the beginning of the iteration between which it is drawn; by default
            all of it.
        measure: Returns the width of a text.
    """

    charts: Sequence[Chart]
    top: float
    row: str = "rank"
    window: tuple[float, float] | None = None
    measure: Measure = estimated_width

    @property
    def rows(self) -> float:
        """Height of the rows of a chart."""
        return self.charts[0].execution.pipeline.devices * (_ROW + _GAP)

    @property
    def bottom(self) -> float:
        """Lower edge of the last chart, and position of the time axis."""
        return self.top + len(self.charts) * (self.rows + _BETWEEN) - _BETWEEN

    @property
    def time(self) -> Axis:
        """The time axis."""
        longest = max(chart.execution.time for chart in self.charts)
        low, high = self.window or (0.0, longest)
        unit = time_unit(longest)
        return Axis(unit, low / unit.size, high / unit.size, LEFT, WIDTH - RIGHT)

    @property
    def powers(self) -> tuple[float, float]:
        """Watts of a GPU that waits, and the highest of one that computes."""
        pipeline = self.charts[0].execution.pipeline
        powers = [
            option.power
            for chart in self.charts
            if chart.planned is None
            for operation, option in zip(pipeline.operations, chart.execution.options, strict=True)
            if operation.device is not None
        ]
        return pipeline.blocking_power, max(powers, default=0.0)

    def shapes(self, legend: float) -> Iterator[Shape]:
        """Yield all shapes, with the legend at a position from the left."""
        time, powers = self.time, self.powers
        yield from _legend(legend, self.top - 60, powers)
        if any(chart.marked for chart in self.charts):
            x, y = legend + 320, self.top - 54
            yield Path(((x, y), (x + 22, y)), "ink", 2.2)
            yield Text(x + 28, y + 4, "has no slack", 11.5, "muted")
        for number, chart in enumerate(self.charts):
            top = self.top + number * (self.rows + _BETWEEN)
            yield from _Drawn(self, chart, top, time, powers).shapes()
        frame = Frame(WIDTH, self.bottom + BELOW, LEFT, RIGHT, self.top, BELOW, (12, 0))
        yield from lower_side(frame, time, f"time ({time.unit.name})")


def without_tooltips(shapes: Iterator[Shape]) -> Iterator[Shape]:
    """Yield the same shapes, but bars without tooltips."""
    return (replace(each, tooltip="") if isinstance(each, Bar) else each for each in shapes)


def letter(instruction: str) -> str:
    """Return the letter of an instruction in a bar."""
    return _LETTERS.get(instruction, instruction[:1].upper())


def _label(operation: Operation) -> str:
    first = letter(operation.instruction)
    return first if operation.microbatch is None else f"{first}{operation.microbatch}"


def _legend(x: float, y: float, powers: tuple[float, float]) -> Iterator[Shape]:
    width, steps = 220.0, 60
    for step in range(steps):
        left, right = x + step * width / steps, x + (step + 1) * width / steps + 0.4
        yield Bar(left, y, right, y + 12, shade(step / (steps - 1)))
    yield Bar(x + width + 24, y, x + width + 46, y + 12, "idle", "axis")
    low, high = powers
    yield Text(x, y - 5, "power of a GPU", 11.5, "muted")
    yield Text(x, y + 26, f"{low:.0f} W", 11.5, "muted")
    yield Text(x + width, y + 26, f"{high:.0f} W", 11.5, "muted", "end")
    yield Text(x + width + 52, y + 10, "waits", 11.5, "muted")


class _Drawn:
    """One chart at its position."""

    def __init__(
        self, gantt: Gantt, chart: Chart, top: float, time: Axis, powers: tuple[float, float]
    ) -> None:
        self.gantt, self.chart, self.top, self.time, self.powers = gantt, chart, top, time, powers
        pipeline = chart.execution.pipeline
        self.tops = [top + device * (_ROW + _GAP) for device in range(pipeline.devices)]
        microbatches = [operation.microbatch or 0 for operation in pipeline.operations]
        self.digits = len(str(max(microbatches, default=0)))

    def shapes(self) -> Iterator[Shape]:
        execution, measure = self.chart.execution, self.gantt.measure
        yield Text(LEFT, self.top - 9, self.chart.title, 13, "ink", bold=True)
        beside = LEFT + measure(self.chart.title, 13) * BOLD + 14
        yield Text(beside, self.top - 9, self.about(), 12, "muted")
        for device, y in enumerate(self.tops):
            label = f"{self.gantt.row} {device}"
            yield Text(LEFT - 10, y + _ROW / 2 + 4, label, 11.5, "muted", "end")
        start, end = self.time.place(0), self.time.place(execution.time)
        yield from (Bar(start, y, end, y + _ROW, "idle") for y in self.tops)
        words: list[Shape] = []  # drawn on top of all bars
        for number, operation, bar in self.bars():
            yield bar
            words += self.words(operation, bar)
            if number in self.chart.marked:
                line = bar.bottom + 1.8
                words.append(Path(((bar.left + 0.5, line), (bar.right - 0.5, line)), "ink", 2.2))
        yield from words
        if execution.time <= self.time.high * self.time.unit.size * (1 + 1e-9):
            yield Path(((end, self.top - 3), (end, self.tops[-1] + _ROW + 3)), "ink", 1.2)

    def about(self) -> str:
        execution = self.chart.execution
        said = self.time.unit.text(execution.time)
        if self.chart.planned is not None:
            return f"{said}, {self.time.unit.text(self.chart.planned.time)} by the plan"
        share = 100 * execution.waiting_energy / execution.energy if execution.energy else 0.0
        unit = energy_unit(self.gantt.charts[0].execution.energy)
        return f"{said}, {unit.text(execution.energy)}, {share:.0f} % of it for waiting"

    def bars(self) -> Iterator[tuple[int, Operation, Bar]]:
        execution = self.chart.execution
        first, last = self.time.low * self.time.unit.size, self.time.high * self.time.unit.size
        for number, (operation, option, start) in enumerate(
            zip(execution.pipeline.operations, execution.options, execution.starts, strict=True)
        ):
            end = start + option.time
            if operation.device is None or end <= first or start >= last:
                continue
            left, right = self.time.place(start), self.time.place(end)
            top = self.tops[operation.device]
            edge = "paper" if right - left > 5 else ""
            fill = self.heat(option.power) if option.setting else "axis"
            said = self.tooltip(number, operation)
            yield number, operation, Bar(left, top, right, top + _ROW, fill, edge, said)

    def tooltip(self, number: int, operation: Operation) -> str:
        execution, planned = self.chart.execution, self.chart.planned
        option, start = execution.options[number], execution.starts[number]
        lasts = f"{1e3 * start:.1f} to {1e3 * (start + option.time):.1f} ms"
        if planned is not None:
            begins, seconds = planned.starts[number], planned.options[number].time
            return (
                f"{operation}: {lasts}; by the plan {1e3 * begins:.1f} to "
                f"{1e3 * (begins + seconds):.1f} ms"
            )
        setting = f" at {option.setting}" if option.setting else ""
        return f"{operation}{setting}: {lasts}, {option.energy:.4g} J, {option.power:.0f} W"

    def heat(self, watts: float) -> str:
        low, high = self.powers
        return shade((watts - low) / (high - low)) if high > low else HEAT[-1]

    def words(self, operation: Operation, bar: Bar) -> Iterator[Shape]:
        """Yield the label of an operation, shortened to fit its bar, or nothing."""
        measure = self.gantt.measure
        room, label, size = bar.right - bar.left, _label(operation), 11.0
        widest = label
        if measure(label, size) > room - 4:
            # The number alone, if the longest one would fit: else only the first bars had one.
            label, size, widest = label[1:], 8.5, "0" * self.digits
        if label and measure(widest, size) <= room - 1:
            color = readable_on(bar.fill) if bar.fill.startswith("#") else "ink"
            middle, line = (bar.left + bar.right) / 2, (bar.top + bar.bottom + 0.7 * size) / 2
            yield Text(middle, line, label, size, color, "middle")

"""Pictures of plans: the pipeline before and after, to scale, and the frontier behind the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from zeus.errors import PipelineError
from zeus.frontier.axes import round_values
from zeus.optimizer.pipeline_frequency.drawing import (
    AXIS,
    GRID,
    INK,
    MUTED,
    PAPER,
    Box,
    Disc,
    Drawing,
    Line,
    Shape,
    Text,
    readable_on,
    shade,
    text_width,
)
from zeus.optimizer.pipeline_frequency.pipeline import Execution, Operation
from zeus.optimizer.pipeline_frequency.plan import Plan
from zeus.optimizer.pipeline_frequency.solver import Solution

KINDS = (".svg", ".png")

_WIDTH, _LEFT, _RIGHT = 1200.0, 84.0, 36.0
_ROW, _GAP = 26.0, 4.0  # height of a rank, and the space to the next
_PANEL = 300.0  # height of the frontier's plot
# From little to much power; told apart with any kind of colour vision, and in grey.
_HEAT = ("#fdf0d5", "#fbc37a", "#ef7f4f", "#c5364f", "#7a1450")
_WAITING = "#eef1f5"
_OURS, _BOUND, _OTHER, _CHOSEN = "#2464c9", "#7fa8e0", "#7d8896", "#c2410c"
_LETTERS = {"backward_input": "B", "backward_weight": "W", "communication": "→"}

Place = tuple[float, float]


@dataclass(frozen=True)
class Others:
    """A frontier that somebody else states.

    Attributes:
        name: Who.
        places: Times (s) and energies (J).
    """

    name: str = ""
    places: Sequence[Place] = ()


@dataclass(frozen=True)
class _Scale:
    """From a quantity to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


NOBODY = Others()


def draw(
    before: Execution,
    plan: Plan,
    solution: Solution,
    others: Others = NOBODY,
) -> Drawing:
    """The whole picture.

    Args:
        before: The iteration without a plan.
        plan: The plan chosen.
        solution: What it was chosen from.
        others: A frontier to compare with.
    """
    after = plan.execute()
    rows = before.pipeline.devices * (_ROW + _GAP)
    first, second = 118.0, 118.0 + rows + 44.0
    plot = second + rows + 96.0
    drawing = Drawing(_WIDTH, plot + _PANEL + 64.0, f"{before.pipeline.name}: before and after")
    time = _Scale(0.0, max(before.time, after.time), _LEFT, _WIDTH - _RIGHT)
    heat = _Heat.of(before, after)
    drawing.add(*_heading(before, after, plan))
    drawing.add(*heat.legend(_WIDTH - _RIGHT - 300.0, 62.0))
    drawing.add(*_gantt("Before: every clock at its highest", before, first, time, heat))
    drawing.add(*_gantt("After: the plan", after, second, time, heat))
    drawing.add(*_time_axis(time, second + rows))
    drawing.add(*_Frontier(before, plan, solution, others, plot).shapes())
    return drawing


def draw_pipeline(before: Execution, after: Execution, tooltips: bool = True) -> Drawing:
    """The pipeline alone, without and with a plan.

    Args:
        before: The iteration without a plan.
        after: The same with it.
        tooltips: Whether each operation tells more to those who point at it.
    """
    rows = before.pipeline.devices * (_ROW + _GAP)
    first, second = 82.0, 82.0 + rows + 44.0
    drawing = Drawing(_WIDTH, second + rows + 36.0, f"{before.pipeline.name}: before and after")
    time = _Scale(0.0, max(before.time, after.time), _LEFT, _WIDTH - _RIGHT)
    heat = _Heat.of(before, after)
    drawing.add(*heat.legend(_WIDTH - _RIGHT - 300.0, 22.0))
    drawing.add(*_gantt("Before: every clock at its highest", before, first, time, heat))
    drawing.add(*_gantt("Now: the plan", after, second, time, heat))
    drawing.add(*_time_axis(time, second + rows))
    if not tooltips:
        drawing.shapes = [
            replace(shape, tooltip="") if isinstance(shape, Box) else shape
            for shape in drawing.shapes
        ]
    return drawing


def kind_of(name: str) -> str:
    """The kind of picture that a file's name asks for.

    Raises:
        PipelineError: If it is none of them.
    """
    for kind in KINDS:
        if name.lower().endswith(kind):
            return kind
    raise PipelineError(f"a picture's name must end in {' or '.join(KINDS)}, but got {name!r}")


# --- the pipeline ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Heat:
    """Colours of powers."""

    low: float
    high: float

    @classmethod
    def of(cls, before: Execution, after: Execution) -> _Heat:
        powers = [
            option.power
            for execution in (before, after)
            for operation, option in zip(before.pipeline.operations, execution.options, strict=True)
            if operation.device is not None
        ]
        return cls(before.pipeline.blocking_power, max(powers, default=0.0))

    def __call__(self, watts: float) -> str:
        if self.high <= self.low:
            return _HEAT[-1]
        return shade((watts - self.low) / (self.high - self.low), _HEAT)

    def legend(self, x: float, y: float) -> Iterator[Shape]:
        width, steps = 220.0, 60
        for step in range(steps):
            share = step / (steps - 1)
            colour = self(self.low + share * (self.high - self.low))
            yield Box(x + step * width / steps, y, width / steps + 0.4, 12, colour)
        yield Text(x, y - 5, "power of a GPU", 11, MUTED)
        for watts, anchor in ((self.low, "start"), (self.high, "end")):
            at = x if anchor == "start" else x + width
            yield Text(at, y + 25, f"{watts:.0f} W", 11, MUTED, "start" if at == x else "end")
        yield Box(x + width + 24, y, 22, 12, _WAITING, AXIS)
        yield Text(x + width + 52, y + 10, "waits", 11, MUTED)


def _heading(before: Execution, after: Execution, plan: Plan) -> Iterator[Shape]:
    pipeline = before.pipeline
    yield Text(_LEFT, 34, _short(pipeline.name, 70), 18, INK, bold=True)
    slower = round(100 * (after.time / before.time - 1), 1)
    speed = f"{abs(slower):.1f} % {'slower' if slower > 0 else 'faster'}" if slower else "as fast"
    less = 100 * (1 - after.energy / before.energy) if before.energy else 0.0
    yield Text(
        _LEFT,
        56,
        f"{abs(less):.1f} % {'less' if less >= 0 else 'more'} energy, "
        f"{speed}; proven to be at most {100 * plan.gap:.2f} % from the best at this time",
        13,
        MUTED,
    )
    gpus = pipeline.gpus * pipeline.data_parallel
    letters = {
        _letter(operation.instruction): operation.instruction.replace("_", " ")
        for operation in pipeline.operations
        if operation.device is not None
    }
    key = ", ".join(f"{letter} {instruction}" for letter, instruction in letters.items())
    yield Text(
        _LEFT,
        75,
        f"{gpus} GPUs; one that waits draws {pipeline.blocking_power:g} W; {key}, by microbatch",
        12,
        MUTED,
    )


def _gantt(
    title: str, execution: Execution, top: float, scale: _Scale, heat: _Heat
) -> Iterator[Shape]:
    pipeline = execution.pipeline
    yield Text(_LEFT, top - 9, title, 13, INK, bold=True)
    energy = f"{execution.energy:,.0f}".replace(",", " ")
    share = 100 * execution.waiting_energy / execution.energy if execution.energy else 0.0
    yield Text(
        _LEFT + text_width(title, 13) * 1.1 + 14,
        top - 9,
        f"{execution.time:.4g} s, {energy} J, {share:.0f} % of it for waiting",
        12,
        MUTED,
    )
    tops = [top + device * (_ROW + _GAP) for device in range(pipeline.devices)]
    for device, y in enumerate(tops):
        yield Text(_LEFT - 10, y + _ROW / 2 + 4, f"rank {device}", 11.5, MUTED, "end")
        yield Box(scale(0), y, scale(execution.time) - scale(0), _ROW, _WAITING)
    for operation, option, start in zip(
        pipeline.operations, execution.options, execution.starts, strict=True
    ):
        if operation.device is None:
            continue
        x, end, y = scale(start), scale(start + option.time), tops[operation.device]
        colour = heat(option.power) if option.frequency is not None else "#d5dbe3"
        clock = "" if option.frequency is None else f" at {option.frequency:g} MHz"
        yield Box(
            x,
            y,
            end - x,
            _ROW,
            colour,
            PAPER if end - x > 5 else "",
            f"{operation}{clock}: {1e3 * start:.1f} to {1e3 * (start + option.time):.1f} ms, "
            f"{option.energy:.4g} J, {option.power:.0f} W",
        )
        label = _label(operation)
        if text_width(label, 11) < end - x - 6:
            yield Text((x + end) / 2, y + _ROW / 2 + 4, label, 11, readable_on(colour), "middle")
        elif text_width(label[1:], 9.5) < end - x - 2 and len(label) > 1:
            yield Text(
                (x + end) / 2, y + _ROW / 2 + 3.5, label[1:], 9.5, readable_on(colour), "middle"
            )
    x = scale(execution.time)
    yield Line(((x, top - 3), (x, tops[-1] + _ROW + 3)), INK, 1.2)


def _letter(instruction: str) -> str:
    return _LETTERS.get(instruction, instruction[:1].upper())


def _label(operation: Operation) -> str:
    letter = _letter(operation.instruction)
    return letter if operation.microbatch is None else f"{letter}{operation.microbatch}"


def _time_axis(scale: _Scale, top: float) -> Iterator[Shape]:
    yield Line(((scale.start, top + 4), (scale.end, top + 4)), AXIS)
    for value, label in round_values(0, scale.high, 12):
        yield Line(((scale(value), top + 4), (scale(value), top + 9)), AXIS)
        yield Text(scale(value), top + 23, label, 11.5, MUTED, "middle")
    yield Text(_LEFT - 26, top + 23, "s", 11.5, MUTED, "end")


# --- the frontier ---------------------------------------------------------------------------------


class _Frontier:
    """Energy over time of all plans, with the bound and whatever is compared with."""

    def __init__(
        self,
        before: Execution,
        plan: Plan,
        solution: Solution,
        others: Others,
        top: float,
    ) -> None:
        self.before = before.time, before.energy
        self.plan = plan
        self.ours = [(point.time, point.energy) for point in solution.frontier]
        self.bound = solution.continuous.corners()
        # Slower points than the one of least energy are of no use to anyone.
        least = min((energy for _, energy in others.places), default=0.0)
        useful = [time for time, energy in others.places if energy <= least]
        last = max([self.ours[-1][0], *useful])
        self.others = sorted(place for place in others.places if place[0] <= last)
        self.others_name = others.name
        self.top = top
        places = [*self.ours, *self.bound, *self.others, self.before]
        times, energies = [time for time, _ in places], [energy for _, energy in places]
        bottom = top + _PANEL
        self.x = _scale(min(times), max(times), _LEFT, _WIDTH - _RIGHT)
        self.y = _scale(min(energies), max(energies), bottom, top)

    def at(self, place: Place) -> Place:
        return self.x(place[0]), self.y(place[1])

    def shapes(self) -> Iterator[Shape]:
        yield Text(_LEFT, self.top - 34, "The frontier", 13, INK, bold=True)
        yield from self._axes()
        yield Line(tuple(map(self.at, self.bound)), _BOUND, 1.5, dashed=True)
        if len(self.others) > 1:
            yield Line(tuple(map(self.at, self.others)), _OTHER, 1.8)
        yield Line(tuple(map(self.at, self.ours)), _OURS, 2.2)
        chosen = self.plan.time, self.plan.energy
        before = self.at(self.before)
        yield Disc(*before, 5.5, INK, tooltip=_words("every clock at its highest", self.before))
        side: float = 12 if before[0] < _WIDTH - 320 else -12
        yield Text(
            before[0] + side,
            before[1] + 4,
            "every clock at its highest",
            12,
            INK,
            "start" if side > 0 else "end",
        )
        yield Disc(*self.at(chosen), 6.5, _CHOSEN, tooltip=_words(str(self.plan), chosen))
        yield from self._legend()

    def _axes(self) -> Iterator[Shape]:
        bottom = self.top + _PANEL
        for value, label in round_values(self.x.low, self.x.high, 10):
            yield Line(((self.x(value), self.top), (self.x(value), bottom)), GRID)
            yield Text(self.x(value), bottom + 18, label, 11.5, MUTED, "middle")
        kilo = self.y.high >= 10_000
        size = 1e3 if kilo else 1.0
        for value, label in round_values(self.y.low / size, self.y.high / size, 6):
            y = self.y(value * size)
            yield Line(((_LEFT, y), (_WIDTH - _RIGHT, y)), GRID)
            yield Text(_LEFT - 9, y + 4, label, 11.5, MUTED, "end")
        yield Line(((_LEFT, bottom), (_WIDTH - _RIGHT, bottom)), AXIS)
        yield Line(((_LEFT, self.top), (_LEFT, bottom)), AXIS)
        middle = (self.top + bottom) / 2
        yield Text(_LEFT - 58, middle, f"energy ({'kJ' if kilo else 'J'})", 12, INK, "middle",
                   upright=True)  # fmt: skip
        yield Text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 40, "time of an iteration (s)", 12, INK,
                   "middle")  # fmt: skip

    def _legend(self) -> Iterator[Shape]:
        entries: list[tuple[str, Callable[[float, float], Shape]]] = [
            (
                f"plans ({len(self.ours)})",
                lambda x, y: Line(((x, y), (x + 20, y)), _OURS, 2.2),
            ),
            (
                "proven lower bound",
                lambda x, y: Line(((x, y), (x + 20, y)), _BOUND, 1.5, dashed=True),
            ),
        ]
        if len(self.others) > 1:
            entries.append(
                (self.others_name, lambda x, y: Line(((x, y), (x + 20, y)), _OTHER, 1.8))
            )
        entries.append(("chosen", lambda x, y: Disc(x + 12, y, 5.5, _CHOSEN)))
        x, y = _LEFT, self.top - 14
        for label, mark in entries:
            yield mark(x, y - 4)
            yield Text(x + 26, y, label, 12, MUTED)
            x += 26 + text_width(label, 12) + 30


def _scale(low: float, high: float, start: float, end: float) -> _Scale:
    margin = 0.06 * (high - low) or 0.5 * high or 1.0
    return _Scale(low - margin, high + margin, start, end)


def _words(label: str, place: Place) -> str:
    return f"{label}: {place[0]:.4g} s, {place[1]:.6g} J"


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else "…" + text[1 - longest :]

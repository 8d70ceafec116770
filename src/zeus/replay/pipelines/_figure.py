"""A picture of a recording: time and energy of an iteration under each approach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from zeus.drawing._axes import Axis, axes
from zeus.drawing._captions import Sample, heading, legend
from zeus.drawing._shapes import Frame, Kind, Mark, Path, Picture, Shape
from zeus.drawing._text import Measure, estimated_width
from zeus.drawing._units import Unit, energy_unit
from zeus.replay.pipelines._study import OURS, RECORDED, Point, Study

_FRAME = Frame(860, 470, 84, 28, 130, 60, (8, 6))
_LONGEST = 1.25  # times the fastest run: beyond, nothing is drawn
_MARKS: Mapping[str, Kind] = {
    RECORDED: "other",
    "one power limit": "stopped",
    "a power limit for each stage": "failed",
}
_LINE = Path((), "line", 2.0)


def draw(study: Study, measure: Measure = estimated_width) -> Picture:
    """Draw what each approach takes: recorded schedules, power limits, and our plans.

    Args:
        study: The recording.
        measure: Returns the width of a text.
    """
    fastest = min(time for points in study.points.values() for time, _ in points)
    shown = {
        name: sorted(point for point in points if point[0] <= _LONGEST * fastest)
        for name, points in study.points.items()
    }
    left_out = sum(len(study.points[name]) - len(shown[name]) for name in shown if name != OURS)
    recording = study.recording
    lines = [
        f"{recording.ranks} x {recording.board.name}, {recording.stages} stages, "
        f"{recording.microbatches} microbatches; measured, but our plans by a model fitted to that"
    ]
    if left_out:
        lines.append(f"not shown: {left_out} runs that take over 25 % longer than the fastest")
    room = _FRAME.width - _FRAME.left - _FRAME.right
    shapes = (
        *heading(_FRAME.left, room, recording.name, *lines, measure=measure),
        *_plot(shown),
        *legend(_FRAME.left, 110, _entries(shown), measure),
    )
    name = f"{recording.name}: time and energy of an iteration under each approach"
    return Picture(name, _FRAME.width, _FRAME.height, shapes)


def _entries(shown: Mapping[str, list[Point]]) -> Iterator[tuple[Sample, str]]:
    for name, points in shown.items():
        if points:
            yield (_LINE if name == OURS else _MARKS[name]), name


def _plot(shown: Mapping[str, list[Point]]) -> Iterator[Shape]:
    plot = _FRAME.plot
    times = [time for points in shown.values() for time, _ in points]
    energies = [energy for points in shown.values() for _, energy in points]
    x = Axis.over(times, Unit("s", 1.0), plot.left, plot.right)
    y = Axis.over(energies, energy_unit(float(np.median(energies))), plot.bottom, plot.top)
    yield from axes(
        _FRAME,
        x,
        y,
        f"time of an iteration ({x.unit.name})",
        f"energy of an iteration, all GPUs ({y.unit.name})",
    )
    ours = shown[OURS]
    yield Path(tuple((x.place(t), y.place(e)) for t, e in ours), _LINE.color, _LINE.width)
    for name, kind in _MARKS.items():
        for time, energy in shown.get(name, ()):
            tooltip = f"{name}: {x.unit.text(time)}, {y.unit.text(energy)}"
            yield Mark(x.place(time), y.place(energy), 4.0, kind, tooltip)

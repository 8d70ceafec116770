"""Picture of the total power over an iteration, before and after a plan, with peaks and swing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from zeus.drawing._axes import Axis, axes
from zeus.drawing._captions import legend
from zeus.drawing._shapes import Frame, Path, Shape, Text
from zeus.drawing._text import Measure
from zeus.drawing._units import Unit
from zeus.optimizer.pipeline_frequency._gantt import BELOW, LEFT, RIGHT, WIDTH
from zeus.optimizer.pipeline_frequency._pipeline import Execution
from zeus.optimizer.pipeline_frequency._total_power import TotalPower, total_power

_HEIGHT, _ABOVE = 130.0, 62.0  # of the plot, and space above it for its title
_UNITS = (Unit("MW", 1e6), Unit("kW", 1e3), Unit("W", 1.0))


def power_frame(top: float) -> Frame:
    """Return the frame of the plot, below charts that end at a position."""
    top += _ABOVE
    return Frame(WIDTH, top + _HEIGHT + BELOW, LEFT, RIGHT, top, BELOW, (12, 4))


def power_panel(
    before: Execution, after: Execution, time: Axis, frame: Frame, measure: Measure
) -> Iterator[Shape]:
    """Yield the power of all GPUs at every moment, on the time scale of the charts above it.

    Args:
        before: Execution without a plan.
        after: Execution under the plan.
        time: Axis of the charts above.
        frame: Frame of the plot.
        measure: Returns the width of a text.
    """
    powers = total_power(before), total_power(after)
    highest = max(power.peak for power in powers)
    unit = next((unit for unit in _UNITS if highest >= 2 * unit.size), _UNITS[-1])
    plot = frame.plot
    watts = Axis(unit, 0.0, 1.09 * (highest or 1.0) / unit.size, plot.bottom, plot.top)
    lines = Path((), "muted", 1.2), Path((), "line", 1.8)
    yield Text(plot.left, plot.top - 34, "Power of all GPUs", 13, "ink", bold=True)
    entries = [
        (line, f"{name}: at most {unit.text(power.peak)}, swing {unit.text(power.swing)}")
        for name, line, power in zip(("before", "after"), lines, powers, strict=True)
    ]
    yield from legend(plot.left, plot.top - 12, entries, measure)
    yield from axes(frame, time, watts, f"time ({time.unit.name})", f"power ({unit.name})")
    for line, power in zip(lines, powers, strict=True):
        yield Path(tuple(_corners(power, time, watts)), line.color, line.width)
    end = time.place(after.time)
    for level in (powers[1].peak, powers[1].low):
        y = watts.place(level)
        yield Path(((time.place(0), y), (end, y)), "line", 1.0, dashed=True)


def _corners(power: TotalPower, time: Axis, watts: Axis) -> Iterator[tuple[float, float]]:
    """Yield the corners of a line of steps, where it is within the time axis."""
    first, last = time.low * time.unit.size, time.high * time.unit.size
    for (start, end), level in zip(pairwise(power.times), power.watts, strict=True):
        if end > first and start < last:
            y = watts.place(level)
            yield time.place(start), y
            yield time.place(end), y

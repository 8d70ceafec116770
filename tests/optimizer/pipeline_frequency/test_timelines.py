"""The picture of a running job: timelines and total power on one scale, and a part of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.present import present

from zeus.drawing._shapes import Bar, Path, Text
from zeus.drawing._svg import svg
from zeus.optimizer.pipeline_frequency import build, solve, total_power
from zeus.optimizer.pipeline_frequency._slack import critical_operations
from zeus.optimizer.pipeline_frequency._timelines import Timelines


def timelines(profile, microbatches=4, measured=True):
    pipeline = build(profile, "1f1b", microbatches, 80.0, communication=0.01)
    plan = solve(pipeline, 30).plans[0].execute()
    step = replace(plan, starts=tuple(1.1 * start for start in plan.starts), time=1.1 * plan.time)
    before = pipeline.at_highest_frequency()
    return Timelines(before, plan, ("Step 7, measured", step) if measured else None)


def bars(picture):
    return [shape for shape in picture.shapes if isinstance(shape, Bar) and shape.tooltip]


def words(picture):
    return [shape.text for shape in picture.shapes if isinstance(shape, Text)]


def test_measured_times_are_beside_the_planned_ones(profile):
    drawn = timelines(profile)
    on_ranks = [each for each in drawn.plan.pipeline.operations if each.device is not None]
    picture = drawn.draw()
    assert len(bars(picture)) == 3 * len(on_ranks)
    measured = [bar for bar in bars(picture) if "by the plan" in bar.tooltip]
    assert len(measured) == len(on_ranks)
    assert all(" J" not in bar.tooltip for bar in measured), "its energy is not known"
    assert "Step 7, measured" in words(picture)
    assert len(bars(timelines(profile, measured=False).draw())) == 2 * len(on_ranks)
    silent = drawn.draw(tooltips=False)
    assert bars(silent) == []
    assert len(silent.shapes) == len(picture.shapes)
    assert "nan" not in svg(picture)


def test_operations_without_slack_are_underlined(profile):
    drawn = timelines(profile)
    operations = drawn.plan.pipeline.operations
    critical = [n for n in critical_operations(drawn.plan) if operations[n].device is not None]
    lines = [
        shape
        for shape in drawn.draw().shapes
        if isinstance(shape, Path) and (shape.color, shape.width) == ("ink", 2.2)
    ]
    assert 0 < len(critical) < len(operations)
    assert len(lines) == len(critical) + 1, "and one in the legend"


def test_total_power_is_below_on_the_same_time_scale(profile):
    drawn = timelines(profile, measured=False)
    power, picture = total_power(drawn.plan), drawn.draw()
    (line,) = (
        shape
        for shape in picture.shapes
        if isinstance(shape, Path) and shape.color == "line" and len(shape.corners) > 2
    )
    middle = picture.height / 3
    ends = [bar.right for bar in bars(picture) if bar.top > middle]  # those of the plan
    assert line.corners[-1][0] == pytest.approx(max(ends))
    assert line.corners[0][0] == pytest.approx(84)
    assert any(f"after: at most {power.peak:.4g} W" in text for text in words(picture))


def test_of_many_microbatches_a_few_cycles_are_drawn(profile):
    drawn = timelines(profile, 40)
    start, end = present(drawn.cycles())
    begins = [
        begin
        for operation, begin in zip(drawn.plan.pipeline.operations, drawn.plan.starts, strict=True)
        if (operation.device, operation.instruction) == (0, "forward")
    ]
    assert sum(start <= begin < end for begin in begins) == 4
    assert 0.3 * drawn.plan.time < start < end < 0.7 * drawn.plan.time
    shown = bars(drawn.draw((start, end)))
    inside = [
        1
        for execution in (drawn.before, drawn.plan, present(drawn.measured)[1])
        for operation, option, begin in zip(
            execution.pipeline.operations, execution.options, execution.starts, strict=True
        )
        if operation.device is not None and begin < end and begin + option.time > start
    ]
    assert len(shown) == len(inside) < 100
    assert all(84 <= bar.left <= bar.right <= 1200 - 36 for bar in shown)
    lines = [shape for shape in drawn.draw((start, end)).shapes if isinstance(shape, Path)]
    (power,) = (line for line in lines if line.color == "line" and len(line.corners) > 2)
    assert len(power.corners) < 200, "only what is within"
    assert timelines(profile, 8).cycles() is None

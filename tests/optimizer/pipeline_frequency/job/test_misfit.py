"""How well graphs predict the steps that were seen."""

from __future__ import annotations

import pytest

from zeus.optimizer.pipeline_frequency import Option, Pipeline
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes
from zeus.optimizer.pipeline_frequency.job._misfit import misfit


def graph(message: float) -> Pipeline:
    pipeline = Pipeline(2, 0.0)
    first = pipeline.add("forward", [Option(1, 9.0, 1.0)], device=0)
    there = pipeline.add_fixed("communication", message, after=[first])
    second = pipeline.add("forward", [Option(1, 9.0, 1.0)], device=1, after=[there])
    last = pipeline.add("backward", [Option(1, 9.0, 1.0)], device=1, after=[second])
    back = pipeline.add_fixed("communication", message, after=[last])
    pipeline.add("backward", [Option(1, 9.0, 1.0)], device=0, after=[back])
    return pipeline


def test_a_graph_is_compared_with_the_times_of_the_step_itself():
    # Computations of 1, 2, 3 and 4 s, messages of 0.5 s; the second clock is ahead.
    here = StepTimes(7, (0.0, 7.0), (1.0, 11.0))
    there = StepTimes(7, (101.5, 103.5), (103.5, 106.5))
    assert misfit(graph(0.5), {0: [[here], [there]]}) == pytest.approx(0.0)
    assert misfit(graph(0.0), {0: [[here], [there]]}) == pytest.approx(1.0 / 16.0)


def test_without_a_step_that_all_places_saw_nothing_is_known():
    here, there = StepTimes(7, (0.0, 7.0), (1.0, 11.0)), StepTimes(8, (1.5, 3.5), (3.5, 6.5))
    assert misfit(graph(0.5), {0: [[here], [there]]}) is None
    assert misfit(graph(0.5), {0: [[here], []]}) is None
    assert misfit(graph(0.5), {}) is None

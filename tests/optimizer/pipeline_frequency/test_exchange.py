"""The reserve of a plan is given to the computations that need it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.optimizer.pipeline_frequency.test_reserve import ratios
from tests.present import present

from zeus.optimizer.pipeline_frequency import Option, Pipeline, solve
from zeus.optimizer.pipeline_frequency import _reserve as reserve
from zeus.optimizer.pipeline_frequency._exchange import exchanged
from zeus.optimizer.pipeline_frequency._reserve import (
    MEAN_EXCESS,
    TAIL_EXCESS,
    Variation,
    solve_robust,
)


def options(seconds: float) -> list[Option]:
    """Slower and cheaper at lower clocks."""
    return [
        Option(clock, seconds * 1410 / clock, 300 * seconds * (clock / 1410) ** 1.5)
        for clock in range(1410, 900, -15)
    ]


def mean_time(pipeline: Pipeline, chosen, factors) -> float:
    """Mean seconds of an iteration, operation by operation."""
    times = []
    for scenario in range(factors.shape[1]):
        ends: list[float] = []
        for at, operation in enumerate(pipeline.operations):
            start = max((ends[other] for other in operation.after), default=0.0)
            ends.append(start + chosen[at].time * factors[at, scenario])
        times.append(max(ends))
    return float(np.mean(times))


def test_only_what_is_never_late_is_slowed():
    """Of two operations beside a long one, one varies so much that it may not be slower."""
    pipeline = Pipeline(3, 80.0)
    for seconds in (1.2, 1.0, 1.0):
        pipeline.add("forward", options(seconds), device=len(pipeline.operations))
    factors = np.ones((3, 200))
    factors[2, ::4] = 1.2
    fastest = solve(pipeline, 40).frontier.fastest.knob
    highest = [operation.options[0] for operation in pipeline.operations]
    mean = 1.002 * mean_time(pipeline, highest, factors)
    found = exchanged(fastest, factors, mean, 2.0)
    assert found is not None
    assert present(found[1].frequency) < 1200
    assert present(found[2].frequency) > 1380
    assert mean_time(pipeline, found, factors) <= mean


def test_there_is_none_if_the_highest_clocks_take_too_long():
    pipeline = Pipeline(1, 80.0)
    pipeline.add("forward", options(1.0), device=0)
    plan = solve(pipeline, 40).frontier.fastest.knob
    assert exchanged(plan, np.ones((1, 8)), 0.9, 0.9) is None


@pytest.mark.parametrize("shared", [0.0, 1.0], ids=["each for itself", "microbatches"])
def test_the_fastest_plan_saves_more_and_keeps_its_time(small, shared, monkeypatch):
    found = solve_robust(small(), Variation(0.05, shared), 40)
    monkeypatch.setattr(reserve, "exchanged", lambda *_: None)
    without = solve_robust(small(), Variation(0.05, shared), 40)
    fastest = found.solution.frontier.fastest
    assert fastest.energy < without.solution.frontier.fastest.energy
    mean, tail = ratios(fastest.knob, 0.05, bool(shared))
    assert mean <= 1 + MEAN_EXCESS + 0.001
    assert tail <= 1 + TAIL_EXCESS + 0.008
    assert fastest.knob.lower_bound <= fastest.knob.energy
    assert fastest.knob.execute().time == pytest.approx(fastest.knob.time)

"""Total power over an iteration: every moment, every GPU, waiting included."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from tests.optimizer.pipeline_frequency.graphs import pipelines

from zeus.optimizer.pipeline_frequency import Option, Pipeline, build, total_power


def test_a_pipeline_of_two_ranks_by_hand():
    pipeline = Pipeline(2, 50.0, tensor_parallel=2, data_parallel=3)
    first = pipeline.add("work", [Option(1000, 2.0, 600.0)], device=0)  # 300 W
    sent = pipeline.add_fixed("communication", 1.0, energy=10.0, after=[first])
    pipeline.add("work", [Option(1000, 4.0, 800.0)], device=1, after=[sent])  # 200 W
    pipeline.add("work", [Option(1000, 2.0, 200.0)], device=0)  # 100 W
    power = total_power(pipeline.at_highest_frequency())
    assert power.times == (0.0, 2.0, 3.0, 4.0, 7.0)
    assert power.watts == pytest.approx(
        [
            3 * (2 * 300 + 2 * 50),
            3 * (2 * 100 + 2 * 50 + 10),
            3 * (2 * 100 + 2 * 200),
            3 * (2 * 50 + 2 * 200),
        ]
    )
    assert (power.peak, power.low) == pytest.approx((2100, 930))
    assert power.swing == pytest.approx(1170)
    assert [power.at(time) for time in (0, 2, 2.5, 3, 6.9)] == pytest.approx(
        [2100, 930, 930, 1800, 1500]
    )
    phases = [(phase.name, phase.start, phase.end) for phase in power.phases]
    assert phases == [("warm-up", 0.0, 3.0), ("steady", 3.0, 4.0), ("cool-down", 4.0, 7.0)]
    warm_up = power.phases[0]
    assert warm_up.average == pytest.approx((2 * 2100 + 930) / 3)
    assert (warm_up.low, warm_up.peak) == pytest.approx((930, 2100))


def test_ranks_that_never_compute_together_have_no_steady_phase():
    pipeline = Pipeline(2, 50.0)
    first = pipeline.add("work", [Option(1000, 2.0, 600.0)], device=0)
    pipeline.add("work", [Option(1000, 2.0, 600.0)], device=1, after=[first])
    power = total_power(pipeline.at_highest_frequency())
    assert [phase.name for phase in power.phases] == ["warm-up", "cool-down"]
    assert power.swing == 0.0


@given(pipelines())
def test_power_adds_up_to_the_energy(pipeline):
    """Whatever the graph: the average over all moments is the energy that executing it takes."""
    execution = pipeline.at_highest_frequency()
    power = total_power(execution)
    instant = math.fsum(
        pipeline.data_parallel * pipeline.energy_of(operation, option)
        for operation, option in zip(pipeline.operations, execution.options, strict=True)
        if not option.time
    )
    assert power.average * execution.time + instant == pytest.approx(execution.energy, abs=1e-9)
    assert power.low <= power.average * (1 + 1e-12)
    assert power.average <= power.peak * (1 + 1e-12)
    assert [phase.end for phase in power.phases][:-1] == [each.start for each in power.phases[1:]]
    parts = (phase.average * (phase.end - phase.start) for phase in power.phases)
    assert math.fsum(parts) == pytest.approx(power.average * execution.time, abs=1e-9)


def test_at_every_moment_it_is_the_sum_over_gpus(profile):
    execution = build(profile, "1f1b", 4, 80.0, tensor_parallel=2).at_highest_frequency()
    power = total_power(execution)
    for begin, end in itertools.pairwise(power.times):
        moment = (begin + end) / 2
        watts = [80.0] * 3
        for operation, option, start in zip(
            execution.pipeline.operations, execution.options, execution.starts, strict=True
        ):
            if operation.device is not None and start <= moment < start + option.time:
                watts[operation.device] = option.power
        assert power.at(moment) == pytest.approx(2 * sum(watts))

"""The simulated training itself: times and energies that can be computed by hand."""

from __future__ import annotations

import statistics

import pytest

from zeus.device._base import ClockRange
from zeus.device._simulated_models import MODELS
from zeus.optimizer.pipeline_frequency import Option, Profile, build
from zeus.testing._pipeline_training import PipelineTraining

MODEL = MODELS["a100"]


def truth(training: PipelineTraining, message: float = 0.0):
    """The same iteration by the planner's model."""
    power = MODEL.busy_power(1.0, 0.9)
    profile = Profile(
        {
            (stage, name): [Option(1410, seconds * load, seconds * load * power)]
            for stage, load in enumerate(training.loads)
            for name, seconds in zip(("forward", "backward"), training.seconds, strict=True)
        }
    )
    return build(
        profile,
        "1f1b",
        microbatches=training.microbatches,
        blocking_power=MODEL.busy_power(1.0, 0.0),
        communication=message,
    ).at_highest_frequency()


@pytest.mark.parametrize("message", [0.0, 0.02])
def test_an_iteration_takes_the_time_and_energy_of_the_model(message):
    training = PipelineTraining((1.0, 1.0, 1.2), message=message, gpu="a100")
    found = training.iterate(2)[-1]
    expected = truth(training, message)
    assert found.time == pytest.approx(expected.time, rel=1e-9)
    assert found.energy == pytest.approx(expected.energy, rel=1e-9)


def test_it_is_the_same_every_time_unless_work_varies():
    training = PipelineTraining((1.0, 1.2))
    one, other = training.iterate(2)
    assert one.time == pytest.approx(other.time, rel=1e-12)
    varied = PipelineTraining((1.0, 1.2), variation=0.05)
    times = [each.time for each in varied.iterate(40)]
    assert len(set(times)) == 40
    assert statistics.fmean(times) == pytest.approx(one.time, rel=0.03)
    assert statistics.stdev(times) < 0.04 * one.time


def test_the_same_seed_is_the_same_work_in_each_step():
    def times(seed: int) -> list[float]:
        training = PipelineTraining((1.0, 1.1), variation=0.05, seed=seed)
        return [each.time for each in training.iterate(5)]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_the_work_does_not_depend_on_the_clocks_at_which_it_is_done():
    """So that two worlds can be compared step by step."""

    def times(clock: int) -> list[float]:
        training = PipelineTraining((1.0,), microbatches=2, variation=0.05, seed=3)
        training.node.drivers[0].lock_graphics_clock(ClockRange(clock, clock))
        return [each.time for each in training.iterate(5)]

    ratios = [slow / fast for slow, fast in zip(times(705), times(1410), strict=True)]
    assert ratios == [pytest.approx(ratios[0], rel=1e-6)] * 5
    assert ratios[0] == pytest.approx(0.8 * 2 + 0.2, rel=1e-6)


def test_what_a_microbatch_shares_varies_iterations_more():
    """Where each instruction varies for itself, it averages out along the pipeline."""

    def deviation(shared: bool) -> float:
        training = PipelineTraining((1.0,) * 2, variation=0.05, shared=shared, microbatches=8)
        times = [each.time for each in training.iterate(40)]
        return statistics.stdev(times) / statistics.fmean(times)

    assert deviation(True) > 1.2 * deviation(False)


def test_a_slow_rank_and_a_slow_pipeline():
    training = PipelineTraining((1.0, 1.0), pipelines=2, microbatches=4)
    (before,) = training.iterate()
    training.slow[1] = 1.2
    (slow,) = training.iterate()
    assert slow.time == pytest.approx(1.2 * before.time, rel=1e-9)
    training.slow[1] = 1.0
    training.slow_rank[0, 1] = 1.2
    (rank,) = training.iterate()
    assert before.time < rank.time < slow.time
    training.slow_rank.clear()
    assert training.iterate()[0].time == pytest.approx(before.time, rel=1e-9)


def test_a_clock_that_comes_in_the_middle_of_an_instruction_counts_from_then_on():
    """One forward of 0.1 s: 15 ms at the highest clock, and the rest at half of it."""
    lag = 0.015
    training = PipelineTraining((1.0,), microbatches=1, seconds=(0.1, 0.1), clock_lag=lag)
    training.iterate()
    training.node.drivers[0].lock_graphics_clock(ClockRange(705, 705))
    slow = 0.1 * (0.8 * 2 + 0.2)
    (found,) = training.iterate()
    assert found.time == pytest.approx(lag + (1 - lag / 0.1) * slow + slow, rel=1e-9)


def test_a_schedule_that_cannot_be_followed_is_a_failure():
    def backwards(shape):
        from zeus.optimizer.pipeline_frequency._schedules import one_forward_one_backward

        return [list(reversed(each)) for each in one_forward_one_backward(shape)]

    with pytest.raises(AssertionError, match="cannot be followed"):
        PipelineTraining((1.0, 1.0), schedule=backwards).iterate()


def test_clients_that_never_get_there_are_named(tmp_path):
    training = PipelineTraining((1.0,))
    assert training.until("following", most=3) == 0, "there are no clients"
    assert training.optimizers == []
    training.close()

"""Batch sizes of which only steps were measured: what their epochs cost, and which to measure."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.batch_size.histories import A40, V100, decided, spec
from tests.present import present

from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    GpuModel,
    Profiled,
    SizeMeasured,
)
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import JobState, Setup
from zeus.optimizer.batch_size.policies._measured_sizes import MeasuredSizes

GB = 2**30


def measured(size: int, cost: float | None, gpu: GpuModel = A40, **setup: Any) -> SizeMeasured:
    return SizeMeasured(
        at=1.0, gpu=gpu.name, gpus=gpu.number, batch_size=size, epoch_cost=cost, **setup
    )


def profiled(size: int, cost: float, full: float, gpu: GpuModel = A40) -> Profiled:
    """A profile by which an epoch costs `cost` at the best limit and `full` at the highest."""
    points = [
        {"knob": 100.0, "time": 1.0, "energy": cost},
        {"knob": 300.0, "time": 1.0, "energy": full},
    ]
    return Profiled(
        trial=0,
        at=1.0,
        gpu=gpu.name,
        gpus=gpu.number,
        batch_size=size,
        epoch_cost=cost,
        power_limit=100.0,
        frontier={"max_power": 1.0, "points": points},
    )


def costs(brain: JobState, gpu: GpuModel = A40) -> dict[int, float | None]:
    return {each.batch_size: each.epoch_cost for each in brain.sizes(gpu)}


def wanted(brain: JobState, gpu: GpuModel = A40, setup: Setup | None = None) -> list[int]:
    return [each.batch_size for each in brain.sizes(gpu, setup or Setup()) if each.measure]


# --- costs that can be compared -----------------------------------------------------------------


def test_without_trials_it_is_what_the_steps_cost():
    sizes = MeasuredSizes({(0, 1): 100.0, (0, 2): 80.0, (1, 0): 7.0})
    assert sizes.expected(0, {}, {}) == {1: 100.0, 2: 80.0}
    assert sizes.expected(2, {}, {}) == {}


def test_lower_power_limits_save_as_much_as_where_they_were_profiled():
    sizes = MeasuredSizes({(0, 1): 100.0, (0, 2): 80.0})
    # The best limit costs 80 % of full power, and nothing else is in an epoch.
    assert sizes.expected(0, {(0, 1): 80.0}, {(0, 1): 1.25}) == {2: pytest.approx(64.0)}
    # Profiles on other GPUs say nothing.
    assert sizes.expected(0, {(1, 1): 80.0}, {(1, 1): 1.25}) == {1: 100.0, 2: 80.0}
    # One that was not measured has a ratio, too.
    assert sizes.expected(0, {(0, 4): 30.0}, {(0, 4): 2.0}) == {1: 50.0, 2: 40.0}


def test_what_else_is_in_an_epoch_costs_as_much_at_every_batch_size():
    sizes = MeasuredSizes({(0, 1): 100.0, (0, 2): 50.0, (0, 3): 25.0})
    # 100 J of steps become 80 J, and 30 J are for evaluation.
    found = sizes.expected(0, {(0, 1): 110.0}, {(0, 1): 1.25})
    assert found == {2: pytest.approx(70.0), 3: pytest.approx(50.0)}
    # Several that are known both ways count alike: 30 J and 40 J.
    found = sizes.expected(0, {(0, 1): 110.0, (0, 2): 80.0}, {(0, 1): 1.25, (0, 2): 1.25})
    assert found == {3: pytest.approx(55.0)}


def test_if_trials_cost_less_than_the_steps_these_were_too_expensive_by_a_factor():
    sizes = MeasuredSizes({(0, 1): 100.0, (0, 2): 10.0})
    assert sizes.expected(0, {(0, 1): 50.0}, {}) == {2: pytest.approx(5.0)}


# --- in the state of a job ----------------------------------------------------------------------


def beliefs(brain: JobState) -> dict[int, float]:
    """What the policy believes that runs cost."""
    return {each.batch_size: present(each.cost) for each in brain.beliefs(A40)}


def test_the_policy_sees_costs_that_can_be_compared_once_a_size_was_profiled():
    brain = JobState(spec(batch_sizes=(32, 64, 128), eta_knob=1.0))
    for size, cost in ((64, 100.0), (32, 200.0), (128, 90.0)):
        brain.apply(measured(size, cost))
    assert costs(brain) == {32: 200.0, 64: 100.0, 128: 90.0}
    brain.apply(decided(brain, 1.0))
    trained = brain.log.open[1].decided.batch_size
    full = present(costs(brain)[trained])
    brain.apply(profiled(trained, 0.5 * full, full))
    expected = {32: 100.0, 64: 50.0, 128: 45.0}
    assert costs(brain) == pytest.approx(expected)
    report = EpochReported(trial=1, at=2.0, epoch=1, time=0.5, energy=0.5 * full, metric=0.95)
    brain.apply(report)
    brain.apply(Ended(trial=1, at=3.0, outcome="converged"))
    # Nothing else differs: the batch sizes are believed to cost as their epochs do.
    known = JobState(brain.spec)
    for size, cost in expected.items():
        known.apply(Profiled(trial=0, at=1.0, gpu=A40.name, batch_size=size, epoch_cost=cost))
    known.apply(Decided(**{**vars(decided(known, 1.0)), "batch_size": trained}))
    known.apply(report)
    known.apply(Ended(trial=1, at=3.0, outcome="converged"))
    assert beliefs(brain) == pytest.approx(beliefs(known), rel=1e-3)
    marks = {each.batch_size: each.measured for each in brain.beliefs(A40)}
    assert marks == {size: size != trained for size in expected}


def test_without_a_profile_the_trial_itself_makes_them_comparable():
    brain = JobState(spec(batch_sizes=(32, 64), eta_knob=1.0))
    brain.apply(measured(64, 100.0))
    brain.apply(measured(32, 150.0))
    brain.apply(Decided(**{**vars(decided(brain, 1.0)), "batch_size": 64}))
    for epoch in (1, 2):
        brain.apply(EpochReported(trial=1, at=2.0, epoch=epoch, time=1.0, energy=130.0, metric=0.5))
    assert costs(brain) == {32: 150.0, 64: 100.0}
    brain.apply(Ended(trial=1, at=3.0, outcome="failed"))
    assert costs(brain) == {32: pytest.approx(180.0), 64: 130.0}


def test_a_measured_size_still_counts_as_new():
    brain = JobState(spec())
    brain.apply(measured(64, 100.0))
    brain.apply(decided(brain, 1.0))
    assert not brain.log.open[1].known


def test_what_ran_out_of_memory_is_left_out_and_so_is_what_is_larger():
    brain = JobState(spec(batch_sizes=(32, 64, 128, 256)))
    setup: dict[str, Any] = {"memory": 16 * GB, "replicas": 1}
    brain.apply(measured(64, 100.0, **setup))
    brain.apply(measured(128, None, **setup))
    states = {each.batch_size: each.state for each in brain.sizes(A40, Setup(1, 16 * GB))}
    assert states == {32: "unknown", 64: "measured", 128: "unfit", 256: "unfit"}
    assert wanted(brain, setup=Setup(1, 16 * GB)) == [32]
    standing = {each.batch_size: each.standing for each in brain.beliefs(A40)}
    assert standing[128] == standing[256] == ArmStatus.UNFIT
    # Half of it may fit.
    two = GpuModel(A40.name, 2)
    assert wanted(brain, two, Setup(2, 16 * GB)) == [32, 64, 128]


# --- what to measure ----------------------------------------------------------------------------


def test_all_sizes_are_measured_once_on_each_kind_of_gpus():
    brain = JobState(spec(batch_sizes=(32, 64, 128)))
    assert wanted(brain) == [32, 64, 128]
    for size in (64, 32):
        brain.apply(measured(size, 10.0))
    assert wanted(brain) == [128]
    brain.apply(measured(128, 10.0))
    assert wanted(brain) == []
    assert wanted(brain, V100) == [32, 64, 128]


def test_only_sizes_that_the_replicas_can_share_are_measured():
    brain = JobState(spec(batch_sizes=(16, 24, 64), default_batch_size=24))
    assert wanted(brain, V100, Setup(4)) == [16, 24, 64]
    assert wanted(brain, V100, Setup(16)) == [16, 64]
    assert wanted(brain, V100, Setup(128)) == []


def test_what_trials_have_shown_is_not_measured_but_the_default_to_compare_with():
    brain = JobState(spec(batch_sizes=(32, 64, 128)))
    brain.apply(profiled(64, 50.0, 100.0))
    assert wanted(brain) == [32, 64, 128]
    brain.apply(measured(64, 90.0))
    assert wanted(brain) == [32, 128]
    for size in (32, 128):
        brain.apply(profiled(size, 50.0, 100.0))
    assert wanted(brain) == []
    known = JobState(spec(batch_sizes=(32, 64)))
    for size in (32, 64):
        known.apply(profiled(size, 50.0, 100.0))
    assert wanted(known) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"exploration_budget": 0},
        {"batch_sizes": (64,)},
        {"policy": "paper"},
        {"policy": "default"},
    ],
)
def test_nothing_is_measured_that_nobody_would_use(changes):
    assert wanted(JobState(spec(**changes))) == []


def test_what_was_measured_survives_snapshots():
    brain = JobState(spec())
    events = [measured(64, 100.0, load=0.7), measured(32, 150.0), measured(256, None)]
    for event in events:
        brain.apply(event)
    brain.apply(Decided(**{**vars(decided(brain, 1.0)), "batch_size": 64}))
    brain.apply(EpochReported(trial=1, at=2.0, epoch=1, time=1.0, energy=130.0, metric=0.95))
    brain.apply(Ended(trial=1, at=3.0, outcome="converged"))
    restored = JobState.restored(brain.spec, brain.snapshot())
    assert restored.sizes(A40) == brain.sizes(A40)
    assert restored.beliefs(A40) == brain.beliefs(A40)
    assert restored.decide(A40) == brain.decide(A40)

"""Plans for GPUs whose clock takes longer to change than instructions last."""

from __future__ import annotations

from itertools import groupby

import pytest

from zeus.optimizer.pipeline_frequency import Plan, solve
from zeus.optimizer.pipeline_frequency._coarsening import coarsened


@pytest.fixture
def plans(small):
    return solve(small(), 40).plans


def stays(plan: Plan, device: int) -> list[float]:
    """Seconds for which a device stays at one clock, the last stay excepted."""
    chosen = [
        option
        for operation, option in zip(plan.pipeline.operations, plan.options, strict=True)
        if operation.device == device
    ]
    runs = groupby(chosen, key=lambda option: option.frequency)
    return [sum(option.time for option in run) for _, run in runs][:-1]


@pytest.mark.parametrize("lag", [0.06, 0.12, 0.3])
def test_a_clock_stays_for_as_long_as_a_change_takes(plans, lag):
    for plan in plans:
        found = coarsened(plan, lag)
        for device in range(plan.pipeline.devices):
            # Groups are formed by planned times; sped up, they are a little shorter.
            assert all(stay >= 0.6 * lag for stay in stays(found, device))


@pytest.mark.parametrize("lag", [0.06, 0.12, 0.3])
def test_no_operation_is_slower_than_planned(plans, lag):
    changed = 0
    for plan in plans:
        found = coarsened(plan, lag)
        for before, after in zip(plan.options, found.options, strict=True):
            assert after.time <= before.time
        assert found.time <= plan.time
        assert found.energy >= found.lower_bound
        changed += found.options != plan.options
    assert changed, "no plan had to be coarsened, so nothing was tested"


def test_what_it_states_is_what_executing_gives(plans):
    for plan in plans[::5]:
        found = coarsened(plan, 0.12)
        execution = found.execute()
        assert (found.time, found.energy) == (execution.time, execution.energy)


def test_a_short_lag_changes_nothing(plans):
    for plan in plans:
        assert coarsened(plan, 0.0) is plan
        assert coarsened(plan, 0.05) is plan  # as long as the shortest operation


def test_a_lag_longer_than_the_iteration_leaves_one_clock_per_device(plans):
    found = coarsened(plans[len(plans) // 2], 100.0)
    for device in range(found.pipeline.devices):
        assert stays(found, device) == []

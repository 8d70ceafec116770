"""Plans as knobs of a frontier: compact, comparable, and executable."""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest

from zeus.frontier import Deadline, EnergyBudget, MaxSlowdownConstraint
from zeus.optimizer.pipeline_frequency import Plan, build, solve


@pytest.fixture
def solution(small):
    return solve(small(), 30)


def test_every_point_of_the_frontier_has_a_plan(solution):
    for point in solution.frontier:
        assert isinstance(point.knob, Plan)
        assert (point.time, point.energy) == (point.knob.time, point.knob.energy)
    assert solution.frontier.pareto() == solution.frontier
    assert "three stages" in solution.frontier.work


def test_objectives_choose_plans(solution):
    fastest = solution.plans[0]
    assert MaxSlowdownConstraint(1.0).select(solution.frontier).point.knob == fastest
    middle = solution.plans[len(solution.plans) // 2]
    assert Deadline(middle.time).select(solution.frontier).point.knob == middle
    assert EnergyBudget(middle.energy).select(solution.frontier).point.knob == middle
    assert solution.frontier.at(middle).time == middle.time
    assert not Deadline(0.9 * fastest.time).select(solution.frontier).feasible


def test_a_straggler_is_a_lookup(solution):
    """Pipelines that wait for one of 1.1 times their time take the plan for that time."""
    fastest = solution.plans[0]
    point = solution.frontier.at_time(1.1 * fastest.time)
    assert point.time <= 1.1 * fastest.time
    assert point.energy < fastest.energy
    later = fastest.execute().lasting(1.1 * fastest.time)
    assert point.knob.execute().lasting(1.1 * fastest.time).energy < later.energy


def test_a_plan_says_what_each_rank_runs_at_which_clock(solution):
    plan = solution.plans[-1]
    execution = plan.execute()
    for device in range(3):
        steps = list(plan.of_device(device))
        assert len(steps) == 8
        assert [op.device for op, _ in steps] == [device] * 8
        assert all(option in operation.options for operation, option in steps)
    assert plan.frequencies == tuple(option.frequency for option in execution.options)


def test_a_plan_as_json(solution):
    plan = solution.plans[3]
    entries = json.loads(json.dumps(plan.to_list()))
    assert len(entries) == 24
    assert [entry["start"] for entry in entries] == sorted(entry["start"] for entry in entries)
    assert max(entry["start"] + entry["time"] for entry in entries) == plan.time
    assert entries[0] == {
        "device": 0,
        "stage": 0,
        "instruction": "forward",
        "microbatch": 0,
        "frequency": plan.frequencies[0],
        "start": 0.0,
        "time": plan.options[0].time,
        "energy": plan.options[0].energy,
    }


def test_plans_of_the_same_choices_are_equal(solution, small):
    first, second = solution.plans[:2]
    twin = solve(small(), 30).plans[0]
    assert first == solution.plans[0]
    assert first != second
    assert first != twin  # of another pipeline
    assert first != "plan"
    assert len({*solution.plans, *solution.plans}) == len(solution.plans)


def test_plans_are_named_briefly(solution):
    plan = solution.plans[0]
    assert repr(plan) == f"Plan({plan.time:.6g} s, {plan.energy:.6g} J)"
    assert str(plan).endswith("MHz on average")
    assert plan.gap == plan.energy / plan.lower_bound - 1


def test_many_plans_of_many_operations_take_little_memory(profile):
    pipeline = build(profile, "1f1b", 100, 80.0)
    solve(pipeline, 2)
    tracemalloc.start()
    try:
        plans = solve(pipeline, 300).plans
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(plans) > 200
    operations = len(pipeline.operations)
    assert held < len(plans) * (2 * operations + 2000) + 1_000_000
    assert sys.getsizeof(plans[0]) < 200

"""Plans as knobs of a frontier: compact, comparable, and executable."""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest

from zeus.frontier import Deadline, EnergyBudget, MaxSlowdownConstraint
from zeus.optimizer.pipeline_frequency import Option, Pipeline, Plan, Profile, build, solve
from zeus.optimizer.pipeline_frequency._trace import to_trace


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


def test_plans_choose_between_labels_of_one_clock():
    """One clock, three ways to share the SMs with messages: each is chosen where it fits."""
    ways = [
        Option(1410, 1.0, 300.0),
        Option(1410, 1.1, 260.0, "20 SMs"),
        Option(None, 1.4, 230.0, "few"),
    ]
    profile = Profile(
        {(stage, kind): ways for stage in range(3) for kind in ("forward", "backward")}
    )
    solution = solve(build(profile, "1f1b", 3, 80.0), 40)
    before = solution.plans[0].pipeline.at_highest_frequency()
    assert {option.label for option in before.options} == {""}
    assert solution.plans[0].time == before.time
    used = {option.label for plan in solution.plans for option in plan.options}
    assert used == {"", "20 SMs", "few"}
    entries = solution.plans[0].to_list()
    assert {entry.get("label") for entry in entries} == {None, "few"}
    assert {entry["frequency"] for entry in entries if entry.get("label")} == {None}
    (events,) = [
        event["args"] for event in to_trace({"plan": solution.plans[0].execute()})["traceEvents"]
        if event["name"] == "forward stage 0 microbatch 0" and event["ph"] == "X"
    ]  # fmt: skip
    assert events.get("label", "") == solution.plans[0].options[0].label


def test_a_plan_with_labels_only_says_how_many():
    ways = [Option(None, 1.0, 300.0, "ring"), Option(None, 1.4, 230.0, "tree")]
    pipeline = Pipeline(1, 50.0)
    pipeline.add("exchange", ways, device=0)
    assert str(solve(pipeline).plans[0]) == "1 label"


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

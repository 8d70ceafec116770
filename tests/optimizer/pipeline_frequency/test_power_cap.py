"""Plans under a cap of power: kept at every moment, and never faster than the linear program."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.optimizer.pipeline_frequency.graphs import pipelines
from tests.optimizer.pipeline_frequency.power_lp import least_time

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency import (
    Execution,
    Option,
    Pipeline,
    Plan,
    build,
    solve,
    solve_capped,
    total_power,
)
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError
from zeus.optimizer.pipeline_frequency._power_cap import least_peak, most_low


def drawn(execution: Execution, moment: float) -> float:
    """Watts of all GPUs at a moment, summed up one by one."""
    pipeline = execution.pipeline
    lanes = [pipeline.blocking_power * pipeline.tensor_parallel] * pipeline.devices
    others = 0.0
    for operation, option, start in zip(
        pipeline.operations, execution.options, execution.starts, strict=True
    ):
        if start <= moment < start + option.time:
            if operation.device is None:
                others += option.energy / option.time
            else:
                watts = pipeline.tensor_parallel * option.energy / option.time
                lanes[operation.device] = watts
    return pipeline.data_parallel * (sum(lanes) + others)


def moments(execution: Execution) -> list[float]:
    """Times within each interval between two events."""
    pairs = zip(execution.starts, execution.options, strict=True)
    events = {0.0, execution.time, *(t for s, o in pairs for t in (s, s + o.time))}
    return [(a + b) / 2 for a, b in itertools.pairwise(sorted(events))]


def follows(plan: Plan) -> bool:
    """Whether operations start after those that they wait for, and take options of their own."""
    execution = plan.execute()
    ends = [s + o.time for s, o in zip(execution.starts, execution.options, strict=True)]
    return all(
        option in operation.options and all(start >= ends[other] for other in operation.after)
        for operation, option, start in zip(
            plan.pipeline.operations, execution.options, execution.starts, strict=True
        )
    )


@settings(deadline=None)
@given(pipelines(operations=8), st.floats(0.0, 1.0), st.none() | st.floats(0.0, 1.2))
def test_bounds_are_kept_at_every_moment_and_no_plan_beats_the_linear_program(
    pipeline, share, part
):
    before = total_power(pipeline.at_highest_frequency())
    least = least_peak(pipeline)
    cap = least + share * max(before.peak - least, 0.0)
    swing = None if part is None else part * before.swing
    try:
        solution = solve_capped(pipeline, cap, swing, plans=20)
    except PipelineError as error:
        if swing is None or "the least found is" not in str(error):  # large enough caps are kept
            raise
        return
    fastest = least_time(pipeline, cap, float("inf") if swing is None else swing)
    uncapped = solve(pipeline, 20).frontier.fastest.time
    for plan in solution.plans:
        execution = plan.execute()
        watts = [drawn(execution, moment) for moment in moments(execution)]
        assert max(watts) <= cap * (1 + 1e-9)
        if swing is not None:
            assert max(watts) - min(watts) <= swing + 1e-9 * cap
        assert (execution.time, execution.energy) == (plan.time, plan.energy)
        assert plan.time >= fastest * (1 - 1e-9)
        assert plan.time >= uncapped
        assert plan.energy >= plan.lower_bound
        assert follows(plan)
    times = [(plan.time, -plan.energy) for plan in solution.plans]
    assert times == sorted(times)


def test_a_cap_that_is_never_reached_changes_nothing(small):
    pipeline = small()
    solution = solve(pipeline)
    capped = solve_capped(pipeline, 10_000.0)
    assert capped.plans[0].time == solution.plans[0].time
    assert capped.plans[0].energy == pytest.approx(solution.plans[0].energy, rel=0.01)
    assert not any(capped.plans[0].not_before)


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6])
def test_pipelines_are_close_to_the_linear_program(small, share):
    pipeline = small()
    before = total_power(pipeline.at_highest_frequency())
    cap = share * before.peak
    plan = solve_capped(pipeline, cap).plans[0]
    assert total_power(plan.execute()).peak <= cap
    assert plan.time <= 1.06 * least_time(pipeline, cap)


def test_the_swing_is_halved_with_warm_up_and_cool_down_counted(small):
    pipeline = small()
    before = total_power(pipeline.at_highest_frequency())
    plan = solve_capped(pipeline, 0.9 * before.peak, before.swing / 2).plans[0]
    power = total_power(plan.execute())
    assert power.swing <= before.swing / 2
    assert power.times[0] == 0.0
    assert power.times[-1] == plan.time
    assert plan.time <= 1.06 * least_time(pipeline, 0.9 * before.peak, before.swing / 2)


def test_operations_are_delayed_where_nothing_else_keeps_the_cap():
    """Two ranks of one clock each cannot compute at the same time."""
    pipeline = Pipeline(2, 50.0, name="two ranks")
    for device in range(2):
        pipeline.add("work", [Option(1000, 1.0, 300.0)], device=device)
    plan = solve_capped(pipeline, 400.0).plans[0]
    assert plan.time == 2.0
    assert sorted(plan.not_before) == [0.0, 1.0]
    assert sorted(plan.execute().starts) == [0.0, 1.0]
    assert [entry.get("not_before") for entry in plan.to_list()] == [None, 1.0]
    assert plan.energy == 2 * 300 + 2 * 50
    assert total_power(plan.execute()).watts == (350.0, 350.0)
    with pytest.raises(
        PipelineError, match=r"`cap >= 350` must hold for two ranks, .* got cap=349"
    ):
        solve_capped(pipeline, 349.0)


def test_slower_options_than_those_of_least_energy_are_used_if_they_draw_less():
    pipeline = Pipeline(2, 0.0)
    for device in range(2):
        pipeline.add("work", [Option(2, 1.0, 300.0), Option(1, 1.9, 380.0)], device=device)
    assert solve_capped(pipeline, 401.0).plans[0].frequencies == (1, 1)


@settings(deadline=None, max_examples=40)
@given(
    pipelines(operations=8),
    st.floats(0.3, 1.0),
    st.sampled_from([0.02, 0.05, 0.2]),
    st.integers(0, 2**32),
)
def test_with_a_margin_the_cap_is_kept_however_times_vary(pipeline, share, margin, seed):
    before = total_power(pipeline.at_highest_frequency())
    cap = least_peak(pipeline) + share * max(before.peak - least_peak(pipeline), 0.0)
    try:
        plan = solve_capped(pipeline, cap, margin=margin, plans=20).plans[0]
    except PipelineError as error:
        assume("can be kept" not in str(error))
        raise
    chance = random.Random(seed)
    for _ in range(20):
        varied = []
        for option in plan.options:
            factor = chance.choice([1 - margin, 1 + margin, chance.uniform(1 - margin, 1 + margin)])
            varied.append(Option(option.frequency, factor * option.time, factor * option.energy))
        execution = pipeline.execute(varied, plan.not_before)
        assert total_power(execution).peak <= cap * (1 + 1e-9)
        assert execution.time <= (1 + margin) * plan.time * (1 + 1e-12)


def test_a_margin_costs_little_and_is_needed(small):
    """Without one, a cap that binds is broken when times vary by 5 %; with one, never."""
    pipeline = small()
    cap = 0.7 * total_power(pipeline.at_highest_frequency()).peak
    plans = {margin: solve_capped(pipeline, cap, margin=margin).plans[0] for margin in (0.0, 0.05)}
    assert plans[0.05].time <= 1.1 * plans[0.0].time
    chance = random.Random(1)
    broken = dict.fromkeys(plans, 0)
    for _ in range(50):
        factors = [chance.uniform(0.95, 1.05) for _ in pipeline.operations]
        for margin, plan in plans.items():
            varied = [
                Option(option.frequency, factor * option.time, factor * option.energy)
                for option, factor in zip(plan.options, factors, strict=True)
            ]
            peak = total_power(pipeline.execute(varied, plan.not_before)).peak
            broken[margin] += peak > cap * (1 + 1e-9)
    assert broken[0.05] == 0
    assert broken[0.0] > 0


def test_the_lowest_power_is_bounded_by_both_ends_of_the_iteration(small):
    pipeline = small()
    first = max(option.power for option in pipeline.operations[0].options)
    assert most_low(pipeline) <= first + 2 * 80.0
    for plan in solve(pipeline, 30).plans:
        assert total_power(plan.execute()).low <= most_low(pipeline)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs a bound on its power, but got neither `cap` nor `swing`"),
        ({"cap": -1.0}, "`cap >= 0` must hold, but got cap=-1.0"),
        ({"cap": "much"}, "`cap` must be a number, but got cap='much'"),
        ({"swing": -1.0}, "`swing >= 0` must hold, but got swing=-1.0"),
        ({"cap": 900.0, "margin": 0.6}, "`margin <= 0.5` must hold, but got margin=0.6"),
        ({"swing": 900.0, "margin": 0.1}, "which must be given, but got only margin=0.1"),
        ({"cap": 900.0, "plans": 0}, "plans"),
        ({"cap": 261.0, "margin": 0.5}, "with any margin, a cap of [0-9.]+ W can be kept"),
    ],
)
def test_rules(small, arguments, said):
    with pytest.raises(PipelineError, match=said):
        solve_capped(small(), **arguments)


def test_a_swing_that_is_not_possible_is_refused_with_the_least_found():
    pipeline = Pipeline(1, 50.0, name="one rank")
    for joules in (300.0, 200.0):
        pipeline.add("work", [Option(1000, 1.0, joules)], device=0)
    assert solve_capped(pipeline, swing=100.0).plans[0].time == 2.0
    with pytest.raises(
        PipelineError, match=r"one rank .* by 99 W or less; the least found is 100 W"
    ):
        solve_capped(pipeline, swing=99.0)


def test_a_cancelled_search_ends(small):
    limit = Limit()
    limit.cancel()
    with pytest.raises(SolvingCancelledError):
        solve_capped(small(), 700.0, limit=limit)


@pytest.mark.parametrize("schedule", ["gpipe", "zero-bubble", "1f1b-recompute"])
def test_any_schedule_with_messages(profile, schedule):
    pipeline = build(profile, schedule, 4, 80.0, communication=0.01, data_parallel=2)
    cap = 0.8 * total_power(pipeline.at_highest_frequency()).peak
    solution = solve_capped(pipeline, cap)
    assert len(solution.plans) > 1
    for plan in solution.plans:
        assert total_power(plan.execute()).peak <= cap

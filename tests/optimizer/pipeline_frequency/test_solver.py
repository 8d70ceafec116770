"""The solver against a linear program, exhaustive search, and its own promises."""

from __future__ import annotations

import random
import statistics
import threading
from itertools import pairwise
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.pipeline_frequency.graphs import all_plans, continuous_optimum, pipelines

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency import Option, Pipeline, Profile, _curves, build, solve
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError

LEAST = 1e-9  # HiGHS is exact to about this


def close(value, other):
    return value == pytest.approx(other, rel=1e-7, abs=1e-7)


@given(pipelines(), st.floats(0, 1))
@settings(max_examples=150)
def test_the_bound_is_what_a_linear_program_finds(pipeline, share):
    continuous = solve(pipeline, 5).continuous
    fastest, slowest = continuous.fastest, continuous.least_energy
    time = fastest + share * (slowest - fastest)
    assert close(continuous.energy(time), continuous_optimum(pipeline, time + LEAST))
    assert continuous_optimum(pipeline, fastest * (1 - 1e-4) - 1e-6) is None
    # Nothing slower takes less.
    assert close(continuous.energy(slowest), continuous_optimum(pipeline, 1e6))
    assert continuous.energy(1e6) == continuous.energy(slowest)


@given(pipelines())
@settings(max_examples=100)
def test_the_continuous_frontier_is_convex_and_falls(pipeline):
    continuous = solve(pipeline, 3).continuous
    corners = continuous.corners()
    assert corners[0][0] == continuous.fastest
    assert corners[-1][0] == continuous.least_energy
    assert all(e1 <= e0 + 1e-9 for (_, e0), (_, e1) in pairwise(corners))
    # No corner above the line between its neighbours. Slopes would not tell: corners may be as
    # close as numbers get, and then the quotient of their differences is anything.
    for (t0, e0), (t1, e1), (t2, e2) in zip(corners, corners[1:], corners[2:], strict=False):
        assert e1 <= e0 + (e2 - e0) * (t1 - t0) / (t2 - t0) + 1e-9
    for time, energy in corners:
        assert close(continuous.energy(time), energy)


@given(pipelines(), st.floats(0, 1))
@settings(max_examples=100)
def test_slopes_rounded_for_a_large_pipeline_leave_the_bound_a_bound(pipeline, share):
    exact = solve(pipeline, 5).continuous
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_curves, "_LARGE", 0)
        patch.setattr(_curves, "_SLOPES", 2)  # as coarse as can be
        solution = solve(pipeline, 5)
    assert solution.continuous.fastest == exact.fastest
    time = exact.fastest + share * (exact.least_energy - exact.fastest)
    for when in (time, exact.fastest, exact.least_energy, 1e6):
        bound, best = solution.continuous.energy(when), exact.energy(when)
        assert bound <= best * (1 + 1e-12) + 1e-12
    for plan in solution.plans:
        assert plan.execute().time == plan.time
        assert plan.lower_bound <= plan.energy


@given(pipelines(operations=5, most_options=3))
@settings(max_examples=150)
def test_plans_are_executable_and_between_the_bound_and_what_is_possible(pipeline):
    everything = all_plans(pipeline)
    solution = solve(pipeline, 20)
    fastest = min(time for time, _ in everything)
    least = min(energy for _, energy in everything)
    assert solution.plans[0].time == fastest
    for plan in solution.plans:
        execution = plan.execute()
        assert execution.time == plan.time
        assert execution.energy == pytest.approx(plan.energy, rel=1e-12, abs=1e-12)
        best = min(energy for time, energy in everything if time <= plan.time)
        assert plan.lower_bound <= best * (1 + 1e-12) + 1e-12
        assert best <= plan.energy * (1 + 1e-12) + 1e-12
        assert plan.lower_bound >= min(solution.continuous.energy(plan.time), plan.energy)
        assert plan.lower_bound == min(solution.lower_bound(plan.time), plan.energy)
    assert solution.continuous.energy(1e6) <= least * (1 + 1e-12) + 1e-12
    for faster, slower in pairwise(solution.plans):
        assert faster.time < slower.time
        assert faster.energy > slower.energy


def test_exhaustive_search_finds_little_more():
    """Over many small graphs, what rounding leaves is small compared with what there is to win."""
    lost, won, missed = [], [], []

    @given(pipelines(operations=6, most_options=3))
    @settings(max_examples=60, derandomize=True, database=None)
    def collect(pipeline):
        everything = all_plans(pipeline)
        solution = solve(pipeline, 50)
        dearest = min(everything)[1]
        for plan in solution.plans:
            best = min(energy for time, energy in everything if time <= plan.time)
            lost.append(plan.energy - best)
            won.append(max(dearest - best, 0))
        least = min(energy for _, energy in everything)
        missed.append(solution.plans[-1].energy > least * (1 + 1e-9) + 1e-9)

    collect()
    assert sum(lost) <= 0.02 * sum(won)
    assert sum(missed) <= 0.02 * len(missed)  # of plans of least energy


def test_a_chain_trades_time_where_it_is_cheapest():
    pipeline = Pipeline(1, 0.0)
    pipeline.add("a", [Option(2000, 1.0, 10.0), Option(1000, 2.0, 4.0)], device=0)
    pipeline.add("b", [Option(2000, 1.0, 10.0), Option(1000, 2.0, 9.0)], device=0)
    solution = solve(pipeline, 10)
    found = [(plan.time, plan.energy, plan.frequencies) for plan in solution.plans]
    assert found == [
        (2.0, 20.0, (2000, 2000)),
        (3.0, 14.0, (1000, 2000)),
        (4.0, 13.0, (1000, 1000)),
    ]
    assert all(plan.gap == 0 for plan in solution.plans)
    assert solution.continuous.energy(2.5) == pytest.approx(17.0)


def test_what_nobody_waits_for_is_slowed_at_no_cost_of_time():
    pipeline = Pipeline(2, 1.0)
    pipeline.add("short", [Option(1400, 1.0, 50.0), Option(700, 2.0, 20.0)], device=0)
    pipeline.add("long", [Option(1400, 2.0, 80.0)], device=1)
    (plan,) = solve(pipeline).plans
    assert (plan.time, plan.energy) == (2.0, 100.0)
    assert pipeline.at_highest_frequency().energy == 50.0 + 80.0 + 1.0


def test_waiting_costs_so_running_slower_is_not_always_better():
    """700 MHz takes less energy by itself, but all of the other GPU's waiting is paid as well."""
    options = [Option(1400, 1.0, 100.0), Option(700, 2.0, 60.0)]
    patient, costly = Pipeline(2, 10.0), Pipeline(2, 50.0)
    for pipeline in (patient, costly):
        pipeline.add("work", options, device=0)
    assert solve(patient).plans[-1].frequencies == (700,)
    assert solve(costly).plans[-1].frequencies == (1400,)


def test_points_slower_than_the_one_of_least_energy_are_not_reported():
    pipeline = Pipeline(1, 0.0)
    pipeline.add("a", [Option(3, 1.0, 10.0), Option(2, 2.0, 5.0), Option(1, 3.0, 6.0)], device=0)
    assert [plan.time for plan in solve(pipeline).plans] == [1.0, 2.0]


def test_options_off_the_hull_are_used_where_they_fit():
    """1.5 s is no corner of the curve, but exactly what the other rank leaves."""
    pipeline = Pipeline(2, 0.0)
    options = [Option(3, 1.0, 10.0), Option(2, 1.5, 9.0), Option(1, 2.0, 2.0)]
    pipeline.add("a", options, device=0)
    pipeline.add("b", [Option(3, 1.5, 1.0)], device=1)
    plans = solve(pipeline).plans
    assert [(plan.time, plan.energy) for plan in plans] == [(1.5, 10.0), (2.0, 3.0)]
    assert plans[0].lower_bound == pytest.approx(7.0)


def test_tensor_and_data_parallel_multiply_energy_only():
    def make(**degrees):
        pipeline = Pipeline(2, 1.0, **degrees)
        first = pipeline.add("a", [Option(2, 1.0, 10.0), Option(1, 2.0, 4.0)], device=0)
        pipeline.add("b", [Option(2, 1.0, 7.0)], device=1, after=[first])
        return solve(pipeline)

    single, many = make(), make(tensor_parallel=4, data_parallel=3)
    assert [plan.time for plan in many.plans] == [plan.time for plan in single.plans]
    for one, all_ in zip(single.plans, many.plans, strict=True):
        assert all_.energy == pytest.approx(12 * one.energy)
        assert all_.lower_bound == pytest.approx(12 * one.lower_bound)
        assert all_.execute().energy == pytest.approx(all_.energy)


def test_numbers_of_any_size():
    """Nanoseconds or days, microjoules or gigajoules: the units adapt."""
    bounds = []
    for seconds, joules in ((1e-6, 1e-6), (1.0, 1.0), (1e5, 1e9), (1e-9, 1e9)):
        pipeline = Pipeline(2, joules / seconds)
        options = [
            Option(clock, seconds * 1000 / clock, joules * (clock / 500) ** 2)
            for clock in range(500, 1500, 100)
        ]
        after: list[int] = []
        for _ in range(6):
            first = pipeline.add("a", options, device=0, after=after)
            after = [pipeline.add("b", options, device=1, after=[first])]
        solution = solve(pipeline, 20)
        assert all(0 <= plan.gap < 0.05 for plan in solution.plans)
        bounds.append(solution.continuous.energy(1.1 * solution.continuous.fastest) / joules)
    assert bounds == pytest.approx([bounds[0]] * 4)


def test_equal_work_gives_equal_plans_every_time(small):
    first, second = solve(small(), 40), solve(small(), 40)
    assert [plan.frequencies for plan in first.plans] == [p.frequencies for p in second.plans]


def test_an_empty_pipeline_cannot_be_planned():
    with pytest.raises(PipelineError, match="no operations"):
        solve(Pipeline(1, 0.0, name="nothing"))


@pytest.mark.parametrize("plans", [0, -1, 2.5, True, 10**9])
def test_a_senseless_number_of_plans_is_refused(plans, small):
    with pytest.raises(PipelineError, match="plans"):
        solve(small(), plans)


def test_one_plan_is_the_fastest(small):
    everything = solve(small(), 100).plans
    assert everything[0].time == min(plan.time for plan in solve(small(), 1).plans)


# --- limits ---------------------------------------------------------------------------------------


@given(pipelines(operations=5, most_options=3))
@settings(max_examples=150)
def test_a_solution_that_had_to_end_early_has_the_fastest_plan_and_bounds_that_hold(pipeline):
    everything = all_plans(pipeline)
    solution = solve(pipeline, 20, Limit(room=0))  # full with the first plan
    assert not solution.refined
    assert solution.plans[0].time == min(time for time, _ in everything)
    assert solution.continuous.fastest == pytest.approx(solution.plans[0].time)
    for plan in solution.plans:
        execution = plan.execute()
        assert (plan.time, plan.energy) == pytest.approx((execution.time, execution.energy))
        assert plan.lower_bound <= plan.energy
    for time, energy in everything:
        assert solution.continuous.energy(time) <= energy + 1e-9


def test_a_solution_ends_when_time_is_over_or_nobody_wants_it_any_more(small):
    # A limit that was not reached changes nothing.
    pipeline = small()
    whole = solve(pipeline, 100, Limit(600.0))
    assert whole.refined
    assert [plan.energy for plan in whole.plans] == [
        plan.energy for plan in solve(pipeline, 100).plans
    ]
    limit = Limit()
    limit.cancel()
    with pytest.raises(SolvingCancelledError):
        solve(pipeline, 100, limit)
    with pytest.raises(PipelineError, match=r"small enough to be planned within 0 s"):
        solve(pipeline, 100, Limit(0.0))


def test_a_running_solution_is_cancelled_and_ends_in_time(small):
    """Many more plans than there is time for."""
    began, limit = monotonic(), Limit()
    threading.Timer(0.5, limit.cancel).start()
    with pytest.raises(SolvingCancelledError):
        solve(small(), 1_000_000, limit)
    solution = solve(small(), 1_000_000, Limit(0.5))
    assert not solution.refined
    assert monotonic() - began < 60.0, "it takes minutes"


def noisy_profile(seed: int) -> Profile:
    """Six uneven stages whose times and energies are 1 % off a smooth curve at each clock."""
    chance = random.Random(seed)
    return Profile(
        {
            (stage, name): [
                Option(
                    clock,
                    load * (0.2 + 0.8 * 1410 / clock) * chance.uniform(0.99, 1.01),
                    300 * load * (clock / 1410) ** 1.5 * chance.uniform(0.99, 1.01),
                )
                for clock in range(1410, 800, -45)
            ]
            for stage in range(6)
            for name, load in (
                ("forward", 0.05 * chance.uniform(0.85, 1)),
                ("backward", 0.1 * chance.uniform(0.85, 1)),
            )
        }
    )


def test_fast_plans_are_better_than_single_exchanges_make_them():
    """Without the search, they are 0.49 % above their bound on average."""
    found = [solve(build(noisy_profile(seed), "1f1b", 8, 70.0), 200) for seed in range(12)]
    fastest = [solution.frontier.fastest.knob for solution in found]
    assert statistics.fmean(plan.gap for plan in fastest) < 0.0047
    for solution in found:
        for plan in solution.plans:
            execution = plan.execute()
            assert (plan.time, plan.energy) == pytest.approx((execution.time, execution.energy))


def test_the_search_finds_the_same_in_every_run():
    one, other = (solve(build(noisy_profile(1), "1f1b", 8, 70.0), 200) for _ in range(2))
    assert [plan.frequencies for plan in one.plans] == [plan.frequencies for plan in other.plans]

"""The bound from windows: below every plan there is, and above the continuous one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.pipeline_frequency.graphs import exact_frontier

from zeus.optimizer.pipeline_frequency import Option, Pipeline, Profile, build, solve
from zeus.optimizer.pipeline_frequency._curves import curves_of
from zeus.optimizer.pipeline_frequency._windows import chains_of

EIGHTH = 0.125  # sums of times are exact


@st.composite
def profiles(draw, stages, most_options=3):
    """Any options, in whole eighths of a second."""
    return Profile(
        {
            (stage, instruction): [
                Option(
                    1000 + 15 * number,
                    EIGHTH * draw(st.integers(4, 16)),
                    draw(st.integers(1, 400)) / 10,
                )
                for number in range(draw(st.integers(2, most_options)))
            ]
            for stage in range(stages)
            for instruction in ("forward", "backward")
        }
    )


@st.composite
def pipelines(draw):
    """A few microbatches through two or three ranks in turn."""
    stages, microbatches, most = draw(st.sampled_from([(2, 3, 3), (2, 5, 3), (3, 4, 2), (3, 5, 2)]))
    profile = draw(profiles(stages, most))
    return build(
        profile,
        "1f1b",
        microbatches,
        draw(st.sampled_from([0.0, 1.0, 8.0])),
        tensor_parallel=draw(st.sampled_from([1, 2])),
    )


def random_profile(seed: int, stages: int, options: int) -> Profile:
    """Operations that take less energy the slower they are, in uneven steps."""
    chance = random.Random(seed)
    curves = {}
    for stage in range(stages):
        for instruction, eighths in (("forward", 6), ("backward", 11)):
            times = sorted(chance.sample(range(eighths, eighths + 7), options))
            joules, curve = 50.0, []
            for number, time in enumerate(times):
                curve.append(Option(1400 - 15 * number, EIGHTH * time, joules))
                joules -= chance.uniform(1.0, 9.0)
            curves[stage, instruction] = curve
    return Profile(curves)


def chains(pipeline: Pipeline) -> tuple[tuple[int, ...], ...]:
    return chains_of(pipeline, curves_of(pipeline)).chains


@given(pipelines())
@settings(max_examples=60, deadline=None)
def test_no_plan_is_below_the_bound(pipeline):
    solution = solve(pipeline, 20)
    assert chains(pipeline)
    for time, energy in exact_frontier(pipeline):
        assert solution.lower_bound(time) <= energy * (1 + 1e-12)
        assert solution.lower_bound(time) >= solution.continuous.energy(time)
    for plan in solution.plans:
        assert solution.lower_bound(plan.time) <= plan.energy * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_no_plan_is_below_the_bound_of_a_long_pipeline_and_it_is_higher_than_the_continuous(seed):
    """Enough microbatches for prices of ranks that are found for the middle."""
    pipeline = build(random_profile(seed, 2, 3), "1f1b", 30, 4.0)
    assert len(chains(pipeline)) >= 24
    solution = solve(pipeline, 50)
    frontier = exact_frontier(pipeline)
    assert len(frontier) > 20
    for time, energy in frontier:
        assert solution.lower_bound(time) <= energy * (1 + 1e-12)
    # How much of what lies between the continuous frontier and the best plans is proven to be lost.
    between = [energy - solution.continuous.energy(time) for time, energy in frontier]
    proven = [solution.lower_bound(time) - solution.continuous.energy(time) for time, _ in frontier]
    assert sum(proven) > 0.1 * sum(between)


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_of_plans_are_not_below_the_bound(seed):
    chance = random.Random(seed)
    pipeline = build(random_profile(seed, 5, 6), "1f1b", 40, 4.0)
    solution = solve(pipeline, 100)
    higher = 0
    for plan in solution.plans[::10]:
        higher += plan.lower_bound > solution.continuous.energy(plan.time)
        for _ in range(20):
            options = list(plan.options)
            for _ in range(chance.choice([1, 2, 10, 100])):
                number = chance.randrange(len(options))
                options[number] = chance.choice(pipeline.operations[number].options)
            execution = pipeline.execute(options)
            assert solution.lower_bound(execution.time) <= execution.energy * (1 + 1e-12)
    assert higher > 0


def test_a_rank_beside_the_slowest_one_cannot_mix_its_options():
    """It has 3 s for two operations of 1 or 2.2 s each: both take 1 s in every cycle."""
    stiff = [Option(1400, 1.5, 40.0)]
    other = [Option(1400, 1.0, 40.0), Option(700, 2.2, 16.0)]
    profile = Profile(
        {
            (0, "forward"): stiff,
            (0, "backward"): stiff,
            (1, "forward"): other,
            (1, "backward"): other,
        }
    )
    pipeline = build(profile, "1f1b", 60, 0.0)
    solution = solve(pipeline)
    fastest = solution.plans[0]
    # In 3 s, mixed options would take 60 J, and real ones take 80 J: 2 s fit, 3.2 s do not.
    assert fastest.energy > 1.13 * solution.continuous.energy(fastest.time)
    assert fastest.gap < 0.02


def test_chains_are_from_rank_to_rank_in_turn(profile):
    pipeline = build(profile, "1f1b", 6, 80.0)
    operations = pipeline.operations
    found = chains(pipeline)
    for chain in found:
        members = [chain[start : start + 4] for start in range(0, len(chain), 4)]
        devices = [operations[member[0]].device for member in members]
        assert devices == list(range(3 - len(members), 3))
        for first, second, third, _ in members:
            kinds = [operations[number].instruction for number in (first, second, third)]
            assert kinds == ["forward", "backward", "forward"]
            assert len({operations[number].device for number in (first, second, third)}) == 1
        assert [member[3] for member in members][-1] == 0
        assert len({operations[member[0]].microbatch for member in members}) == 1
    # All ranks are in turn from the third microbatch on, and the last has no third operation.
    assert [len(chain) // 4 for chain in found] == [2, 3, 3, 3]


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved"])
def test_without_turns_the_bound_is_the_continuous_one(profile, schedule):
    chunks = 3 if schedule == "interleaved" else 1
    pipeline = build(profile, schedule, 6, 80.0, chunks=chunks)
    assert chains(pipeline) == ()
    solution = solve(pipeline, 20)
    for plan in solution.plans:
        assert plan.lower_bound == min(solution.continuous.energy(plan.time), plan.energy)


def test_operations_of_very_many_options_are_in_no_chain():
    options = [Option(2000 - number, 1.0 + number / 1000, 400.0 - number) for number in range(257)]
    profile = Profile(
        {(stage, kind): options for stage in (0, 1) for kind in ("forward", "backward")}
    )
    assert chains(build(profile, "1f1b", 6, 10.0)) == ()
    few = Profile(
        {(stage, kind): options[:-1] for stage in (0, 1) for kind in ("forward", "backward")}
    )
    assert chains(build(few, "1f1b", 6, 10.0)) != ()


def test_microbatches_may_differ():
    """Microbatches have one to three options in turn: windows are the same, cycles are not."""
    profile = random_profile(0, 2, 3)
    ordinary = build(profile, "1f1b", 8, 4.0)
    pipeline = Pipeline(2, 4.0)
    for operation in ordinary.operations:
        assert operation.stage is not None
        assert operation.microbatch is not None
        options = profile[operation.stage, operation.instruction]
        fewer = options[: 1 + operation.microbatch % 3]
        pipeline.add(operation.instruction, fewer, device=operation.device, after=operation.after)
    assert chains(pipeline) == chains(ordinary)
    solution = solve(pipeline, 50)
    for time, energy in exact_frontier(pipeline):
        assert solution.lower_bound(time) <= energy * (1 + 1e-12)
    for plan in solution.plans:
        assert plan.execute().time == plan.time

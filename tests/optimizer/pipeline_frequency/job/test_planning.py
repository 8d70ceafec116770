"""From what ranks told to what they are to do."""

from __future__ import annotations

from array import array

import pytest
from tests.optimizer.pipeline_frequency.job.reports import (
    CLOCKS,
    complete,
    instructions,
    measured,
    options,
    registration,
)
from tests.present import present

from zeus.errors import PipelineError
from zeus.frontier import Point
from zeus.optimizer.pipeline_frequency import Profile, build, solve
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency._schedules import SCHEDULES, Shape
from zeus.optimizer.pipeline_frequency._total_power import total_power
from zeus.optimizer.pipeline_frequency.job._messages import Instruction, Straggler
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._planning import Messages, assemble, plan

LOADS = (1.0, 1.1, 1.0, 1.3)


def seen(name: str, chunks: int = 1, *, told: bool = False):
    """The parts of a schedule as its ranks see them."""
    shape = Shape(4, 4 * chunks, 8)
    in_turn = name != "zbv"
    return [instructions(steps, 4, told, in_turn) for steps in SCHEDULES[name](shape)]


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "1f1b-recompute", "zero-bubble"])
def test_the_graph_is_that_of_the_schedule_that_was_seen(name, told):
    job = complete(seen(name, told=told), loads=LOADS)
    pipeline, _, power, _ = assemble(job)
    profile = {}
    for rank, record in job.ranks.items():
        for kind, found in present(record.measured).options.items():
            profile[rank, kind.name] = found
    for each in ("recomputation",):  # the last stage has none, but a profile must have it
        if name == "1f1b-recompute":
            profile.setdefault((3, each), profile[3, "forward"])
    reference = build(Profile(profile), name, 8, present(power))
    ours, theirs = pipeline.at_highest_frequency(), reference.at_highest_frequency()
    assert (ours.time, ours.energy) == pytest.approx((theirs.time, theirs.energy))
    fastest, wanted = (solve(each).frontier.fastest for each in (pipeline, reference))
    assert fastest.energy == pytest.approx(wanted.energy, rel=2e-3)
    assert fastest.time == pytest.approx(wanted.time)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("name", ["interleaved", "zero-bubble", "zbv"])
def test_stages_of_a_place_are_told_apart_by_their_chunk(name, told):
    job = complete(seen(name, 2, told=told))
    pipeline, _, power, _ = assemble(job)
    backwards = ("backward", "backward_input", "backward_weight")
    profile = Profile(
        {
            (stage, name): options(seconds, 300 * seconds)
            for stage in range(8)
            for name, seconds in (("forward", 0.1), *((name, 0.2) for name in backwards))
        }
    )
    reference = build(profile, name, 8, present(power), chunks=2).at_highest_frequency()
    assert pipeline.at_highest_frequency().time == pytest.approx(reference.time)
    assert {operation.stage for operation in pipeline.operations} == set(range(8))


def test_backwards_may_be_split_in_some_stages_only():
    whole = [Instruction("forward"), Instruction("backward")]
    split = [Instruction("forward"), Instruction("backward_input"), Instruction("backward_weight")]
    pipeline, *_ = assemble(complete([split, whole]))
    by_name = {str(operation): number for number, operation in enumerate(pipeline.operations)}
    gradient = pipeline.operations[by_name["backward_input stage 0 microbatch 0"]]
    assert by_name["backward stage 1 microbatch 0"] in gradient.after


def test_clocks_come_in_the_order_of_the_rank():
    job = complete(seen("1f1b"), loads=LOADS)
    planned = plan(job)
    fastest = planned.solution.frontier.fastest
    for place in range(4):
        clocks = planned.clocks(fastest, place)
        assert len(clocks) == len(planned.sequences[place])
        assert set(clocks) <= set(CLOCKS)
    assert min(map(present, planned.clocks(fastest, 0))) < 1410
    assert planned.solution.frontier.fastest.energy < planned.before.energy


def test_delays_count_from_when_a_place_could_begin():
    planned = plan(complete(seen("1f1b"), loads=LOADS))
    fastest = planned.solution.frontier.fastest
    assert all(planned.delays(fastest, place) is None for place in range(4))
    free = fastest.knob.execute()
    numbers = [n for n, each in enumerate(free.pipeline.operations) if each.device == 2]
    not_before = array("d", bytes(8 * len(free.starts)))
    for place in (0, 3):
        not_before[numbers[place]] = free.starts[numbers[place]] + 0.25 * (place + 1)
    choices = array("H", map(tuple.index, fastest.knob.menu.options, free.options))
    late = Plan(
        fastest.knob.menu, choices.tobytes(), 9.0, 9.0, 9.0, not_before=not_before.tobytes()
    )
    point = Point(late, 9.0, 9.0)
    begin = free.starts[numbers[0]]  # when its input arrives
    expected = [0.25, 0.0, 0.0, free.starts[numbers[3]] + 1.0 - begin]
    expected += [0.0] * (len(numbers) - 4)
    assert planned.delays(point, 2) == pytest.approx(expected)
    assert planned.delays(point, 1) is None
    answer = planned.directive(point, 2, 7, capped=True)
    assert (answer.version, answer.capped) == (7, True)
    assert answer.not_before == planned.delays(point, 2)


def test_a_plan_that_keeps_a_swing_is_made_for_an_objective_that_has_one():
    job = complete(seen("1f1b"), loads=LOADS)
    watts = total_power(plan(job).before).swing
    job.objective = PipelineObjective(power_swing=0.5 * watts)
    for each in plan(job).solution.plans:
        assert total_power(each.execute()).swing <= 0.5 * watts


def test_communication_has_no_clock_and_takes_its_time():
    sequence = [Instruction("forward"), Instruction("communication"), Instruction("backward")]
    planned = plan(complete([sequence, sequence]))
    fastest = planned.solution.frontier.fastest
    assert planned.clocks(fastest, 0)[1] is None
    assert fastest.time == pytest.approx(0.1 + 0.1 + 0.01 + 0.2 + 0.2)


def test_gpus_of_a_place_count_with_the_longest_time_and_all_their_energy():
    sequence = [Instruction("forward"), Instruction("backward")]
    job = complete([sequence], degrees=(2, 1, 2))
    slow = measured(sequence, {("forward", 0): 2.0})
    job.put_measurements(1, "session 1", slow, 4.0)
    pipeline, *_ = assemble(job)
    # Pipeline 0 takes 0.2 s because of its second GPU, pipeline 1 takes 0.1 s: it straggles.
    forward = pipeline.operations[0].options[0]
    assert (forward.time, forward.energy) == pytest.approx((0.1, 30))
    job.put_measurements(2, "session 2", slow, 5.0)
    forward = assemble(job).pipeline.operations[0].options[0]
    assert (forward.time, forward.energy) == pytest.approx((0.2, (30 + 60) / 2))
    assert (pipeline.tensor_parallel, pipeline.data_parallel) == (2, 2)


def test_blocking_power_is_measured_where_there_is_time_and_told_beats_measured():
    orders = seen("1f1b")
    job = complete(orders)
    job.put_measurements(3, "session 3", measured(orders[3], power=None), 4.0)
    job.put_measurements(2, "session 2", measured(orders[2], power=110.0), 4.0)
    assert assemble(job).blocking_power == pytest.approx(80.0), "the median"
    told = complete(orders)
    told.register(registration(0, (1, 4, 1), "again", blocking_power=55.0), 4.0, lambda _: True)
    told.put_sequence(0, "again", orders[0], 4.0)
    told.put_measurements(0, "again", measured(orders[0]), 4.0)
    assert assemble(told).blocking_power == 55.0


F, B = Instruction("forward"), Instruction("backward")


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ([[F, F, B, B], [F, B]], "stage 1 has 1 and stage 0 has 2"),
        ([[F, B], [F]], "a gradient of each microbatch, but stage 1 has 0"),
        ([[B, F], [F, B]], "place 0 waits forever before backward of stage 0, microbatch 0"),
        (
            [[Instruction("forward", 0, 1), Instruction("forward", 0, 1)], [F, F]],
            "stage 0 has two of microbatch 1",
        ),
        ([[F, Instruction("forward", 1), B], [F, B]], "forward of each microbatch, but stage 3"),
        ([[F._replace(stage=2), B], [F, B]], "`stage < 2` must hold .* place 0 says stage=2"),
        ([[F, B._replace(stage=1)], [F, B]], "chunk 0 of place 0 is reported as 0 and 1"),
        ([[F._replace(stage=1)], [F]], "stage 1 is both chunk 0 of place 0 and 0 of 1"),
    ],
)
def test_orders_that_do_not_fit_together_are_told(orders, said):
    with pytest.raises(PipelineError, match=said):
        assemble(complete(orders))


def test_replicas_that_do_different_things_are_told():
    job = complete([[F, B], [F, B]], degrees=(2, 2, 1))
    job.put_sequence(2, "session 2", [F, F, B, B], 4.0)
    job.put_measurements(2, "session 2", measured([F, F, B, B]), 4.0)
    with pytest.raises(PipelineError, match="ranks 0 and 2 do not"):
        assemble(job)


# --- stragglers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    return plan(complete(seen("1f1b"), loads=LOADS, degrees=(3, 4, 1)))


def test_the_others_take_the_time_of_the_worst_straggler(planned):
    frontier = planned.solution.frontier
    fastest = frontier.fastest.time
    slow = {1: Straggler(1, slowdown=1.1), 2: Straggler(2, slowdown=1.05)}
    others, worst, lesser = (planned.point(slow, pipeline) for pipeline in range(3))
    assert others == frontier.at_time(1.1 * fastest * (1 + 1e-9))
    assert fastest < others.time <= 1.1 * fastest * (1 + 1e-6)
    assert worst == frontier.fastest
    assert 1.05 * lesser.time <= 1.1 * fastest * (1 + 1e-6)
    assert fastest <= lesser.time < others.time
    assert planned.point({}, 0) == frontier.fastest


def test_an_iteration_time_is_compared_with_what_a_step_takes_beyond_the_plan(planned):
    fastest = planned.solution.frontier.fastest.time
    slow = {1: Straggler(1, iteration_time=1.1 * fastest + 0.5)}
    exact = planned.point({1: Straggler(1, slowdown=1.1)}, 0)
    assert planned.point(slow, 0, step_time=fastest + 0.5) == exact
    quick = {1: Straggler(1, iteration_time=0.1)}
    assert planned.point(quick, 0).time == fastest  # nobody hurries more than possible


def test_beyond_the_least_energy_there_is_nothing_to_gain(planned):
    frontier = planned.solution.frontier
    assert planned.point({1: Straggler(1, slowdown=50.0)}, 0) == frontier.least_energy


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (Messages({}, block=False), ""),
        (Messages({}, block=True), "messages block"),
        (Messages({0: 0.02, 1: 0.02}, block=False), "messages take up to 20 ms"),
        (
            Messages({0: 0.005, 1: 0.05}, block=True),
            "messages take up to 50 ms (between stages 1 and 2), and block both ranks",
        ),
    ],
)
def test_messages_in_words(messages, said):
    assert str(messages) == said

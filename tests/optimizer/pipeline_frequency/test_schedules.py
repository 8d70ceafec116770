"""Schedules: known orders, what waits for what, and PyTorch's own."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.present import present

from zeus.errors import PipelineError, StageProfileError
from zeus.optimizer.pipeline_frequency import Operation, Option, Profile, Shape, Step, build, solve
from zeus.optimizer.pipeline_frequency._schedules import (
    SCHEDULES,
    early_recomputation,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
    zero_bubble_v,
)

LETTERS = {
    "forward": "F",
    "backward": "B",
    "recomputation": "R",
    "backward_input": "I",
    "backward_weight": "W",
}


def written(steps):
    return " ".join(f"{LETTERS[step.instruction]}{step.microbatch}" for step in steps)


def test_gpipe():
    assert [written(steps) for steps in gpipe(Shape(2, 2, 3))] == ["F0 F1 F2 B0 B1 B2"] * 2


def test_one_forward_one_backward():
    assert [written(steps) for steps in one_forward_one_backward(Shape(3, 3, 4))] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_fewer_microbatches_than_ranks():
    assert [written(steps) for steps in one_forward_one_backward(Shape(3, 3, 1))] == ["F0 B0"] * 3


def test_early_recomputation_comes_before_the_wait_for_a_gradient():
    first, last = early_recomputation(Shape(2, 2, 3))
    assert written(first) == "F0 F1 R0 B0 F2 R1 B1 R2 B2"
    assert written(last) == "F0 B0 F1 B1 F2 B2"


def test_zero_bubble_puts_off_gradients_of_weights():
    assert [written(steps) for steps in zero_bubble(Shape(3, 3, 4))] == [
        "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
        "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",
    ]


def test_interleaved_goes_through_each_stage_of_a_rank_in_rounds():
    first, second = interleaved(Shape(2, 4, 4))
    assert [(step.stage, step.microbatch) for step in first if step.instruction == "forward"] == [
        (0, 0), (0, 1), (2, 0), (2, 1), (0, 2), (0, 3), (2, 2), (2, 3),
    ]  # fmt: skip
    assert {step.stage for step in second} == {1, 3}


def step_of(operation: Operation) -> Step:
    return Step(operation.instruction, present(operation.stage), present(operation.microbatch))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("devices", "microbatches"), [(1, 1), (1, 5), (2, 4), (4, 4), (4, 12)])
def test_every_step_occurs_once_and_the_graph_can_be_built(name, devices, microbatches):
    chunks = {"interleaved": 3, "zbv": 2}.get(name, 1)
    order = SCHEDULES[name](Shape(devices, devices * chunks, microbatches))
    counts = Counter(step for steps in order for step in steps)
    assert set(counts.values()) == {1}
    for rank, steps in enumerate(order):
        expected = {rank + devices * chunk for chunk in range(chunks)}
        if name == "zbv":
            expected = {rank, 2 * devices - 1 - rank}
        assert {step.stage for step in steps} == expected
    profile = Profile(
        {
            (stage, instruction): [Option(1, 1.0, 1.0)]
            for stage in range(devices * chunks)
            for instruction in ("forward", "backward")
        }
    )
    pipeline = build(profile, name, microbatches, 0.0, chunks=chunks)
    assert len(pipeline.operations) == len(counts)
    ends = {}
    execution = pipeline.at_highest_frequency()
    for operation, start, option in zip(
        pipeline.operations, execution.starts, execution.options, strict=True
    ):
        step = step_of(operation)
        ends[step] = start + option.time
        # Whatever the schedule, data goes down the stages, and gradients come up.
        if step.instruction == "forward" and step.stage > 0:
            assert start >= ends[step._replace(stage=step.stage - 1)]
        if step.instruction in ("backward", "backward_input"):
            assert start >= ends[Step("forward", step.stage, step.microbatch)]
            if step.stage < profile.stages - 1:
                assert start >= ends[step._replace(stage=step.stage + 1)]
        if step.instruction == "backward_weight":
            assert start >= ends[step._replace(instruction="backward_input")]
        if step.instruction == "backward" and name == "1f1b-recompute":
            again = step._replace(instruction="recomputation")
            assert step.stage == devices - 1 or start >= ends[again]


def test_zero_bubble_with_several_stages_puts_off_gradients_of_weights():
    first, last = zero_bubble(Shape(2, 4, 2))
    assert written(first) == "F0 F1 F0 F1 I0 W0 I1 W1 I0 W0 I1 W1"
    assert [step.stage for step in first] == [0, 0, 2, 2] + [2] * 4 + [0] * 4
    assert written(last) == "F0 F1 F0 I0 F1 I1 W0 I0 W1 I1 W0 W1"


def test_a_v_comes_back_to_the_first_rank():
    first, last = zero_bubble_v(Shape(2, 4, 3))
    assert written(first) == "F0 F1 F2 F0 I0 W0 F1 I1 W1 I0 W0 F2 I2 W2 I1 W1 I2 W2"
    assert [step.stage for step in first] == [0] * 3 + [3] * 6 + [0] * 2 + [3] * 3 + [0] * 4
    assert written(last) == "F0 F0 F1 F1 I0 W0 F2 I0 W0 F2 I1 W1 I1 I2 I2 W1 W2 W2"
    assert {step.stage for step in last} == {1, 2}


def test_no_rank_of_a_v_waits_if_everything_takes_equally_long():
    parts = ("forward", "backward_input", "backward_weight")
    profile = Profile({(s, part): [Option(1, 1.0, 1.0)] for s in range(8) for part in parts})
    execution = build(profile, "zbv", 9, 0.0).at_highest_frequency()
    spans: dict = {}
    for operation, start in zip(execution.pipeline.operations, execution.starts, strict=True):
        spans.setdefault(operation.device, []).append(start)
    assert [max(starts) + 1 - min(starts) for starts in spans.values()] == [54.0] * 4


def orders_of_pytorch(devices, kind, chunks, microbatches, v):
    """As PyTorch's schedule states them for all ranks."""
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    torch = pytest.importorskip("torch")
    stages = devices * chunks
    own = [0, stages - 1] if v else range(0, stages, devices)
    parts = [
        pipelining.PipelineStage(torch.nn.Identity(), stage, stages, torch.device("cpu"))
        for stage in own
    ]
    single = issubclass(kind, pipelining.schedules.PipelineScheduleSingle)
    schedule = kind(parts[0] if single else parts, n_microbatches=microbatches)
    names = {
        "FORWARD": "forward",
        "FULL_BACKWARD": "backward",
        "BACKWARD_INPUT": "backward_input",
        "BACKWARD_WEIGHT": "backward_weight",
    }
    return [
        [
            Step(names[action.computation_type.name], action.stage_index, action.microbatch_index)
            for action in actions
            if action is not None and action.computation_type.name in names
        ]
        for _, actions in sorted(schedule.pipeline_order.items())
    ]


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_orders_are_those_of_pytorch(devices):
    distributed = pytest.importorskip("torch.distributed")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    several = [devices, devices + 1, 2 * devices, 3 * devices]
    equal_rounds = [devices, 2 * devices, 4 * devices]
    cases = [
        ("gpipe", schedules.ScheduleGPipe, [1], [1, *several]),
        ("1f1b", schedules.Schedule1F1B, [1], several),
        ("interleaved", schedules.ScheduleInterleaved1F1B, [1, 2, 3], equal_rounds),
        ("zero-bubble", schedules.ScheduleInterleavedZeroBubble, [1, 2, 3], equal_rounds),
        ("zbv", schedules.ScheduleZBVZeroBubble, [2], [1, *several]),
    ]
    distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=devices)
    try:
        for name, kind, all_chunks, all_microbatches in cases:
            for chunks in all_chunks:
                for microbatches in all_microbatches:
                    theirs = orders_of_pytorch(devices, kind, chunks, microbatches, name == "zbv")
                    ours = SCHEDULES[name](Shape(devices, devices * chunks, microbatches))
                    if name == "1f1b":
                        # PyTorch's table has the last rank's forwards from 1 on. What it runs does
                        # not follow the table, and is compared where its runtime is.
                        del ours[-1], theirs[-1]
                    assert ours == theirs, (name, chunks, microbatches)
    finally:
        distributed.destroy_process_group()


def test_communication_and_data_loading_take_their_time(profile):
    plain = build(profile, "1f1b", 3, 80.0).at_highest_frequency()
    slower = build(profile, "1f1b", 3, 80.0, communication=0.01, data_loading=0.02)
    kinds = Counter(operation.instruction for operation in slower.operations)
    # Two boundaries between stages, each crossed both ways by three microbatches.
    assert kinds == {"forward": 9, "backward": 9, "communication": 12, "data_loading": 3}
    loads = [op for op in slower.operations if op.instruction == "data_loading"]
    assert {operation.device for operation in loads} == {0}
    sends = [op for op in slower.operations if op.instruction == "communication"]
    assert {operation.device for operation in sends} == {None}
    execution = slower.at_highest_frequency()
    # The first microbatch is loaded, goes down and comes up again.
    assert execution.time >= plain.time + 0.02 + 4 * 0.01 - 1e-12
    assert execution.computation_energy == pytest.approx(plain.computation_energy + 3 * 0.02 * 80.0)


def test_missing_instructions_follow_from_those_measured(profile):
    again = build(profile, "1f1b-recompute", 3, 80.0)
    options = {op.instruction: op.options for op in again.operations if op.stage == 0}
    assert options["recomputation"] == options["forward"]
    halves = build(profile, "zero-bubble", 3, 80.0)
    options = {op.instruction: op.options for op in halves.operations if op.stage == 1}
    whole = profile[1, "backward"]
    for part in ("backward_input", "backward_weight"):
        assert options[part][0].time == pytest.approx(whole[0].time / 2)
    # What was measured counts.
    measured = profile.with_parts("backward", {"backward_input": 0.3, "backward_weight": 0.9})
    operations = build(measured, "zero-bubble", 3, 80.0).operations
    weights = next(op for op in operations if op.instruction == "backward_weight")
    assert weights.options[0].time == pytest.approx(0.9 * profile[0, "backward"][0].time)


def test_zero_bubble_is_faster_than_1f1b(profile):
    times = {
        name: solve(build(profile, name, 6, 80.0), 5).plans[0].time
        for name in ("1f1b", "zero-bubble")
    }
    assert times["zero-bubble"] < times["1f1b"]


def test_a_schedule_of_ones_own(profile):
    def one_by_one(shape: Shape) -> list[list[Step]]:
        return [
            [
                Step(instruction, rank, microbatch)
                for microbatch in range(shape.microbatches)
                for instruction in ("forward", "backward")
            ]
            for rank in range(shape.devices)
        ]

    alone = build(profile, one_by_one, 2, 80.0, name="one by one")
    together = build(profile, "1f1b", 2, 80.0)
    assert alone.name == "one by one"
    assert alone.at_highest_frequency().time > together.at_highest_frequency().time


def test_only_what_another_rank_needs_is_sent():
    profile = Profile(
        {(s, i): [Option(1, 1.0, 1.0)] for s in range(4) for i in ("forward", "backward")}
    )

    def sent(schedule, **options):
        pipeline = build(profile, schedule, 1, 0.0, communication=0.5, **options)
        return [o.stage for o in pipeline.operations if o.instruction == "communication"]

    assert sent("1f1b") == [0, 1, 2, 3, 2, 1]
    assert sent("zbv") == [0, 2, 3, 1]  # stages 1 and 2 are on the same rank
    assert sent("interleaved", chunks=4) == []


def test_backwards_may_be_whole_in_one_stage_and_split_in_the_next(profile):
    def mixed(shape: Shape) -> list[list[Step]]:
        order = one_forward_one_backward(shape)
        order[1] = zero_bubble(shape)[1]
        return order

    pipeline = build(profile, mixed, 3, 80.0)
    numbers = {step_of(operation): number for number, operation in enumerate(pipeline.operations)}
    split, whole = Step("backward_input", 1, 0), Step("backward", 0, 0)
    assert numbers[split] in pipeline.operations[numbers[whole]].after
    assert numbers[whole._replace(stage=2)] in pipeline.operations[numbers[split]].after


def test_a_schedule_that_waits_for_itself_is_refused(profile):
    def backwards(shape: Shape) -> list[list[Step]]:
        return [list(reversed(steps)) for steps in one_forward_one_backward(shape)]

    with pytest.raises(PipelineError, match="cannot be followed: rank 0 waits forever"):
        build(profile, backwards, 2, 80.0)
    with pytest.raises(PipelineError, match="occurs twice"):
        build(profile, lambda _: [[Step("forward", 0, 0)] * 2, [], []], 2, 80.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"schedule": "2f2b"}, "must be one of gpipe, 1f1b, interleaved"),
        ({"microbatches": 0}, "microbatches=0"),
        ({"microbatches": 2.0}, "microbatches=2.0"),
        ({"microbatches": 10**6}, "at most 200000 operations, .* are 6000000"),
        ({"chunks": 0}, "chunks=0"),
        ({"chunks": 2}, "chunks=2 and 3 stages"),
        ({"chunks": 3}, "1f1b has one stage per rank, but got 3"),
        ({"schedule": "zbv"}, "chunks=2 and 3 stages"),
        ({"schedule": "zbv", "chunks": 1}, "zbv has two stages per rank, but got 1"),
        ({"schedule": "interleaved", "microbatches": 7}, "equal rounds"),
        ({"communication": -1.0}, "`communication >= 0`"),
    ],
)
def test_rules_of_schedules(profile, arguments, said):
    if arguments.get("schedule") == "interleaved":
        profile = Profile({(stage, i): profile[stage % 3, i] for stage in range(6)
                           for i in ("forward", "backward")})  # fmt: skip
        arguments = {**arguments, "chunks": 2}
    with pytest.raises(PipelineError) as raised:
        build(
            profile, **{"schedule": "1f1b", "microbatches": 4, "blocking_power": 80.0, **arguments}
        )
    assert re.search(said, str(raised.value))


def test_ranks_divide_stages():
    with pytest.raises(PipelineError, match="stages=5, devices=2"):
        Shape(2, 5, 1)


def test_a_profile_must_have_what_the_schedule_runs():
    profile = Profile({(0, "forward"): [Option(1, 1.0, 1.0)]})
    with pytest.raises(StageProfileError, match="stage 0 has no 'backward'"):
        build(profile, "gpipe", 2, 0.0)


def ended(profile, *without):
    """The profile with an exchange and a step of the optimizer, but for some stages' exchange."""
    options = dict(profile)
    for stage in range(profile.stages):
        if stage not in without:
            options[stage, "gradient_exchange"] = (Option(None, 0.03, 4.0),)
        options[stage, "optimizer_step"] = (Option(1410, 0.02, 5.0), Option(900, 0.025, 3.0))
    return Profile(options)


@pytest.mark.parametrize("blocking_messages", [False, True])
def test_an_iteration_ends_with_the_exchange_and_the_step_of_each_rank(profile, blocking_messages):
    more = {"communication": 0.01, "blocking_messages": blocking_messages}
    bare = build(profile, "1f1b", 4, 80.0, **more)
    pipeline = build(ended(profile, 1), "1f1b", 4, 80.0, **more)
    added = pipeline.operations[len(bare.operations) :]
    assert [(each.instruction, each.device, each.stage, each.microbatch) for each in added] == [
        ("gradient_exchange", 0, 0, None), ("optimizer_step", 0, 0, None),
        ("optimizer_step", 1, 1, None),
        ("gradient_exchange", 2, 2, None), ("optimizer_step", 2, 2, None),
    ]  # fmt: skip
    # Each waits for the operation before it on its own rank, and for no other rank.
    for each in added:
        (previous,) = each.after
        assert pipeline.operations[previous].device == each.device
    before, after = bare.at_highest_frequency(), pipeline.at_highest_frequency()
    assert after.time == pytest.approx(before.time + 0.05)  # the first rank ends last


def test_steps_of_the_optimizer_have_clocks_of_their_own(profile):
    """Ranks that end early step slowly, and the one that ends last does not."""
    plan = solve(build(ended(profile), "1f1b", 4, 80.0), 20).plans[0]
    clocks = {
        operation.device: option.frequency
        for device in range(3)
        for operation, option in plan.of_device(device)
        if operation.instruction == "optimizer_step"
    }
    assert clocks == {0: 1410, 1: 900, 2: 900}


def test_a_rank_of_several_stages_ends_each_of_them(profile):
    options = {(stage, kind): profile[stage % 3, kind] for stage in range(4)
               for kind in ("forward", "backward")}  # fmt: skip
    pipeline = build(ended(Profile(options)), "interleaved", 4, 80.0, chunks=2)
    tail = [each for each in pipeline.operations if each.microbatch is None]
    assert [(each.instruction[0], each.stage) for each in tail if each.device == 1] == [
        ("g", 1), ("g", 3), ("o", 1), ("o", 3),
    ]  # fmt: skip

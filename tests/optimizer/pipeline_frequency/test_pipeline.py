"""Graphs of operations, and what executing them takes."""

from __future__ import annotations

import pytest

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency import Option, Pipeline, solve

FAST, SLOW = Option(1400, 1.0, 100.0), Option(700, 2.0, 60.0)


def test_operations_of_a_device_follow_each_other():
    pipeline = Pipeline(2, 0.0)
    first = pipeline.add("a", [FAST], device=0)
    second = pipeline.add("b", [FAST], device=0)
    other = pipeline.add("c", [FAST], device=1, after=[first])
    last = pipeline.add("d", [FAST], device=0, after=[other, second])
    assert [operation.after for operation in pipeline.operations] == [(), (0,), (0,), (2, 1)]
    assert pipeline.at_highest_frequency().starts == (0.0, 1.0, 1.0, 2.0)
    assert last == 3


def test_energy_counts_computation_and_waiting_on_every_gpu():
    pipeline = Pipeline(3, 10.0)
    first = pipeline.add("a", [FAST, SLOW], device=0)
    pipeline.add("b", [FAST, SLOW], device=1, after=[first])
    execution = pipeline.execute([SLOW, FAST])
    assert execution.time == 3.0
    assert execution.starts == (0.0, 2.0)
    assert execution.computation_energy == 160.0
    # Rank 0 waits for 1 s, rank 1 for 2 s, and rank 2 all the time.
    assert execution.waiting_energy == 10.0 * (1 + 2 + 3)
    assert execution.energy == 220.0


def test_tensor_and_data_parallel_gpus_count_each():
    pipeline = Pipeline(2, 10.0, tensor_parallel=4, data_parallel=2)
    pipeline.add("a", [FAST], device=0)
    execution = pipeline.at_highest_frequency()
    assert pipeline.gpus == 8
    assert execution.computation_energy == 2 * 4 * 100.0
    assert execution.waiting_energy == 2 * 4 * 10.0


def test_fixed_operations():
    pipeline = Pipeline(2, 10.0, tensor_parallel=2)
    load = pipeline.add_fixed("load", 0.5, device=0)
    work = pipeline.add("a", [FAST], device=0)
    send = pipeline.add_fixed("send", 0.25, after=[work])
    copy = pipeline.add_fixed("copy", 0.25, energy=7.0, device=1, after=[send])
    pipeline.add_fixed("cool", 0.1, energy=3.0, after=[copy])
    execution = pipeline.at_highest_frequency()
    assert execution.starts == (0.0, 0.5, 1.5, 1.75, 2.0)
    assert execution.time == 2.1
    # Loading is waiting; what no GPU is busy with counts once.
    assert execution.computation_energy == 2 * (0.5 * 10.0 + 100.0 + 7.0) + 3.0
    waiting = 2 * (2.1 - 1.5) + 2 * (2.1 - 0.25)
    assert execution.waiting_energy == pytest.approx(10.0 * waiting)
    assert load == 0
    (plan,) = solve(pipeline).plans
    assert plan.energy == pytest.approx(execution.energy)
    assert plan.frequencies == (None, 1400, None, None, None)


def test_a_straggler_makes_the_others_wait():
    pipeline = Pipeline(2, 10.0, data_parallel=3)
    pipeline.add("a", [FAST], device=0)
    own = pipeline.at_highest_frequency()
    late = own.lasting(1.5)
    assert (late.time, late.starts) == (1.5, own.starts)
    assert late.energy == pytest.approx(own.energy + 3 * 2 * 0.5 * 10.0)
    assert own.lasting(0.3) == own


def test_operations_say_what_they_are():
    pipeline = Pipeline(1, 0.0)
    pipeline.add("forward", [FAST], device=0, stage=3, microbatch=7)
    pipeline.add_fixed("send", 1.0)
    assert [str(operation) for operation in pipeline.operations] == [
        "forward stage 3 microbatch 7",
        "send",
    ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: p.add("a", []), "at least one option"),
        (lambda p: p.add("a", [Option(1, -1.0, 1.0)]), "`time >= 0`"),
        (lambda p: p.add("a", [Option(1, float("nan"), 1.0)]), "`time >= 0`"),
        (lambda p: p.add("a", [Option(1, 1.0, float("inf"))]), "`energy <= 1e+12`"),
        (lambda p: p.add("a", [FAST], device=2), "`0 <= device < 2` must hold, but got device=2"),
        (lambda p: p.add("a", [FAST], after=[0]), "got after=0"),
        (lambda p: p.add_fixed("a", -1.0), "`time >= 0`"),
        (lambda p: p.add_fixed("a", "soon"), "`time` must be a number, but got time='soon'"),
        (lambda p: p.execute([FAST]), "each of the 0 operations needs one option, but got 1"),
    ],
)
def test_rules_of_graphs(call, said):
    with pytest.raises(PipelineError) as raised:
        call(Pipeline(2, 0.0))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"devices": 0}, "devices=0"),
        ({"devices": True}, "devices=True"),
        ({"devices": 1.0}, "devices=1.0"),
        ({"tensor_parallel": 0}, "tensor_parallel=0"),
        ({"data_parallel": -1}, "data_parallel=-1"),
        ({"blocking_power": -1.0}, "`blocking_power >= 0` must hold, but got blocking_power=-1.0"),
        ({"blocking_power": float("nan")}, "blocking_power=nan"),
        ({"blocking_power": None}, "must be a number, but got blocking_power=None"),
    ],
)
def test_rules_of_pipelines(arguments, said):
    with pytest.raises(PipelineError) as raised:
        Pipeline(**{"devices": 1, "blocking_power": 0.0, **arguments})
    assert said in str(raised.value)


def test_what_was_planned_cannot_be_changed(small):
    pipeline = small()
    solve(pipeline, 3)
    with pytest.raises(PipelineError, match="nothing can be added"):
        pipeline.add("more", [FAST], device=0)


def test_a_pipeline_that_takes_no_time_cannot_be_planned():
    pipeline = Pipeline(1, 0.0)
    pipeline.add_fixed("nothing", 0.0)
    with pytest.raises(PipelineError, match="takes no time"):
        solve(pipeline)


def test_the_same_operations_with_other_options():
    pipeline = Pipeline(2, 10.0, tensor_parallel=2, data_parallel=3, name="a model")
    shared = (FAST, SLOW)
    first = pipeline.add("a", shared, device=0, stage=0, microbatch=4)
    send = pipeline.add("send", shared, after=[first])
    pipeline.add("b", shared, device=1, stage=1, microbatch=4, after=[send])
    asked = []

    def slowest(operation):
        asked.append(operation.instruction)
        return operation.options if operation.device is None else operation.options[1:]

    other = pipeline.with_options(slowest)
    assert asked == ["a", "send"]  # once for all that share options, but not for messages
    assert [each.options for each in other.operations] == [(SLOW,), (FAST, SLOW), (SLOW,)]
    assert other.operations[0].options is other.operations[2].options
    assert [
        (each.instruction, each.device, each.stage, each.microbatch, each.after)
        for each in other.operations
    ] == [("a", 0, 0, 4, ()), ("send", None, None, None, (0,)), ("b", 1, 1, 4, (1,))]
    assert (other.gpus, other.data_parallel, other.blocking_power) == (4, 3, 10.0)
    assert other.name == "a model"
    assert [each.options for each in pipeline.operations] == [shared] * 3
    with pytest.raises(PipelineError, match="at least one option"):
        pipeline.with_options(lambda _: ())

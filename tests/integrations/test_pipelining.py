"""PyTorch's pipeline runtime: what its schedules compute is told, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from tests.integrations.pipelining_rank import Recorder
from torch import distributed
from torch._C._distributed_c10d import HashStore
from torch.distributed import pipelining

from zeus.errors import FrameworkError, PipelineError
from zeus.integrations.pipelining import attach
from zeus.optimizer.pipeline_frequency._schedules import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    SCHEDULES,
    Shape,
)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """By rank and schedule, what two real processes have told."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).parent / "pipelining_rank.py"
    files = [folder / f"{rank}.json" for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", script, str(rank), folder / "rendezvous", file],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    try:
        for rank in ranks:
            _, errors = rank.communicate(timeout=300)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2),
                                              ("zero-bubble", 1), ("zbv", 2)])  # fmt: skip
def test_computations_are_told_in_the_order_of_the_schedule(told, name, chunks):
    order = SCHEDULES[name](Shape(2, 2 * chunks, 4))
    for rank, steps in enumerate(order):
        expected = []
        for instruction, stage, microbatch in steps:
            if (instruction, stage) == (BACKWARD_INPUT, 0):
                continue  # nobody needs gradients of the model's input: nothing to compute
            whole = (instruction, stage) == (BACKWARD_WEIGHT, 0)
            said = "backward" if whole else instruction
            expected.append([said, stage // 2, microbatch, said])
        # Twice, because there are two steps; the evaluation between them is not told.
        assert told[rank][name]["story"] == ["step", *expected, "end"] * 2


@pytest.mark.parametrize(
    ("name", "stages"),
    [("interleaved", [[None, None]] * 2), ("zbv", [[None, 3], [None, 2]])],
)
def test_the_stage_is_told_where_it_does_not_follow_from_the_chunk(told, name, stages):
    assert [rank[name]["stages"] for rank in told] == stages


def test_what_dual_pipe_computes_at_once_is_told_one_after_the_other(told):
    names = {
        "FORWARD": "forward",
        "FULL_BACKWARD": "backward",
        "BACKWARD_INPUT": BACKWARD_INPUT,
        "BACKWARD_WEIGHT": BACKWARD_WEIGHT,
    }
    for rank in told:
        expected = []
        for kind, stage, microbatch in rank["dualpipev"]["order"]:
            name = names[kind]
            if stage == 0 and name == BACKWARD_INPUT:
                continue
            if stage == 0 and name == BACKWARD_WEIGHT:
                name = "backward"
            expected.append([name, stage // 2, microbatch, name])
        assert rank["dualpipev"]["story"] == ["step", *expected, "end"] * 2


@pytest.mark.parametrize(
    "name", ["gpipe", "1f1b", "interleaved", "zero-bubble", "zbv", "dualpipev"]
)
def test_nothing_is_changed_and_no_wait_is_taken_for_a_computation(told, name):
    for rank in told:
        assert rank[name]["same"]
        assert rank[name]["waits"] > 0
        assert rank[name]["waits while computing"] == 0


# --- one stage, in this process -------------------------------------------------------------------


class Stage(torch.nn.Module):
    """Can be told to fail."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.fails = False

    def forward(self, x):
        if self.fails:
            raise ArithmeticError("a stage that fails")
        return self.layer(x)


@pytest.fixture
def module():
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield Stage()
    distributed.destroy_process_group()


def schedule_of(module, loss=torch.nn.functional.mse_loss):
    stage = pipelining.PipelineStage(module, 0, 1, torch.device("cpu"))
    return pipelining.ScheduleGPipe(stage, n_microbatches=1, loss_fn=loss)


X = torch.ones(2, 2)


def test_the_loss_belongs_to_the_forward_of_the_last_stage(module):
    recorder = Recorder()
    during = []

    def loss(output, target):
        during.append(recorder.computing)
        return (output - target).square().sum()

    schedule = schedule_of(module, loss)
    schedule.step(X, target=X)  # sets the schedule up, which also asks for a loss
    during.clear()
    attach(schedule, recorder)
    schedule.step(X, target=X)
    assert during == [True]
    assert [each[0] for each in recorder.story[1:-1]] == ["forward", "backward"]


def test_an_exception_closes_the_optimizer_and_frees_the_schedule(module):
    schedule, recorder = schedule_of(module), Recorder()
    attach(schedule, recorder)
    schedule.step(X, target=X)
    recorder.story.clear()
    module.fails = True
    with pytest.raises(RuntimeError, match="failed to run forward"):
        schedule.step(X, target=X)
    assert recorder.story == ["step", ["forward", 0, 0], "close"]
    module.fails = False
    schedule.step(X, target=X)
    assert recorder.story[-1] == "close"


def test_detaching_leaves_no_trace(module):
    schedule, recorder = schedule_of(module), Recorder()
    things = (schedule, schedule._stage)
    before = [dict(vars(thing)) for thing in things]
    with attach(schedule, recorder) as hooks:
        with hooks.step():  # the step of the optimizer belongs to it, too
            schedule.step(X, target=X)
            recorder.story.append("optimizer")
        assert recorder.story[-2:] == ["optimizer", "end"]
        assert recorder.story.count("step") == 1
    told = len(recorder.story)
    schedule.step(X, target=X)
    assert len(recorder.story) == told
    for thing, names in zip(things, before, strict=True):
        assert vars(thing).keys() == names.keys()
    assert schedule._loss_fn is before[0]["_loss_fn"]


def test_a_schedule_that_does_not_train_is_refused(module):
    with pytest.raises(PipelineError, match="must have a loss function"):
        attach(schedule_of(module, None), Recorder())


def test_another_pytorch_is_told_with_its_version(module, monkeypatch):
    schedule = schedule_of(module)
    monkeypatch.delattr(pipelining.stage._PipelineStageBase, "forward_one_chunk")
    with pytest.raises(FrameworkError) as raised:
        attach(schedule, Recorder())
    assert f"PyTorch {torch.__version__} is not supported" in str(raised.value)
    assert str(raised.value).endswith("PipelineStage has no forward_one_chunk")
    with pytest.raises(FrameworkError, match="object has no _loss_fn"):
        attach(object(), Recorder())

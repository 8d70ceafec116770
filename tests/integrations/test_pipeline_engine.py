"""Engines that are not PyTorch's: one's own, and tiny ones as Megatron-LM and DeepSpeed are."""

from __future__ import annotations

import types
from types import MethodType

import pytest
from tests.integrations import tiny_megatron

from zeus.errors import FrameworkError, PipelineError
from zeus.integrations.pipeline_engine import PipelineHooks, attach_deepspeed, attach_megatron


class Recorder:
    """Writes what it is told into a list, between what others write there."""

    def __init__(self, log):
        self.log = log

    def on_step_begin(self):
        self.log.append("step")

    def on_step_end(self):
        self.log.append("end")

    def on_instruction_begin(self, name, *, chunk=0, microbatch=None, stage=None):
        where = f"{chunk}" if microbatch is None else f"{chunk}.{microbatch}"
        self.log.append(f"{name} {where}")

    def on_instruction_end(self, name):
        self.log.append(f"/{name}")

    def close(self):
        self.log.append("close")


# --- an engine of one's own -----------------------------------------------------------------------


def test_blocks_tell_what_they_surround():
    log: list[str] = []
    hooks = PipelineHooks(Recorder(log))
    with hooks.step(), hooks.computation("forward", chunk=1, microbatch=3):
        with hooks.computation("recomputation"):  # a part of the forward
            log.append("work")
        with hooks.step():  # a part of the step
            log.append("more")
    with hooks.computation("forward"):  # an evaluation
        log.append("evaluation")
    with hooks.ignored(), hooks.step(), hooks.computation("forward"):
        log.append("and another")
    assert log == [
        "step", "forward 1.3", "work", "more", "/forward", "end", "evaluation", "and another",
    ]  # fmt: skip


def test_functions_may_know_their_chunk_from_their_arguments():
    log: list[str] = []
    hooks = PipelineHooks(Recorder(log))
    compute = hooks.around(
        lambda part, number: part * number, "forward", chunk=lambda part, _: part
    )
    with hooks.step():
        assert compute(2, 5) == 10
    assert log == ["step", "forward 2", "/forward", "end"]


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_after_an_exception_all_is_over(error):
    log: list[str] = []
    hooks = PipelineHooks(Recorder(log))
    with pytest.raises(error), hooks.step(), hooks.computation("backward"):
        raise error
    with hooks.step(), hooks.computation("forward"):
        log.append("work")
    assert log == ["step", "backward 0", "close", "work"]


def test_a_computation_that_does_not_end_is_a_mistake():
    log: list[str] = []
    hooks = PipelineHooks(Recorder(log))
    with (
        pytest.raises(PipelineError, match="must end before its step, but 'forward' has not ended"),
        hooks.step(),
    ):
        assert hooks.begin("forward")
    assert log == ["step", "forward 0", "close"]


def test_what_somebody_else_has_wrapped_stays_and_passes_on():
    log: list[str] = []
    hooks = PipelineHooks(Recorder(log))
    engine = types.SimpleNamespace(compute=lambda: log.append("work"), iterate=None)
    before = engine.compute
    hooks.replace(engine, "compute", hooks.around(engine.compute, "forward"))
    ours = engine.compute
    theirs = engine.compute = lambda *_: ours()
    hooks.replace(engine, "iterate", hooks.around_step(engine.compute))
    engine.iterate()
    assert log == ["step", "forward 0", "work", "/forward", "end"]
    hooks.detach()
    assert (engine.compute, engine.iterate) == (theirs, None)
    log.clear()
    engine.compute()
    assert (log, before) == (["work"], ours.__wrapped__)


# --- in the style of Megatron-LM ------------------------------------------------------------------


@pytest.fixture
def log():
    tiny_megatron.log.clear()
    return tiny_megatron.log


def iterate(model, *, interleaved=False, **options):
    forward_only = options.pop("forward_only", False)
    return tiny_megatron.get_forward_backward_func(interleaved)(
        forward_step_func=lambda number, part: number + part["bias"],
        data_iterator=iter(range(2)),
        model=model,
        num_microbatches=2,
        config=options,
        forward_only=forward_only,
    )


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_a_megatron_is_told_without_its_communication(log, lists, listed):
    model = {"bias": 10}
    given = [model] if listed else model
    with attach_megatron(tiny_megatron, given, Recorder(log)):
        assert iterate(given, lists=lists) == [10, 11]
    assert log == [
        "step",
        "receive", "forward 0.0", "/forward", "send", "receive", "forward 0.1", "/forward", "send",
        "receive", "backward 0.0", "/backward", "send",
        "receive", "backward 0.1", "/backward", "send",
        "end",
    ]  # fmt: skip


def test_parts_of_an_interleaved_megatron_are_known_in_the_backward_too(log):
    model = [{"bias": 10}, {"bias": 20}]
    hooks = attach_megatron(tiny_megatron, model, Recorder(log))
    try:
        assert iterate(model, interleaved=True) == [10, 11, 30, 31]
        told = [entry for entry in log if entry[0] in "fb"]
        assert told == [
            "forward 0.0", "forward 0.1", "forward 1.0", "forward 1.1",
            "backward 1.0", "backward 1.1", "backward 0.0", "backward 0.1",
        ]  # fmt: skip
        log.clear()
        iterate(model, interleaved=True, forward_only=True)
        assert log == []
    finally:
        hooks.detach()
    assert iterate(model, interleaved=True) == [10, 11, 30, 31]
    assert log == []
    assert tiny_megatron.forward_step.__name__ == "forward_step"
    assert not hasattr(tiny_megatron.forward_step, "__wrapped__")


def test_mistakes_with_a_megatron_are_told(log):
    with (
        attach_megatron(tiny_megatron, {"bias": 1}, Recorder(log)),
        pytest.raises(PipelineError, match="`model` must be what is passed to forward_backward"),
    ):
        iterate({"bias": 2})
    assert log[-1] == "close"
    log.clear()
    model = {"bias": 1}
    with (
        attach_megatron(tiny_megatron, model, Recorder(log)),
        pytest.raises(ArithmeticError, match="a backward that fails"),
    ):
        iterate(model, fails=True)
    assert log[-2:] == ["backward 0.0", "close"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "has no forward_backward_ function"),
        ("def forward_backward_x(): ...", r"has no forward_step\(..., model\)"),
        (
            "def forward_backward_x(): ...\ndef forward_step(model): ...\ndef backward_step(): ...",
            r"has no backward_step\(..., output_tensor\)",
        ),
    ],
)
def test_another_megatron_is_told(source, said):
    module = types.ModuleType("schedules")
    exec(source, vars(module))
    before = dict(vars(module))
    with pytest.raises(FrameworkError, match=f"megatron.core of unknown version .*{said}"):
        attach_megatron(module, {}, Recorder([]))
    assert vars(module) == before


# --- in the style of DeepSpeed --------------------------------------------------------------------


class Instruction:
    def __init__(self, **kwargs):
        self.kwargs = kwargs


ForwardPass, BackwardPass, SendActivation = (
    type(name, (Instruction,), {}) for name in ("ForwardPass", "BackwardPass", "SendActivation")
)


class Engine:
    """Looks instructions up in a map of its class, and makes methods of what it finds."""

    def __init__(self):
        self.log = []

    def _exec_forward_pass(self, buffer_id):
        self.log.append(f"F{buffer_id}")

    def _exec_backward_pass(self, buffer_id):
        self.log.append(f"B{buffer_id}")

    def _exec_send_activations(self, buffer_id):
        self.log.append("send")

    _INSTRUCTION_MAP = {  # noqa: RUF012
        ForwardPass: _exec_forward_pass,
        BackwardPass: _exec_backward_pass,
        SendActivation: _exec_send_activations,
    }

    def _exec_schedule(self, instructions):
        for instruction in instructions:
            method = MethodType(self._INSTRUCTION_MAP[type(instruction)], self)
            method(**instruction.kwargs)

    def train_batch(self, data_iter=None):
        kinds = ForwardPass, SendActivation, BackwardPass
        self._exec_schedule(kind(buffer_id=1) for kind in kinds)
        return "loss"

    def eval_batch(self, data_iter):
        self._exec_schedule([ForwardPass(buffer_id=0)])


def test_a_deepspeed_is_told_without_its_communication():
    engine, another = Engine(), Engine()
    with attach_deepspeed(engine, Recorder(engine.log)):
        assert engine.train_batch(data_iter=iter([])) == "loss"
        engine.eval_batch(None)
        another.train_batch()
    engine.train_batch()
    assert engine.log == [
        "step", "forward 0", "F1", "/forward", "send", "backward 0", "B1", "/backward", "end",
        "F0",
        "F1", "send", "B1",
    ]  # fmt: skip
    assert another.log == ["F1", "send", "B1"]
    assert vars(engine).keys() == {"log"}


def test_another_deepspeed_is_told():
    with pytest.raises(FrameworkError, match=r"deepspeed of unknown .* has no instruction Forward"):
        attach_deepspeed(object(), Recorder([]))

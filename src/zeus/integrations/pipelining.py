"""Zeus in PyTorch's own pipeline runtime, `torch.distributed.pipelining`.

One line, after the schedule has been made::

    attach(schedule, optimizer)

From then on every `schedule.step(...)` is reported to the optimizer as an iteration, and every
forward and backward of a microbatch on a stage of this rank as a computation. Sending and receiving
are not reported.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from zeus.errors import FrameworkError, PipelineError
from zeus.integrations.pipeline_engine import (
    BACKWARD,
    FORWARD,
    PipelineCallback,
    PipelineHooks,
)

BACKWARD_INPUT, BACKWARD_WEIGHT = "backward_input", "backward_weight"

# Attributes of the runtime that this module relies on, besides `_stage` or `_stages`.
_OF_SCHEDULE = ("_loss_fn", "step", "eval")
_OF_STAGE = (
    "stage_index",
    "group_rank",
    "group_size",
    "is_first",
    "is_last",
    "forward_one_chunk",
    "backward_one_chunk",
)


def attach(schedule: Any, optimizer: PipelineCallback) -> PipelineHooks:
    """Report a schedule of `torch.distributed.pipelining` to an optimizer.

    Works with GPipe, 1F1B, interleaved 1F1B, looped and zero-bubble schedules, also V-shaped ones:
    with every schedule that calls `forward_one_chunk`, `backward_one_chunk` and
    `backward_weight_one_chunk` of its stages sequentially. The loss belongs to the forward of the
    last stage. `schedule.eval(...)` is not reported.

    If an iteration is more than `schedule.step`, such as also the step of the optimizer, put
    ``with hooks.step():`` around both.

    Args:
        schedule: The schedule of this rank, before or between its steps.
        optimizer: Gets the reports; the optimizer of the same rank.

    Returns:
        Hooks; call `detach` on them if the program goes on after training, or use them as a context
        manager.

    Raises:
        FrameworkError: If this version of PyTorch lacks an attribute that is needed.
        PipelineError: If the schedule does not train, because it has no loss function.
    """
    stages = _stages(schedule)
    if schedule._loss_fn is None:
        raise PipelineError(
            "a schedule must have a loss function to run backwards, but got loss_fn=None"
        )
    hooks = PipelineHooks(optimizer)
    for chunk, stage in enumerate(stages):
        _follow(hooks, stage, chunk)
    loss, step, evaluate = schedule._loss_fn, schedule.step, schedule.eval

    # Not `functools.wraps`: a loss function may be a module, or another object without a name.
    def reported_loss(*args: Any, **kwargs: Any) -> Any:
        value = loss(*args, **kwargs)
        hooks.end()  # ends the forward, which `_follow` has left open
        return value

    @functools.wraps(evaluate)
    def unreported_evaluation(*args: Any, **kwargs: Any) -> Any:
        with hooks.ignored():
            return evaluate(*args, **kwargs)

    hooks.replace(schedule, "_loss_fn", reported_loss)
    hooks.replace(schedule, "step", hooks.around_step(step))
    hooks.replace(schedule, "eval", unreported_evaluation)
    return hooks


def _stages(schedule: Any) -> list[Any]:
    """Return the stages of this rank, in the order of the model."""
    for name in _OF_SCHEDULE:
        if not hasattr(schedule, name):
            raise _unknown(schedule, name)
    if hasattr(schedule, "_stages"):
        stages = list(schedule._stages)
    elif hasattr(schedule, "_stage"):
        stages = [schedule._stage]
    else:
        raise _unknown(schedule, "_stage")
    for stage in stages:
        for name in _OF_STAGE:
            if not hasattr(stage, name):
                raise _unknown(stage, name)
    stages.sort(key=lambda stage: int(stage.stage_index))
    return stages


def _where(stage: Any, chunk: int) -> dict[str, int]:
    """Return the chunk of a stage, and its stage number if that does not follow from the chunk."""
    in_turn = chunk * stage.group_size + stage.group_rank
    number = int(stage.stage_index)
    return {"chunk": chunk} if number == in_turn else {"chunk": chunk, "stage": number}


def _follow(hooks: PipelineHooks, stage: Any, chunk: int) -> None:
    """Report the computations of a stage."""
    forward, backward = stage.forward_one_chunk, stage.backward_one_chunk
    weight = getattr(stage, "backward_weight_one_chunk", None)
    where = _where(stage, chunk)
    # Gradients of the model's input are not needed. So where backwards are split, the first stage
    # does nothing in the first part, and its whole backward in the second.
    undivided = stage.is_first and getattr(stage, "dw_builder", None) is None

    @functools.wraps(forward)
    def reported_forward(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        hooks.begin(FORWARD, microbatch=microbatch, **where)
        output = forward(microbatch, *args, **kwargs)
        if not stage.is_last:
            hooks.end()
        return output  # on the last stage, the loss that follows belongs to the forward

    @functools.wraps(backward)
    def reported_backward(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        whole = kwargs.get("full_backward", args[1] if len(args) > 1 else True)
        if undivided and not whole:
            return backward(microbatch, *args, **kwargs)
        name = BACKWARD if whole else BACKWARD_INPUT
        with hooks.computation(name, microbatch=microbatch, **where):
            return backward(microbatch, *args, **kwargs)

    hooks.replace(stage, "forward_one_chunk", reported_forward)
    hooks.replace(stage, "backward_one_chunk", reported_backward)
    if weight is None:
        return

    @functools.wraps(weight)
    def reported_weight(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        name = BACKWARD if undivided else BACKWARD_WEIGHT
        with hooks.computation(name, microbatch=microbatch, **where):
            return weight(microbatch, *args, **kwargs)

    hooks.replace(stage, "backward_weight_one_chunk", reported_weight)


def _unknown(thing: object, lack: str) -> FrameworkError:
    version = getattr(sys.modules.get("torch"), "__version__", "of unknown version")
    return FrameworkError(
        f"torch.distributed.pipelining of PyTorch {version} is not supported (2.13 is): "
        f"{type(thing).__name__} has no {lack}"
    )

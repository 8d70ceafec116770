"""Zeus in an engine for pipeline-parallel training: Megatron-LM, DeepSpeed, or one of your own.

What is needed of an engine is when an iteration begins and ends, and when a computation of a stage
does, without the communication around it. In Megatron-LM and DeepSpeed one line finds the places::

    attach_megatron(megatron.core.pipeline_parallel.schedules, model, optimizer)
    attach_deepspeed(engine, optimizer)

Elsewhere, `PipelineHooks` has blocks to put around them, and wraps functions.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol, Self

from zeus.errors import FrameworkError, PipelineError

FORWARD, BACKWARD = "forward", "backward"


class PipelineCallback(Protocol):
    """What is told of a pipeline; `zeus.optimizer.PipelineFrequencyOptimizer` is one."""

    def on_step_begin(self) -> None:
        """An iteration begins."""

    def on_step_end(self) -> None:
        """It has ended."""

    def on_instruction_begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> None:
        """A computation begins: its input is here, nothing of it is computed yet."""

    def on_instruction_end(self, name: str) -> None:
        """It has been computed, or is queued on the accelerator."""

    def close(self) -> None:
        """Training is over; whatever was changed is put back. May be called twice."""


class PipelineHooks:
    """Tells an optimizer about the iterations and computations of an engine.

    In an engine of one's own::

        hooks = PipelineHooks(optimizer)
        for batch in loader:
            with hooks.step():
                ...  # the schedule, in which
                with hooks.computation("forward", microbatch=0):
                    output = stage(received)

    Computations outside of steps (evaluation) are not told. An exception that leaves a step ends
    it all: the optimizer is closed, so that clocks are back before anybody handles the exception,
    and from then on nothing is told. As a ``with`` block, it detaches at the end of the block.

    Args:
        optimizer: Is told.
    """

    def __init__(self, optimizer: PipelineCallback) -> None:
        self._optimizer = optimizer
        self._attached = True
        self._ignoring = 0
        self._in_step = False
        self._current: str | None = None
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    # --- blocks ---------------------------------------------------------------------------------

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around an iteration. A step inside another is part of it.

        Raises:
            PipelineError: If a computation that was begun inside has not ended.
        """
        if not self._attached or self._ignoring or self._in_step:
            yield
            return
        self._in_step = True
        try:
            self._optimizer.on_step_begin()
            yield
            if self._current is not None:
                raise PipelineError(
                    f"a computation must end before its step does, but {self._current!r} goes on"
                )
            self._optimizer.on_step_end()
        except BaseException:
            self.detach()
            self._optimizer.close()
            raise
        finally:
            self._in_step = False
            self._current = None

    @contextmanager
    def computation(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> Iterator[None]:
        """Around a computation of a stage, without the communication before and after it.

        Args:
            name: "forward", "backward", or whatever else a stage computes.
            chunk: Which of the stages of this rank, from 0.
            microbatch: Its number; if not given, microbatches come in order.
            stage: Which part of the whole model that is, from 0. If not given, chunk `c` of rank
                `r` is stage `c * ranks + r`.
        """
        begun = self.begin(name, chunk=chunk, microbatch=microbatch, stage=stage)
        yield
        if begun:
            self.end()

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Around what is not training but uses the same functions."""
        self._ignoring += 1
        try:
            yield
        finally:
            self._ignoring -= 1

    # --- calls, where a block does not fit --------------------------------------------------------

    def begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> bool:
        """A computation begins; see `computation`.

        Returns:
            Whether it was told: not outside of steps, and not inside of another computation, of
            which it is a part.
        """
        if not (self._attached and self._in_step) or self._ignoring or self._current is not None:
            return False
        # Where stages are dealt out in turn, a callback need not know of the argument.
        where = {} if stage is None else {"stage": stage}
        self._optimizer.on_instruction_begin(name, chunk=chunk, microbatch=microbatch, **where)
        self._current = name
        return True

    def end(self) -> None:
        """The computation that was begun has ended; nothing happens if there is none."""
        if self._current is not None:
            name, self._current = self._current, None
            self._optimizer.on_instruction_end(name)

    # --- functions of an engine -------------------------------------------------------------------

    def around(
        self, function: Callable[..., Any], name: str, *, chunk: int | Callable[..., int] = 0
    ) -> Callable[..., Any]:
        """A function that computes the same, and is told as a computation.

        Args:
            function: Computes for a stage.
            name: As for `computation`.
            chunk: Which of the stages of this rank, or a function that knows it from the arguments.
        """

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            number = chunk(*args, **kwargs) if callable(chunk) else chunk
            with self.computation(name, chunk=number):
                return function(*args, **kwargs)

        return told

    def around_step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that does the same, and is told as an iteration."""

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            with self.step():
                return function(*args, **kwargs)

        return told

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Give an object or module another attribute, until `detach`."""
        self._replaced.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def detach(self) -> None:
        """Tell nothing any more, and give the engine its functions back."""
        self._attached = False
        while self._replaced:
            owner, name, before, value = self._replaced.pop()
            if vars(owner).get(name) is not value:
                continue  # somebody else has wrapped ours, which from now on only passes on
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


_ABSENT = object()


# --- Megatron-LM ----------------------------------------------------------------------------------


def attach_megatron(
    schedules: ModuleType, model: Any, optimizer: PipelineCallback
) -> PipelineHooks:
    """Follow the schedules of Megatron-LM.

    Every call of a `forward_backward_...` function that is not `forward_only` is an iteration;
    `forward_step` and `backward_step` are its computations.

    Args:
        schedules: `megatron.core.pipeline_parallel.schedules`.
        model: What is given to `forward_backward_func`: this rank's part of the model, or the list
            of its parts if schedules are interleaved.
        optimizer: Is told.

    Returns:
        What to `detach` in the end, if training is not the end of the program.

    Raises:
        FrameworkError: If a function is not there, or lacks an argument.
    """
    hooks = PipelineHooks(optimizer)
    calls = _MegatronCalls(hooks, list(model) if isinstance(model, Sequence) else [model])
    whole = [
        name
        for name, value in vars(schedules).items()
        if name.startswith("forward_backward_") and callable(value)
    ]
    if not whole:
        raise FrameworkError(_unknown("megatron.core", schedules, "no forward_backward_ function"))
    forward = _function(schedules, "forward_step", "model")
    backward = _function(schedules, "backward_step", "output_tensor")
    for name in whole:
        hooks.replace(schedules, name, calls.iteration(getattr(schedules, name)))
    hooks.replace(schedules, "forward_step", calls.forward(forward))
    hooks.replace(schedules, "backward_step", calls.backward(backward))
    return hooks


class _MegatronCalls:
    """Knows which part of the model, and which microbatch, a call is about.

    A backward is not told so. But it is given what the forward returned.
    """

    def __init__(self, hooks: PipelineHooks, parts: list[Any]) -> None:
        self._hooks = hooks
        self._parts = parts
        self._forwards: Counter[int] = Counter()
        self._made_by: dict[int, tuple[int, int]] = {}

    def iteration(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("forward_only"):
                with self._hooks.ignored():
                    return function(*args, **kwargs)
            self._forwards.clear()
            self._made_by.clear()
            with self._hooks.step():
                return function(*args, **kwargs)

        return told

    def forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        arguments = inspect.signature(function)

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            part = arguments.bind(*args, **kwargs).arguments["model"]
            chunk = next((i for i, known in enumerate(self._parts) if known is part), None)
            if chunk is None:
                raise PipelineError(
                    "`model` must be what is given to forward_backward_func, but a forward of "
                    "something else begins"
                )
            microbatch = self._forwards[chunk]
            self._forwards[chunk] += 1
            with self._hooks.computation(FORWARD, chunk=chunk, microbatch=microbatch):
                result = function(*args, **kwargs)
            output = result[0] if isinstance(result, tuple) else result
            self._made_by[_identity(output)] = chunk, microbatch
            return result

        return told

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        arguments = inspect.signature(function)

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            output = arguments.bind(*args, **kwargs).arguments["output_tensor"]
            chunk, microbatch = self._made_by.pop(_identity(output), (None, None))
            if chunk is None:
                raise PipelineError(
                    "a backward must be of what a forward returned in the same iteration, but "
                    "this one is of something else"
                )
            with self._hooks.computation(BACKWARD, chunk=chunk, microbatch=microbatch):
                return function(*args, **kwargs)

        return told


def _identity(output: Any) -> int:
    """Outputs live until their backward, so no two of them are the same object."""
    return id(output[0] if isinstance(output, list) and output else output)


def _function(schedules: ModuleType, name: str, argument: str) -> Callable[..., Any]:
    function = getattr(schedules, name, None)
    if not callable(function) or argument not in inspect.signature(function).parameters:
        raise FrameworkError(_unknown("megatron.core", schedules, f"no {name}(..., {argument})"))
    return function  # type: ignore[no-any-return]


# --- DeepSpeed ------------------------------------------------------------------------------------


def attach_deepspeed(engine: Any, optimizer: PipelineCallback) -> PipelineHooks:
    """Follow a `PipelineEngine` of DeepSpeed.

    Every `train_batch` is an iteration; the instructions `ForwardPass` and `BackwardPass` are its
    computations. `eval_batch` is not told.

    Args:
        engine: What `deepspeed.initialize` returned.
        optimizer: Is told.

    Returns:
        What to `detach` in the end, if training is not the end of the program.

    Raises:
        FrameworkError: If the engine does not have these.
    """
    hooks = PipelineHooks(optimizer)
    instructions = getattr(engine, "_INSTRUCTION_MAP", None)
    kinds = {kind.__name__: kind for kind in instructions or ()}
    for needed in ("ForwardPass", "BackwardPass"):
        if needed not in kinds:
            raise FrameworkError(_unknown("deepspeed", engine, f"no instruction {needed}"))
    assert instructions is not None
    forward, backward = kinds["ForwardPass"], kinds["BackwardPass"]
    told = {
        forward: hooks.around(instructions[forward], FORWARD),
        backward: hooks.around(instructions[backward], BACKWARD),
    }
    # On this engine only: the map belongs to the class.
    hooks.replace(engine, "_INSTRUCTION_MAP", {**instructions, **told})
    hooks.replace(engine, "train_batch", hooks.around_step(engine.train_batch))
    return hooks


def _unknown(package: str, thing: object, lack: str) -> str:
    version = getattr(sys.modules.get(package), "__version__", "of unknown version")
    return f"{package} {version} is not as Zeus knows it: {thing!r} has {lack}"

"""Zeus in an engine for pipeline-parallel training: Megatron-LM, DeepSpeed, or a custom one.

The optimizer must know when an iteration begins and ends, and when a computation of a stage does,
without the communication around it. In Megatron-LM and DeepSpeed one line hooks these places::

    attach_megatron(megatron.core.pipeline_parallel.schedules, model, optimizer)
    attach_deepspeed(engine, optimizer)

For other engines, `PipelineHooks` has context managers and function wrappers.
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
    """Receiver of pipeline events, such as `zeus.optimizer.PipelineFrequencyOptimizer`."""

    def on_step_begin(self) -> None:
        """An iteration begins."""

    def on_step_end(self) -> None:
        """The iteration has ended."""

    def on_instruction_begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> None:
        """A computation begins: its input has been received, nothing has been computed yet."""

    def on_instruction_end(self, name: str) -> None:
        """The computation has ended, or is queued on the accelerator."""

    def close(self) -> None:
        """End training and restore whatever was changed. May be called twice."""


class PipelineHooks:
    """Reports the iterations and computations of an engine to an optimizer.

    In a custom engine::

        hooks = PipelineHooks(optimizer)
        for batch in loader:
            with hooks.step():
                ...  # the schedule, in which
                with hooks.computation("forward", microbatch=0):
                    output = stage(received)

    Computations outside of steps (evaluation) are not reported. An exception that leaves a step
    closes the optimizer, so that clocks are restored before the exception is handled, and nothing
    is reported afterwards. As a context manager, it detaches at the end of the ``with`` block.

    Args:
        optimizer: Gets the reports.
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

    # --- context managers -----------------------------------------------------------------------

    @contextmanager
    def step(self) -> Iterator[None]:
        """Wrap an iteration. A step inside another is part of it.

        Raises:
            PipelineError: If a computation that began inside has not ended.
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
                    f"a computation must end before its step, but {self._current!r} has not ended"
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
        """Wrap a computation of a stage, without the communication before and after it.

        Args:
            name: "forward", "backward", or any other computation of a stage.
            chunk: Number of the stage among those of this rank, from 0.
            microbatch: Number of the microbatch; if not given, microbatches come in order.
            stage: Number of the stage in the whole model, from 0. If not given, chunk `c` of rank
                `r` is stage `c * ranks + r`.
        """
        begun = self.begin(name, chunk=chunk, microbatch=microbatch, stage=stage)
        yield
        if begun:
            self.end()

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Wrap calls of the same functions that are not training."""
        self._ignoring += 1
        try:
            yield
        finally:
            self._ignoring -= 1

    # --- calls, where a context manager does not fit ----------------------------------------------

    def begin(
        self,
        name: str,
        *,
        chunk: int = 0,
        microbatch: int | None = None,
        stage: int | None = None,
    ) -> bool:
        """Report that a computation begins; see `computation`.

        Returns:
            Whether it was reported. Outside of steps, and inside another computation, of which it
            is a part, it is not.
        """
        if not (self._attached and self._in_step) or self._ignoring or self._current is not None:
            return False
        # Where stages are assigned round-robin, callbacks need not accept the argument.
        where = {} if stage is None else {"stage": stage}
        self._optimizer.on_instruction_begin(name, chunk=chunk, microbatch=microbatch, **where)
        self._current = name
        return True

    def end(self) -> None:
        """Report that the current computation has ended; without one, do nothing."""
        if self._current is not None:
            name, self._current = self._current, None
            self._optimizer.on_instruction_end(name)

    # --- functions of an engine -------------------------------------------------------------------

    def around(
        self, function: Callable[..., Any], name: str, *, chunk: int | Callable[..., int] = 0
    ) -> Callable[..., Any]:
        """Wrap a function so that each call is reported as a computation.

        Args:
            function: A computation of a stage.
            name: Name of the computation, as for `computation`.
            chunk: Number of the stage among those of this rank, or a function that returns it from
                the arguments.
        """

        @functools.wraps(function)
        def reported(*args: Any, **kwargs: Any) -> Any:
            number = chunk(*args, **kwargs) if callable(chunk) else chunk
            with self.computation(name, chunk=number):
                return function(*args, **kwargs)

        return reported

    def around_step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that each call is reported as an iteration."""

        @functools.wraps(function)
        def reported(*args: Any, **kwargs: Any) -> Any:
            with self.step():
                return function(*args, **kwargs)

        return reported

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of an object or module, until `detach`."""
        self._replaced.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def detach(self) -> None:
        """Stop reporting, and restore the functions of the engine."""
        self._attached = False
        while self._replaced:
            owner, name, before, value = self._replaced.pop()
            if vars(owner).get(name) is not value:
                continue  # wrapped again by other code; our wrapper now only passes calls on
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


_ABSENT = object()


# --- Megatron-LM ----------------------------------------------------------------------------------


def attach_megatron(
    schedules: ModuleType, model: Any, optimizer: PipelineCallback
) -> PipelineHooks:
    """Report the schedules of Megatron-LM to an optimizer.

    Every call of a `forward_backward_...` function that is not `forward_only` is an iteration;
    `forward_step` and `backward_step` are its computations.

    Args:
        schedules: `megatron.core.pipeline_parallel.schedules`.
        model: The model that is passed to `forward_backward_func`: this rank's part, or the list of
            its parts if schedules are interleaved.
        optimizer: Gets the reports.

    Returns:
        Hooks; call `detach` on them if the program goes on after training.

    Raises:
        FrameworkError: If a function is missing, or lacks an argument.
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
    """Finds the part of the model and the microbatch of each call.

    A backward gets neither as an argument, but it gets the output of its forward.
    """

    def __init__(self, hooks: PipelineHooks, parts: list[Any]) -> None:
        self._hooks = hooks
        self._parts = parts
        self._forwards: Counter[int] = Counter()
        self._made_by: dict[int, tuple[int, int]] = {}

    def iteration(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def reported(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("forward_only"):
                with self._hooks.ignored():
                    return function(*args, **kwargs)
            self._forwards.clear()
            self._made_by.clear()
            with self._hooks.step():
                return function(*args, **kwargs)

        return reported

    def forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        arguments = inspect.signature(function)

        @functools.wraps(function)
        def reported(*args: Any, **kwargs: Any) -> Any:
            part = arguments.bind(*args, **kwargs).arguments["model"]
            chunk = next((i for i, known in enumerate(self._parts) if known is part), None)
            if chunk is None:
                raise PipelineError(
                    "`model` must be what is passed to forward_backward_func, but a forward of "
                    "another model begins"
                )
            microbatch = self._forwards[chunk]
            self._forwards[chunk] += 1
            with self._hooks.computation(FORWARD, chunk=chunk, microbatch=microbatch):
                result = function(*args, **kwargs)
            output = result[0] if isinstance(result, tuple) else result
            self._made_by[_identity(output)] = chunk, microbatch
            return result

        return reported

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        arguments = inspect.signature(function)

        @functools.wraps(function)
        def reported(*args: Any, **kwargs: Any) -> Any:
            output = arguments.bind(*args, **kwargs).arguments["output_tensor"]
            chunk, microbatch = self._made_by.pop(_identity(output), (None, None))
            if chunk is None:
                raise PipelineError(
                    "the input of a backward must be the output of a forward in the same "
                    "iteration, but is another tensor"
                )
            with self._hooks.computation(BACKWARD, chunk=chunk, microbatch=microbatch):
                return function(*args, **kwargs)

        return reported


def _identity(output: Any) -> int:
    """Return a key for an output. Outputs live until their backward, so keys are unique."""
    return id(output[0] if isinstance(output, list) and output else output)


def _function(schedules: ModuleType, name: str, argument: str) -> Callable[..., Any]:
    function = getattr(schedules, name, None)
    if not callable(function) or argument not in inspect.signature(function).parameters:
        raise FrameworkError(_unknown("megatron.core", schedules, f"no {name}(..., {argument})"))
    return function  # type: ignore[no-any-return]


# --- DeepSpeed ------------------------------------------------------------------------------------


def attach_deepspeed(engine: Any, optimizer: PipelineCallback) -> PipelineHooks:
    """Report a `PipelineEngine` of DeepSpeed to an optimizer.

    Every `train_batch` is an iteration; the instructions `ForwardPass` and `BackwardPass` are its
    computations. `eval_batch` is not reported.

    Args:
        engine: The engine that `deepspeed.initialize` returned.
        optimizer: Gets the reports.

    Returns:
        Hooks; call `detach` on them if the program goes on after training.

    Raises:
        FrameworkError: If the engine lacks these instructions.
    """
    hooks = PipelineHooks(optimizer)
    instructions = getattr(engine, "_INSTRUCTION_MAP", None)
    kinds = {kind.__name__: kind for kind in instructions or ()}
    for needed in ("ForwardPass", "BackwardPass"):
        if needed not in kinds:
            raise FrameworkError(_unknown("deepspeed", engine, f"no instruction {needed}"))
    assert instructions is not None
    forward, backward = kinds["ForwardPass"], kinds["BackwardPass"]
    reported = {
        forward: hooks.around(instructions[forward], FORWARD),
        backward: hooks.around(instructions[backward], BACKWARD),
    }
    # On this engine only: the map belongs to the class.
    hooks.replace(engine, "_INSTRUCTION_MAP", {**instructions, **reported})
    hooks.replace(engine, "train_batch", hooks.around_step(engine.train_batch))
    return hooks


def _unknown(package: str, thing: object, lack: str) -> str:
    version = getattr(sys.modules.get(package), "__version__", "of unknown version")
    return f"{package} {version} is not supported: {thing!r} has {lack}"

"""Callbacks with the events that zeus 0.16 documented, and a set of them that acts as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import zeus.optimizer.callback as today


class Callback(today.Callback):
    """A callback with all events of zeus 0.16. Each does nothing unless overridden.

    Integrations call those of `zeus.optimizer.Callback` only; a custom loop calls any.
    """

    def on_train_begin(self) -> None:
        """Called when training begins."""

    def on_train_end(self) -> None:
        """Called when training has ended."""

    def on_evaluate(self, metric: float) -> None:
        """Called after an evaluation, with its metric."""

    def on_instruction_begin(self, name: str) -> None:
        """Called when an instruction of a pipeline begins, such as "forward"."""

    def on_instruction_end(self, name: str) -> None:
        """Called when it has ended."""


def _passed_on(event: str) -> Callable[..., None]:
    def pass_on(self: CallbackSet, *details: object) -> None:
        for callback in self.callbacks:
            handle = getattr(callback, event, None)  # today's have fewer events
            if handle is not None:
                handle(*details)

    pass_on.__name__ = event
    return pass_on


class CallbackSet(Callback):
    """Passes every event on to several callbacks, in order; skips those that do not have it.

    Args:
        callbacks: The callbacks.
    """

    def __init__(self, callbacks: Sequence[today.Callback]) -> None:
        self.callbacks = callbacks

    on_train_begin = _passed_on("on_train_begin")
    on_train_end = _passed_on("on_train_end")
    on_epoch_begin = _passed_on("on_epoch_begin")
    on_epoch_end = _passed_on("on_epoch_end")
    on_step_begin = _passed_on("on_step_begin")
    on_step_end = _passed_on("on_step_end")
    on_evaluate = _passed_on("on_evaluate")
    on_instruction_begin = _passed_on("on_instruction_begin")
    on_instruction_end = _passed_on("on_instruction_end")
    pause = _passed_on("pause")
    resume = _passed_on("resume")
    close = _passed_on("close")

    def values_to_log(self) -> dict[str, float]:
        """Return the values of all of them."""
        values: dict[str, float] = {}
        for callback in self.callbacks:
            values.update(callback.values_to_log())
        return values

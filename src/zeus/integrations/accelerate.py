"""Zeus in a training loop with Hugging Face Accelerate.

The loops over epochs and batches go through it::

    zeus = ZeusCallback(accelerator)
    for epoch in zeus.epochs(range(10)):
        for batch in zeus.steps(train_loader):
            with accelerator.accumulate(model):
                ...
        evaluate()

A step is one step of the optimizer, of several batches if gradients are accumulated. What lies
between loops over `steps` is not training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from zeus.integrations._epoch import Values
from zeus.integrations._run import Integration, needs, paused, walk_epochs, walk_steps
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback

with needs("accelerate", "accelerate"):
    from accelerate import Accelerator

T = TypeVar("T")


class ZeusCallback(Integration):
    """Hands out the epochs and steps of a loop that uses Accelerate.

    After each epoch, `zeus/epoch_time` (seconds of training) and `zeus/epoch_energy` (joules on
    all processes, if they could be measured) go to the accelerator's trackers. While
    `accelerator.save_state` runs, up to the next step, the callbacks are paused.

    Args:
        accelerator: Of the training loop.
        callbacks: Are told what happens. Without any, the power limit is optimized.
        monitor: Measures each epoch. By default that of the first callback that has one, or else
            one of its own.
        tracker_step: Tells the step under which trackers should file the values of an epoch. By
            default they number them by themselves.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *callbacks: Callback,
        monitor: ZeusMonitor | None = None,
        tracker_step: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(*callbacks, monitor=monitor)
        self._accelerator = accelerator
        self._tracker_step = tracker_step

    def epochs(self, iterable: Iterable[T]) -> Iterator[T]:
        """Go through the epochs of a training run; when they are left, all is put back.

        Use it in a ``for`` statement: if its iterator is kept elsewhere, a loop that is left early
        is over only when that iterator is gone.
        """
        hook = self._accelerator.register_save_state_pre_hook(self._before_checkpoint)
        try:
            yield from walk_epochs(self._run, iterable, self._log)
        finally:
            hook.remove()

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """Go through the batches of an epoch.

        Args:
            loader: As `accelerator.prepare` has returned it.
        """
        return walk_steps(self._run, loader, lambda: bool(self._accelerator.sync_gradients))

    def paused(self) -> AbstractContextManager[None]:
        """Around what is not training but lies in a loop over `steps`, after the step's work."""
        return paused(self._run)

    def _before_checkpoint(self, *_: object) -> None:
        self._run.pause()

    def _log(self, values: Values) -> None:
        step = None if self._tracker_step is None else self._tracker_step()
        self._accelerator.log(values, step=step)

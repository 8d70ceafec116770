"""Zeus in a training loop with Hugging Face Accelerate.

Wrap the loops over epochs and batches::

    zeus = ZeusCallback(accelerator)
    for epoch in zeus.epochs(range(10)):
        for batch in zeus.steps(train_loader):
            with accelerator.accumulate(model):
                ...
        evaluate()

A step is one step of the optimizer, of several batches if gradients are accumulated. Code between
loops over `steps` does not count as training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from zeus.integrations._epoch import Values
from zeus.integrations._run import Integration, iterate_epochs, iterate_steps, needs, paused
from zeus.integrations.tracker import Tracker
from zeus.monitor import ZeusMonitor
from zeus.optimizer.callback import Callback

with needs("accelerate", "accelerate"):
    from accelerate import Accelerator

T = TypeVar("T")

# Trackers that count by themselves: an epoch's number would be behind what they have logged.
_COUNTING_TRACKERS = {"aim", "comet_ml", "dvclive", "swanlab", "trackio", "wandb"}


class ZeusCallback(Integration):
    """Yields the epochs and steps of a loop that uses Accelerate.

    After each epoch, `zeus/epoch_time` (seconds of training) and `zeus/epoch_energy` (joules on
    all processes, if they could be measured) go to the accelerator's trackers. While
    `accelerator.save_state` runs, up to the next step, the callbacks are paused.

    Args:
        accelerator: The accelerator of the training loop.
        callbacks: Called at each event. If none are given, the power limit is optimized.
        monitor: Measures each epoch. Defaults to the monitor of the first callback that has one,
            or else to a new one.
        tracker: Gets time, energy, settings and savings of steps and epochs; see
            `zeus.integrations.tracker`.
        tracker_step: Returns the step under which the accelerator's trackers log the values of an
            epoch. By default it is the number of the epoch, except for trackers that count steps by
            themselves.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *callbacks: Callback,
        monitor: ZeusMonitor | None = None,
        tracker: Tracker | None = None,
        tracker_step: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(*callbacks, monitor=monitor, tracker=tracker)
        self._accelerator = accelerator
        self._tracker_step = tracker_step
        self._epoch = 0

    def epochs(self, iterable: Iterable[T]) -> Iterator[T]:
        """Iterate over the epochs of a training run; leaving the loop restores everything.

        Use it in a ``for`` statement: if a reference to the iterator is kept, a loop that is left
        early ends only when the iterator is deleted.
        """
        hook = self._accelerator.register_save_state_pre_hook(self._before_checkpoint)
        try:
            yield from iterate_epochs(self._run, self._counted(iterable), self._log)
        finally:
            hook.remove()

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """Iterate over the batches of an epoch.

        Args:
            loader: A data loader that `accelerator.prepare` returned.

        Raises:
            RunError: If it has another batch size than the one that a `BatchSizeOptimizer` among
                the callbacks has decided.
        """
        total = getattr(loader, "total_batch_size", None)
        if isinstance(total, int):
            share = total // self._accelerator.num_processes
            self._run.check_batch(share * self._accelerator.gradient_accumulation_steps)
        return iterate_steps(self._run, loader, lambda: bool(self._accelerator.sync_gradients))

    def paused(self) -> AbstractContextManager[None]:
        """Wrap code in a loop over `steps` that is not training, after the step's work."""
        return paused(self._run)

    def _before_checkpoint(self, *_: object) -> None:
        self._run.pause()

    def _counted(self, epochs: Iterable[T]) -> Iterator[T]:
        for number, epoch in enumerate(epochs):
            # A run that continues another one begins with a later epoch.
            self._epoch = epoch if isinstance(epoch, int) else number
            yield epoch

    def _log(self, values: Values) -> None:
        if self._tracker_step is not None:
            self._accelerator.log(values, step=self._tracker_step())
        elif self._accelerator.is_main_process:
            for tracker in self._accelerator.trackers:
                counts = tracker.name in _COUNTING_TRACKERS
                tracker.log(values, step=None if counts else self._epoch)

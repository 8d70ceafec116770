"""Zeus in `model.fit` of Keras 3, on any of its back ends.

One line is enough to optimize the power limit::

    model.fit(x, y, epochs=10, callbacks=[ZeusCallback()])
"""

from __future__ import annotations

from typing import Any

from zeus.integrations._run import Integration, needs
from zeus.integrations._watch import calling_method

with needs("keras", "keras"):
    from keras.callbacks import Callback as KerasCallback


class ZeusCallback(Integration, KerasCallback):
    """Follows `model.fit`.

    A step is one step of the optimizer: `steps_per_execution` batches, or as many as the optimizer
    accumulates gradients over, counted from the beginning of each epoch. The validation of `fit`
    is a pause. Keras does not report that it saves a checkpoint between batches; that counts as
    training. It does not report exceptions either: what was changed is restored soon after one has
    left `fit`, and at once with ``with ZeusCallback() as zeus``.

    `zeus/epoch_time` (seconds of training) and `zeus/epoch_energy` (joules, if they could be
    measured) are added to the logs of each epoch, for the callbacks that come after this one and
    for the history.

    Args:
        callbacks: Called at each event. If none are given, the power limit is optimized.
        monitor: Measures each epoch. Defaults to the monitor of the first callback that has one,
            or else to a new one.
        tracker: Gets time, energy, settings and savings of steps and epochs; see
            `zeus.integrations.tracker`.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = getattr(self.model, "optimizer", None)
        self._batches_per_step = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        # Counted from there: back ends need not update it during `fit`.
        steps_done = int(getattr(optimizer, "iterations", 0))
        self._run.begin(calling_method(self.model), steps_done)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._batches = 0
        self._run.epoch_begin()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._run.step_begin()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batches += 1
        if self._batches % self._batches_per_step == 0:
            self._run.step_end()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._run.pause()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        values = self._run.epoch_end()
        if logs is not None:
            logs.update(values)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.close()

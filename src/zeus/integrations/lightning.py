"""Zeus in the `Trainer` of Lightning.

One line is enough to optimize the power limit::

    Trainer(max_epochs=10, callbacks=[ZeusCallback()]).fit(model, loader)

It works with the package `lightning` and with `pytorch_lightning`: with the one that the program
has imported, or else with the one that is installed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from zeus.integrations._run import Integration, needs
from zeus.integrations._tracking import samples_in

if "lightning.pytorch" in sys.modules or (
    "pytorch_lightning" not in sys.modules and find_spec("lightning") is not None
):
    from lightning.pytorch import Callback as LightningCallback
else:
    with needs("pytorch_lightning", "lightning"):
        from pytorch_lightning import Callback as LightningCallback


class ZeusCallback(Integration, LightningCallback):
    """Follows `Trainer.fit`.

    Lightning counts batches; here a step is one step of the optimizer, which is
    `accumulate_grad_batches` batches or the remaining ones at the end of the epoch. (With manual
    optimization it is one batch.) Validation and checkpoints within an epoch are pauses, up to the
    next batch. After exceptions and Ctrl-C everything is restored at once.

    `zeus/epoch_time` (seconds of training) and `zeus/epoch_energy` (joules on all processes, if
    they could be measured) are logged at the end of each epoch, by the first process.

    Args:
        callbacks: Called at each event. If none are given, the power limit is optimized.
        monitor: Measures each epoch. Defaults to the monitor of the first callback that has one,
            or else to a new one.
        tracker: Gets time, energy, settings and savings of steps and epochs; see
            `zeus.integrations.tracker`.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        batch_size = getattr(trainer.train_dataloader, "batch_size", None)
        if isinstance(batch_size, int) and pl_module.automatic_optimization:
            self._run.check_batch(batch_size * trainer.accumulate_grad_batches)
        self._run.begin(steps_done=trainer.global_step)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._run.epoch_begin()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self._run.resume()
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._run.step_begin()
        self._run.count_batch(samples_in(batch))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._run.step_end(trainer.global_step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._run.pause()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        self._run.pause()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        # All processes have the same values, and only the first one logs: nothing to reduce.
        for name, value in self._run.epoch_end().items():
            pl_module.log(name, value, sync_dist=True, rank_zero_only=True, batch_size=1)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.close()

"""Zeus in the `Trainer` of Hugging Face Transformers.

One line is enough to optimize the power limit::

    Trainer(model, args, train_dataset=data, callbacks=[ZeusCallback()]).train()
"""

from __future__ import annotations

import sys
from typing import Any

from zeus.integrations._run import Integration, needs
from zeus.integrations._watch import calling_method, frames

with needs("transformers", "transformers"):
    from transformers import Trainer, TrainerCallback, TrainerControl


class ZeusCallback(Integration, TrainerCallback):
    """Follows `Trainer.train`.

    A step is one step of the optimizer, as the trainer counts them. Evaluation and checkpoints
    within an epoch are pauses, up to the next step. The trainer does not report exceptions: what
    was changed is restored soon after one has left `train`, and at once with
    ``with ZeusCallback() as zeus``.

    `zeus/epoch_time` (seconds of training) and `zeus/epoch_energy` (joules on all processes, if
    they could be measured) go to the trainer's log at the end of each epoch.

    Args:
        callbacks: Called at each event. If none are given, the power limit is optimized.
        monitor: Measures each epoch. Defaults to the monitor of the first callback that has one,
            or else to a new one.
        tracker: Gets time, energy, settings and savings of steps and epochs; see
            `zeus.integrations.tracker`.
    """

    _trainer: Trainer | None = None

    def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self._trainer = _calling_trainer()
        self._run.check_batch(args.train_batch_size * args.gradient_accumulation_steps)
        frame = None if self._trainer is None else calling_method(self._trainer)
        self._batch_size = args.train_batch_size
        self._run.begin(frame, state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self._run.epoch_begin()

    def on_step_begin(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self._run.step_begin()

    def on_substep_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self._run.count_batch(self._batch_size)

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self._run.count_batch(self._batch_size)
        self._run.step_end(state.global_step)
        if control.should_evaluate or control.should_save:
            self._run.pause()

    def on_prediction_step(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self._run.pause()  # if a callback after this one requested the evaluation

    def on_epoch_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        values = self._run.epoch_end()
        if values and self._trainer is not None:
            # `log` resets this flag, but the trainer still has to log its own values of this epoch.
            should_log = control.should_log
            self._trainer.log(values)
            control.should_log = should_log

    def on_train_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Restore what was changed for the run. The end of training does so by itself."""
        self._trainer = None
        super().close()


def _calling_trainer() -> Trainer | None:
    """Return the trainer that is calling. It is not passed to callbacks, but it is on the stack."""
    callers = (frame.f_locals.get("self") for frame in frames(sys._getframe(1)))
    return next((caller for caller in callers if isinstance(caller, Trainer)), None)

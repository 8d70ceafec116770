"""Energy in Weights & Biases.

Give the tracker to any integration::

    with wandb.init(project="my project"):
        Trainer(model, args, callbacks=[ZeusCallback(tracker=WandbTracker())]).train()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zeus.errors import RunError
from zeus.integrations._run import needs
from zeus.integrations.tracker import Tracker

with needs("wandb", "wandb"):
    import wandb

_STEP = "zeus/step"


@dataclass
class WandbTracker(Tracker):
    """Logs to a run of Weights & Biases.

    A run has one step number for all that is logged, which never decreases: W&B drops what comes
    later under a smaller one. So each row also has `zeus/step`, the x axis of charts of `zeus/...`.
    The row itself has that number too, or the run's own where that is larger. Log your own values
    without `step`, or under the number of steps of the optimizer.

    Attributes:
        run: The run. By default the one that is active when the first values are logged.
    """

    run: Any = None
    _active: Any = field(default=None, init=False, repr=False)
    _last: tuple[int, int] = field(default=(-1, -1), init=False, repr=False)  # step and row

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values by name; see `Tracker`."""
        run = self._active or self._begin()
        row = max(step, run.step)
        last_step, last_row = self._last
        if row == last_row and step != last_step:
            row += 1  # or this one would replace the last one
        self._last = (step, row)
        run.log({_STEP: step, **values}, step=row)

    def close(self) -> None:
        """Forget the run; see `Tracker`."""
        self._active, self._last = None, (-1, -1)

    def _begin(self) -> Any:
        self._active = run = wandb.run if self.run is None else self.run
        if run is None:
            raise RunError("there must be an active run of W&B: call wandb.init() before training")
        run.define_metric(_STEP, hidden=True)
        run.define_metric("zeus/*", step_metric=_STEP)
        return run

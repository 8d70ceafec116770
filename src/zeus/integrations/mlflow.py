"""Energy in MLflow.

Give the tracker to any integration::

    with mlflow.start_run():
        Trainer(model, args, callbacks=[ZeusCallback(tracker=MlflowTracker())]).train()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus.integrations._run import needs
from zeus.integrations.tracker import Tracker

with needs("mlflow", "mlflow"):
    import mlflow


@dataclass
class MlflowTracker(Tracker):
    """Logs metrics of a run of MLflow.

    Attributes:
        run_id: Its ID. By default the run that is active when the first values are logged, or one
            that MLflow then starts.
    """

    run_id: str | None = None
    _active: str | None = field(default=None, init=False, repr=False)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values by name; see `Tracker`."""
        run_id = self.run_id or self._active
        mlflow.log_metrics(dict(values), step=step, run_id=run_id)
        if run_id is None:  # later values belong to the same run, even if another one is begun
            active = mlflow.active_run()
            self._active = None if active is None else active.info.run_id

    def close(self) -> None:
        """Forget the run; see `Tracker`."""
        self._active = None

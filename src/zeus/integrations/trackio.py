"""Energy in trackio.

Give the tracker to any integration::

    trackio.init(project="my project")
    Trainer(model, args, callbacks=[ZeusCallback(tracker=TrackioTracker())]).train()
    trackio.finish()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zeus.integrations._run import needs
from zeus.integrations.tracker import Tracker

with needs("trackio", "trackio"):
    import trackio


@dataclass
class TrackioTracker(Tracker):
    """Logs to a run of trackio.

    Attributes:
        run: The run. By default the current one, of the last `trackio.init`.
    """

    run: Any = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values by name; see `Tracker`."""
        log = trackio.log if self.run is None else self.run.log
        log(dict(values), step=step)

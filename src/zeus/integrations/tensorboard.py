"""Energy in TensorBoard.

Give the tracker to any integration::

    Trainer(model, args, callbacks=[ZeusCallback(tracker=TensorBoardTracker("runs/1"))]).train()

Events are written by tensorboardX, or by PyTorch where only that and TensorBoard are installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from zeus.integrations._run import needs
from zeus.integrations.tracker import Tracker

if find_spec("tensorboardX") is None and find_spec("tensorboard") and find_spec("torch"):
    from torch.utils.tensorboard import SummaryWriter
else:
    with needs("tensorboardX", "tensorboard"):
        from tensorboardX import SummaryWriter

_writers = count()


@dataclass
class TensorBoardTracker(Tracker):
    """Writes scalars to a directory of TensorBoard.

    Attributes:
        directory: The directory, made when the first values are written. Or a `SummaryWriter` that
            the program has, which is flushed, but not closed.
    """

    directory: str | Path | Any = "runs"

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        self._given = not isinstance(self.directory, str | Path)
        self._writer: Any = self.directory if self._given else None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write values by name; see `Tracker`."""
        if self._writer is None:
            # Writers of one second would have the same file, and the last one would replace it.
            suffix = f".zeus.{os.getpid()}.{next(_writers)}"
            self._writer = SummaryWriter(str(self.directory), filename_suffix=suffix)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write out what is buffered; see `Tracker`."""
        if self._given:
            self._writer.flush()
        elif self._writer is not None:
            self._writer.close()
            self._writer = None

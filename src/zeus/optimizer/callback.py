"""The events that a training loop reports to an optimizer.

A custom loop calls these methods directly; the integrations call them from the hooks of their
framework. So every optimizer that runs inside a training run is a `Callback`, and every integration
accepts any number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self


class Callback:
    """Handles the events of a training run. Each method does nothing unless overridden.

    Calls come from one thread, in this order, with `pause` and `resume` anywhere between steps::

        on_epoch_begin (on_step_begin on_step_end)* on_epoch_end   ... any number of epochs
        close
    """

    def on_epoch_begin(self) -> None:
        """Called when an epoch of training begins."""

    def on_step_begin(self) -> None:
        """Called when a step begins: the batch is loaded, nothing is computed yet."""

    def on_step_end(self) -> None:
        """Called when a step has been computed, or is queued on the accelerator."""

    def on_epoch_end(self) -> None:
        """Called after the epoch's last step; evaluation and checkpoints may follow."""

    def pause(self) -> None:
        """Called before other work within the epoch, such as evaluation or a checkpoint."""

    def resume(self) -> None:
        """Called when training continues after `pause`."""

    def values_to_log(self) -> Mapping[str, float]:
        """Return settings in force and what they save, by name, for an experiment tracker."""
        return {}

    def close(self) -> None:
        """End the run and restore every setting changed for it. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""What a training loop tells an optimizer, whoever writes the loop.

A loop of one's own calls these methods by hand; the integrations call them from the hooks of their
framework. So every optimizer that lives inside a training run is a `Callback`, and every
integration takes any number of them.
"""

from __future__ import annotations

from typing import Self


class Callback:
    """Follows a training run. Each method does nothing unless it is overridden.

    Calls come from one thread, in this order, with `pause` and `resume` anywhere between steps::

        on_epoch_begin (on_step_begin on_step_end)* on_epoch_end   ... any number of epochs
        close
    """

    def on_epoch_begin(self) -> None:
        """An epoch of training begins."""

    def on_step_begin(self) -> None:
        """A step begins: the batch is at hand, nothing is computed yet."""

    def on_step_end(self) -> None:
        """A step has been computed, or is queued on the accelerator."""

    def on_epoch_end(self) -> None:
        """The epoch's last step has ended; evaluation and checkpoints may follow."""

    def pause(self) -> None:
        """Something other than training follows, within the epoch: evaluation, a checkpoint."""

    def resume(self) -> None:
        """Training goes on after `pause`."""

    def close(self) -> None:
        """The run is over. Whatever was changed for its sake is put back. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

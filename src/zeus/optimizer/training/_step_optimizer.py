"""Callbacks that change how long a training step takes, and know what one will take."""

from __future__ import annotations

from zeus.frontier import Point
from zeus.optimizer.callback import Callback


class StepOptimizer(Callback):
    """A callback that controls a GPU knob during training."""

    @property
    def profiling_steps(self) -> int:
        """Number of steps that were spent on profiling so far."""
        return 0

    @property
    def expected_step(self) -> Point | None:
        """Time and energy of a step at the chosen setting; `None` if unknown."""
        return None

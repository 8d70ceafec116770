"""Pipelines that train in virtual time, in a kind world unless a test asks for another."""

from __future__ import annotations

from zeus.testing._pipeline_training import PipelineTraining as Training
from zeus.testing._pipeline_training import TrainedIteration

__all__ = ["Training", "settle", "under_plan"]

_SETTLED = 20  # iterations: by then the plan was replaced by more precise ones, at 6 and 16


def settle(training: Training) -> None:
    """Train until ranks follow a plan that is not replaced within the next iterations."""
    training.until("following")
    training.iterate(_SETTLED)
    training.until("following")


def under_plan(training: Training) -> TrainedIteration:
    """Train an iteration under the plan: the next one, or the one after a reference."""
    for _ in range(2):
        (iteration,) = training.iterate()
        planned = [optimizer.clocks for optimizer in training.optimizers]
        if [tuple(clocks[1:]) for clocks in iteration.clocks] == planned:
            break
    return iteration

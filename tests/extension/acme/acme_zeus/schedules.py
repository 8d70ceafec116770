"""A schedule: each microbatch forward and backward before the next."""

from __future__ import annotations

from zeus.optimizer.pipeline_frequency import Shape, Step


def depth_first(shape: Shape) -> list[list[Step]]:
    return [
        [
            Step(instruction, rank, microbatch)
            for microbatch in range(shape.microbatches)
            for instruction in ("forward", "backward")
        ]
        for rank in range(shape.devices)
    ]

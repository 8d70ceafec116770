"""How long an iteration takes: computations one after the other, exchanges that block both sides.

An exchange of two neighbors begins when both have arrived, and both go on when it has ended. All
stages end together, a tail after the last of them: gradient exchange and optimizer step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zeus.replay.pipelines._instructions import Kind, program
from zeus.replay.pipelines._recording import Array


@dataclass(frozen=True)
class Engine:
    """The time of everything that is not a computation.

    Attributes:
        links: Seconds of an exchange between stages `s` and `s + 1`, for each `s`.
        loads: Seconds of a load, by stage.
        tail: Seconds from the end of the last computation to the end of the iteration.
    """

    links: Array
    loads: Array
    tail: float


class Executor:
    """Executes an iteration of one shape, for many schedules at once.

    Args:
        stages: Number of stages.
        microbatches: Microbatches in an iteration.
    """

    def __init__(self, stages: int, microbatches: int) -> None:
        self._stages = stages
        self._steps = [step for step in program(stages, microbatches) if step.kind is not Kind.LOAD]

    def __call__(self, engine: Engine, forward: Array, backward: Array) -> tuple[Array, Array]:
        """Return the time of an iteration of each schedule, and what it is made of.

        Args:
            engine: Times of exchanges, loads and the tail.
            forward: Seconds by stage, schedule and microbatch.
            backward: Likewise.

        Returns:
            Seconds by schedule, and the number of exchanges over each link that are on the
            critical path, by schedule and link.
        """
        loaded = forward + engine.loads[:, None, None]
        now = np.zeros((self._stages, forward.shape[1]))
        # The links on the longest path to where each stage is now.
        passed = np.zeros((self._stages, forward.shape[1], self._stages - 1))
        computed = {Kind.FORWARD: loaded, Kind.BACKWARD: backward}
        for step in self._steps:
            at = step.stage
            if step.kind is not Kind.EXCHANGE:
                now[at] += computed[step.kind][at, :, step.microbatch]
                continue
            later = (now[at + 1] > now[at])[:, None]
            now[at : at + 2] = now[at : at + 2].max(0) + engine.links[at]
            passed[at : at + 2] = np.where(later, passed[at + 1], passed[at])
            passed[at : at + 2, :, at] += 1
        last: Sequence[int] = now.argmax(0).tolist()
        schedules = range(len(last))
        return now[last, schedules] + engine.tail, passed[last, schedules]

"""How long an iteration takes: computations one after the other, exchanges that block both sides.

An exchange of two neighbors begins when both have arrived, and both go on when it has ended. All
stages end together, a tail after the last of them: gradient exchange and optimizer step.

The slack of a computation is how much later it could end without a longer iteration: the time of
the iteration less that of the longest path through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zeus.replay.pipelines._instructions import Kind, Step, program
from zeus.replay.pipelines._recording import Array

_KINDS = (Kind.FORWARD, Kind.BACKWARD)


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


@dataclass(frozen=True)
class Slack:
    """Iterations, and the slack of some of their computations.

    Attributes:
        times: Seconds of an iteration, by schedule.
        passed: Exchanges on the critical path, by schedule and link.
        means: Seconds of slack, by stage and schedule: mean over the computations that count; 0 if
            none does.
        slopes: By how much each mean grows with the time of a link, by stage, schedule and link.
    """

    times: Array
    passed: Array
    means: Array
    slopes: Array


@dataclass(frozen=True)
class _Round:
    """Steps that do not wait for each other: exchanges, or computations.

    Attributes:
        stages: Stage of each step; of an exchange, the lower of the two.
        kinds: Position of each computation's kind in `_KINDS`; empty for exchanges.
        microbatches: Microbatch of each computation, likewise.
    """

    stages: NDArray[np.intp]
    kinds: NDArray[np.intp]
    microbatches: NDArray[np.intp]


def _rounds(steps: Sequence[Step], stages: int) -> list[_Round]:
    """Return steps in rounds: each round after those that it waits for."""
    reached = [0] * stages
    rounds: dict[tuple[int, bool], list[Step]] = {}
    for step in steps:
        exchange = step.kind is Kind.EXCHANGE
        both = slice(step.stage, step.stage + (2 if exchange else 1))
        level = max(reached[both]) + 1
        reached[both] = [level] * len(reached[both])
        rounds.setdefault((level, exchange), []).append(step)
    return [
        _Round(
            np.array([step.stage for step in rounds[key]]),
            np.array([_KINDS.index(each.kind) for each in rounds[key] if not key[1]], int),
            np.array([each.microbatch for each in rounds[key] if not key[1]], int),
        )
        for key in sorted(rounds)
    ]


class Executor:
    """Executes an iteration of one shape, for many schedules at once.

    Args:
        stages: Number of stages.
        microbatches: Microbatches in an iteration.
    """

    def __init__(self, stages: int, microbatches: int) -> None:
        steps = [step for step in program(stages, microbatches) if step.kind is not Kind.LOAD]
        self._rounds = _rounds(steps, stages)

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
        path = _LongestPath(engine, forward.shape[1])
        computed = _computed(engine, forward, backward)
        for each in self._rounds:
            if not each.kinds.size:
                path.exchange(each.stages)
            else:
                path.times[each.stages] += computed[each.kinds, each.microbatches, each.stages]
        times, passed = path.end()
        return times + engine.tail, passed

    def slack(
        self, engine: Engine, forward: Array, backward: Array, counts: Mapping[str, Array]
    ) -> Slack:
        """Execute iterations, and find the slack of computations.

        Args:
            engine: Times of exchanges, loads and the tail.
            forward: Seconds by stage, schedule and microbatch.
            backward: Likewise.
            counts: Whether each "forward" and "backward" counts, likewise.
        """
        computed = _computed(engine, forward, backward)
        weights = _stacked(counts["forward"], counts["backward"])
        path = _LongestPath(engine, forward.shape[1])
        ends = np.zeros_like(computed)
        before = np.zeros((*computed.shape, len(engine.links)))
        for each in self._rounds:
            if not each.kinds.size:
                path.exchange(each.stages)
                continue
            at = each.kinds, each.microbatches, each.stages
            path.times[each.stages] += computed[at]
            ends[at], before[at] = path.times[each.stages], path.passed[each.stages]
        times, critical = path.end()
        # Backwards in time an exchange is the same: both ranks need it, and the longer rest counts.
        rest = _LongestPath(engine, forward.shape[1])
        total, slopes = np.zeros_like(rest.times), np.zeros_like(rest.passed)
        for each in reversed(self._rounds):
            if not each.kinds.size:
                rest.exchange(each.stages)
                continue
            at = each.kinds, each.microbatches, each.stages
            total[each.stages] += weights[at] * (times - ends[at] - rest.times[each.stages])
            links = critical - before[at] - rest.passed[each.stages]
            slopes[each.stages] += weights[at][:, :, None] * links
            rest.times[each.stages] += computed[at]
        number = np.maximum(weights.sum((0, 1)), 1)
        return Slack(times + engine.tail, critical, total / number, slopes / number[:, :, None])


class _LongestPath:
    """The longest path to where each stage is, in each schedule.

    Attributes:
        times: Its seconds, by stage and schedule.
        passed: Its exchanges, by stage, schedule and link.
    """

    def __init__(self, engine: Engine, schedules: int) -> None:
        self._links = engine.links[:, None]
        stages = len(engine.loads)
        self.times = np.zeros((stages, schedules))
        self.passed = np.zeros((stages, schedules, stages - 1))

    def exchange(self, links: NDArray[np.intp]) -> None:
        """Let both sides of links arrive and go on."""
        one, other = self.times[links], self.times[links + 1]
        self.times[links] = self.times[links + 1] = np.maximum(one, other) + self._links[links]
        passed = np.where((other > one)[:, :, None], self.passed[links + 1], self.passed[links])
        passed[np.arange(len(links)), :, links] += 1
        self.passed[links] = self.passed[links + 1] = passed

    def end(self) -> tuple[Array, Array]:
        """Return seconds and exchanges of the longest of all stages, by schedule."""
        last, every = self.times.argmax(0), np.arange(self.times.shape[1])
        return self.times[last, every], self.passed[last, every]


def _computed(engine: Engine, forward: Array, backward: Array) -> Array:
    return _stacked(forward + engine.loads[:, None, None], backward)


def _stacked(forward: Array, backward: Array) -> Array:
    """Return values by kind, microbatch, stage and schedule."""
    return np.stack([each.transpose(2, 0, 1) for each in (forward, backward)])

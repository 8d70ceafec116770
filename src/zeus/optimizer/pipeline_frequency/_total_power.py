"""Total power of all GPUs over an iteration: a step function, its peak, its swing, its phases."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

from zeus.optimizer.pipeline_frequency._pipeline import Execution, Operation, Pipeline
from zeus.optimizer.pipeline_frequency._profile import Option


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of an iteration.

    Attributes:
        name: "warm-up", until the last rank has begun; "steady"; or "cool-down", from when the
            first rank has ended. Without a time in which all have begun and none has ended, there
            is no steady phase, and the cool-down follows the warm-up.
        start: Seconds from the beginning of the iteration.
        end: Likewise.
        average: Watts, averaged over the phase.
        low: Lowest watts.
        peak: Highest watts.
    """

    name: str
    start: float
    end: float
    average: float
    low: float
    peak: float


@dataclass(frozen=True, slots=True)
class TotalPower:
    """Watts of all GPUs of all pipelines together, at every moment of an iteration.

    A GPU draws the average power of the option that it computes with, and the blocking power while
    it waits, from the beginning of the iteration to its end; all pipelines do the same at the same
    time. An operation on no rank counts once per pipeline. One that takes no time has no power.

    Attributes:
        times: Seconds at which the power changes, from 0 to the end of the iteration.
        watts: Power from each time to the next, one fewer than times.
        phases: Warm-up, steady phase and cool-down; those that last.
    """

    times: tuple[float, ...]
    watts: tuple[float, ...]
    phases: tuple[Phase, ...]

    @property
    def peak(self) -> float:
        """Highest power at any moment."""
        return max(self.watts)

    @property
    def low(self) -> float:
        """Lowest power at any moment, warm-up and cool-down included."""
        return min(self.watts)

    @property
    def swing(self) -> float:
        """Highest less lowest power of all moments; no phase is left out."""
        return self.peak - self.low

    @property
    def average(self) -> float:
        """Watts, averaged over the iteration."""
        return _average(self.times, self.watts)

    def at(self, time: float) -> float:
        """Return the watts at a time; those from then on, where the power changes.

        Args:
            time: Seconds from the beginning of the iteration.
        """
        place = bisect.bisect_right(self.times, time) - 1
        return self.watts[min(max(place, 0), len(self.watts) - 1)]


def total_power(execution: Execution) -> TotalPower:
    """Return the total power over an execution.

    Args:
        execution: Of an iteration that takes some time.
    """
    times, watts = _levels(execution)
    return TotalPower(tuple(times), tuple(watts), tuple(_phases(execution, times, watts)))


def excess_of(pipeline: Pipeline, operation: Operation, option: Option) -> float:
    """Return the watts that an operation draws beyond waiting, over all GPUs of one pipeline."""
    if operation.device is None:
        return option.power
    return pipeline.tensor_parallel * (option.power - pipeline.blocking_power)


def _levels(execution: Execution) -> tuple[list[float], list[float]]:
    pipeline = execution.pipeline
    # Each rank is a lane, which one operation after the other draws in; others add up in the last.
    lanes = [0.0] * (pipeline.devices + 1)
    changes: list[tuple[float, int, float]] = [(0.0, -1, 0.0), (execution.time, -1, 0.0)]
    for operation, option, start in zip(
        pipeline.operations, execution.options, execution.starts, strict=True
    ):
        if option.time > 0:
            lane = pipeline.devices if operation.device is None else operation.device
            watts = excess_of(pipeline, operation, option)
            changes += [(start, lane, watts), (start + option.time, lane, -watts)]
    waiting = pipeline.blocking_power * pipeline.gpus
    running = [0] * len(lanes)
    times, levels = [], []
    for time, group in groupby(sorted(changes, key=itemgetter(0)), itemgetter(0)):
        for _, lane, watts in group:
            lanes[lane] += watts
            running[lane] += (watts > 0) - (watts < 0)
            if not running[lane]:
                lanes[lane] = 0.0  # leaves no rounding behind
        times.append(time)
        levels.append(pipeline.data_parallel * (waiting + math.fsum(lanes)))
    return times, levels[:-1]


def _phases(execution: Execution, times: list[float], watts: list[float]) -> Iterator[Phase]:
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    for operation, option, start in zip(
        execution.pipeline.operations, execution.options, execution.starts, strict=True
    ):
        if operation.device is not None and option.time > 0:
            begins.setdefault(operation.device, start)
            ends[operation.device] = start + option.time
    full = max(begins.values(), default=0.0)
    over = max(min(ends.values(), default=execution.time), full)
    cuts = (0.0, full, over, execution.time)
    for name, (start, end) in zip(("warm-up", "steady", "cool-down"), pairwise(cuts), strict=True):
        if end > start:
            first = bisect.bisect_right(times, start) - 1
            last = bisect.bisect_left(times, end)
            levels = watts[first:last]
            inner = [start, *times[first + 1 : last], end]
            yield Phase(name, start, end, _average(inner, levels), min(levels), max(levels))


def _average(
    times: list[float] | tuple[float, ...], watts: list[float] | tuple[float, ...]
) -> float:
    joules = math.fsum(
        level * (end - start) for level, (start, end) in zip(watts, pairwise(times), strict=True)
    )
    return joules / (times[-1] - times[0])

"""How well a graph predicts the observed steps of a pipeline.

Whether messages block (see `blocking_order`) is not reported. It follows from when computations
began and ended: the graph that predicts these times best is the one to plan with.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from zeus.optimizer.pipeline_frequency._pipeline import Pipeline
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes

Passages = Mapping[Hashable, Sequence[Sequence[StepTimes]]]
"""Start and end times of steps, by pipeline and place."""


def misfit(pipeline: Pipeline, passages: Passages) -> float | None:
    """Return by how much a graph mispredicts how long steps took, relative, with their own times.

    The times of computations are those of the step itself. How long it takes from the first to the
    last of a place follows from the graph, and is compared by the clock of that place alone.

    Args:
        pipeline: The graph.
        passages: Start and end times of steps.

    Returns:
        The mean over places and steps; `None` if no step was seen at all places.
    """
    wrong = total = 0.0
    for step in _whole_steps(passages):
        for (began, ended), seen in zip(_spans(pipeline, step), step, strict=True):
            length = seen.ends[-1] - seen.begins[0]
            wrong += abs(ended - began - length)
            total += length
    return wrong / total if total else None


def _whole_steps(passages: Passages) -> Iterator[list[StepTimes]]:
    for places in passages.values():
        by_step = [{each.step: each for each in place} for place in places]
        for number in set.intersection(*(set(place) for place in by_step)):
            yield [place[number] for place in by_step]


def _spans(pipeline: Pipeline, step: Sequence[StepTimes]) -> list[tuple[float, float]]:
    """Return when each place begins and ends, if its computations take as long as in the step."""
    ends: list[float] = []
    numbers = [0] * pipeline.devices
    spans: list[tuple[float, float]] = [(0.0, 0.0)] * pipeline.devices
    for operation in pipeline.operations:
        start = max((ends[other] for other in operation.after), default=0.0)
        device = operation.device
        if device is None:
            ends.append(start + operation.options[0].time)
            continue
        number = numbers[device]
        ends.append(start + step[device].ends[number] - step[device].begins[number])
        spans[device] = (spans[device][0] if number else start), ends[-1]
        numbers[device] += 1
    return spans

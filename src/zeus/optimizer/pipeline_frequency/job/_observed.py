"""A step as it was measured by all ranks of a pipeline, on one time scale.

Clocks of machines do not agree. Between two ranks, nothing begins before what it waits for has
ended: the shortest time between them in one direction contains the offset of their clocks, and in
the other direction its negative. So half the difference is the offset, if messages take as long in
both directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from zeus.optimizer.pipeline_frequency._pipeline import Execution, Pipeline
from zeus.optimizer.pipeline_frequency._profile import Option
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes


def observed_step(
    pipeline: Pipeline, passages: Sequence[Sequence[StepTimes]]
) -> tuple[int, Execution] | None:
    """Return the number of the latest step that all ranks measured, and its execution.

    Only its times are known: its options have no clock and no energy.

    Args:
        pipeline: The graph of an iteration.
        passages: Start and end times of steps, by place.

    Returns:
        `None` if there is no such step, or its instructions are not those of the graph.
    """
    shared = set.intersection(*({each.step for each in place} for place in passages))
    if not shared:
        return None
    number = max(shared)
    step = [next(each for each in place if each.step == number) for place in passages]
    at = _numbers(pipeline)
    if [len(own) for own in at] != [len(each.begins) for each in step]:
        return None
    begins, ends = [0.0] * len(pipeline.operations), [0.0] * len(pipeline.operations)
    for own, times in zip(at, step, strict=True):
        for operation, begin, end in zip(own, times.begins, times.ends, strict=True):
            begins[operation], ends[operation] = begin, end
    offsets = _offsets(pipeline, begins, ends)
    if offsets is None:
        return None
    execution = _execution(pipeline, begins, ends, offsets)
    return (number, execution) if execution.time > 0 else None


def _numbers(pipeline: Pipeline) -> list[list[int]]:
    """Return the numbers of the operations of each place, in their order."""
    found: list[list[int]] = [[] for _ in range(pipeline.devices)]
    for number, operation in enumerate(pipeline.operations):
        if operation.device is not None:
            found[operation.device].append(number)
    return found


def _offsets(
    pipeline: Pipeline, begins: Sequence[float], ends: Sequence[float]
) -> list[float] | None:
    """Return by how much the clock of each place is ahead of the first; `None` if unknown."""
    shortest: dict[tuple[int, int], float] = {}
    for number, operation in enumerate(pipeline.operations):
        place = operation.device
        if place is None:
            continue
        for other in _waits_for(pipeline, number):
            sender = pipeline.operations[other].device
            if sender is not None and sender != place:
                gap = begins[number] - ends[other]
                shortest[sender, place] = min(gap, shortest.get((sender, place), gap))
    known = {0: 0.0}
    reached = deque(known)
    while reached:
        here = reached.popleft()
        for there in range(pipeline.devices):
            both = (here, there) in shortest and (there, here) in shortest
            if there not in known and both:
                ahead = (shortest[here, there] - shortest[there, here]) / 2
                known[there] = known[here] + ahead
                reached.append(there)
    if len(known) < pipeline.devices:
        return None
    return [known[place] for place in range(pipeline.devices)]


def _waits_for(pipeline: Pipeline, number: int) -> Iterator[int]:
    """Yield the operations on ranks that one waits for, directly or by a message."""
    for other in pipeline.operations[number].after:
        if pipeline.operations[other].device is None:
            yield from _waits_for(pipeline, other)
        else:
            yield other


def _execution(
    pipeline: Pipeline, begins: Sequence[float], ends: Sequence[float], offsets: Sequence[float]
) -> Execution:
    on_ranks = [
        (number, operation.device)
        for number, operation in enumerate(pipeline.operations)
        if operation.device is not None
    ]
    first = min(begins[number] - offsets[place] for number, place in on_ranks)
    starts = [0.0] * len(begins)
    options = [Option(None, 0.0, 0.0)] * len(begins)
    for number, place in on_ranks:
        starts[number] = begins[number] - offsets[place] - first
        options[number] = Option(None, ends[number] - begins[number], 0.0)
    last = max(starts[number] + options[number].time for number, _ in on_ranks)
    return Execution(pipeline, tuple(options), tuple(starts), last, 0.0, 0.0)

"""Messages that block: both ranks wait until one has been sent and received.

Many engines synchronize around each message. A message then begins when both ranks have arrived,
and neither computes until it has ended; a rank that sends and receives at the same time does both
at once. Whether an engine does so is not reported. It follows from when computations began and
ended: the graph that predicts these times best is the one to plan with.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from zeus.optimizer.pipeline_frequency._pipeline import Pipeline
from zeus.optimizer.pipeline_frequency.job._messages import StepTimes
from zeus.optimizer.pipeline_frequency.job._transit import Dependency

Passages = Mapping[Hashable, Sequence[Sequence[StepTimes]]]
"""Start and end times of steps, by pipeline and place."""
Location = tuple[int, int]
"""A place, and the index of one of its instructions, or of the pause before that instruction."""
Exchange = frozenset[Location]
"""A message, or two in opposite directions: in these pauses of two places."""


def blocking_order(
    dependencies: Sequence[Sequence[Dependency]], lengths: Sequence[int], *, in_turn: bool
) -> dict[Location | Exchange, list[Location | Exchange]] | None:
    """Return instructions and exchanges in an order in which they can run, with their predecessors.

    Args:
        dependencies: Dependencies of each place on others.
        lengths: Number of instructions of each place.
        in_turn: Whether a rank first sends its result, and then receives the next input, unless
            both are one exchange; else they go on at the same time.

    Returns:
        What each waits for; `None` if ranks would wait for each other forever.
    """
    sends: dict[Location, Exchange] = {}
    receives: dict[Location, Exchange] = {}
    for place, needs in enumerate(dependencies):
        for need in needs:
            sent, received = (need.sender, need.sent + 1), (place, need.receiver)
            sends[sent] = receives[received] = frozenset((sent, received))
    waits: dict[Location | Exchange, list[Location | Exchange]] = {}
    for place, length in enumerate(lengths):
        for number in range(length + 1):
            here = place, number
            before: list[Location | Exchange] = [(place, number - 1)] if number else []
            pause = dict.fromkeys(each[here] for each in (sends, receives) if here in each)
            for exchange in pause:
                waits.setdefault(exchange, []).extend(before)
            if in_turn and len(pause) == 2:
                waits[receives[here]].append(sends[here])
            if number < length:
                waits[here] = [*before, *pause]
    try:
        return {each: waits[each] for each in TopologicalSorter(waits).static_order()}
    except CycleError:
        return None


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

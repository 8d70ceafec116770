"""Estimates message times between the places of a pipeline from when computations begin and end.

The gap between the end of a computation and the start of the one that needs its result is the
message time plus any other delay of the receiver. The shortest gap of a step is the message time,
because at the step's start and where it waits for a backward the receiver has nothing else to do.
Clocks of two machines do not agree, but their offset enters the two directions with opposite signs.
So only the mean of both directions is used, within one step, in which clocks do not drift apart.
From step to step messages vary, so that the median of steps may count, or the shortest where other
delays are longer. Pipelines share a plan, so the pipeline whose link is the slowest counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence

from zeus.optimizer.pipeline_frequency._exchanges import Dependency
from zeus.optimizer.pipeline_frequency.job._messages import MAX_SECONDS, StepTimes

SHORTEST = 1e-5  # seconds; shorter messages get no operation of their own


def message_times(
    dependencies: Sequence[Sequence[Dependency]],
    passages: Mapping[Hashable, Sequence[Sequence[StepTimes]]],
    of_steps: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[tuple[int, int], float]:
    """Return seconds of a message by pair of places, the lower first; unknown ones are absent.

    Args:
        dependencies: Dependencies of each place on others.
        passages: Start and end times of steps, by pipeline and place.
        of_steps: Summary of the times of several steps.
    """
    found: dict[tuple[int, int], float] = {}
    for places in passages.values():
        for pair, means in _of_steps(dependencies, places).items():
            found[pair] = max(of_steps(means), found.get(pair, 0.0))
    return {pair: each for pair, each in found.items() if SHORTEST <= each <= MAX_SECONDS}


def _of_steps(
    dependencies: Sequence[Sequence[Dependency]], places: Sequence[Sequence[StepTimes]]
) -> dict[tuple[int, int], list[float]]:
    """Return the mean of both directions of each step, by pair of places."""
    by_step = [{each.step: each for each in place} for place in places]
    shortest: dict[tuple[int, int, int], float] = {}
    for place, needs in enumerate(dependencies):
        for need in needs:
            for step in by_step[place].keys() & by_step[need.sender].keys():
                begin = by_step[place][step].begins[need.receiver]
                gap = begin - by_step[need.sender][step].ends[need.sent]
                way = need.sender, place, step
                shortest[way] = min(gap, shortest.get(way, gap))
    found: dict[tuple[int, int], list[float]] = {}
    for (sender, receiver, step), gap in shortest.items():
        back = shortest.get((receiver, sender, step))
        if sender < receiver and back is not None:
            found.setdefault((sender, receiver), []).append((gap + back) / 2)
    return found

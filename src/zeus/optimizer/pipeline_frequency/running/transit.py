"""How long messages between the places of a pipeline take, from when computations begin and end.

Between the end of a computation and the begin of the one that needs its result lie the message and
whatever else kept the receiver. The shortest such time of a step is the message's own, because at
its begin and where a backward is waited for the receiver has nothing else to do. Clocks of two
machines do not agree; but by as much as one seems late one way, it seems early the other way. So
only the mean of both ways is used, within one step, in which clocks do not drift apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from zeus.optimizer.pipeline_frequency.running.messages import MOST_SECONDS, Passage

SHORTEST = 1e-5  # seconds; less is not worth an operation of its own


class Dependency(NamedTuple):
    """One computation that needs the result of another.

    Attributes:
        receiver: Number of the instruction among those of its place.
        sender: Place of the other.
        sent: Number of the other instruction there.
    """

    receiver: int
    sender: int
    sent: int


def message_times(
    dependencies: Sequence[Sequence[Dependency]],
    passages: Mapping[Hashable, Sequence[Sequence[Passage]]],
) -> dict[tuple[int, int], float]:
    """Seconds of a message between two places, the lower number first; none where unknown.

    Args:
        dependencies: Of each place, on others.
        passages: Of each pipeline, of each of its places.
    """
    found: dict[tuple[int, int], float] = {}
    for places in passages.values():
        by_step = [{each.step: each for each in place} for place in places]
        shortest: dict[tuple[int, int, int], float] = {}
        for place, needs in enumerate(dependencies):
            for need in needs:
                for step in by_step[place].keys() & by_step[need.sender].keys():
                    begin = by_step[place][step].begins[need.receiver]
                    gap = begin - by_step[need.sender][step].ends[need.sent]
                    way = need.sender, place, step
                    shortest[way] = min(gap, shortest.get(way, gap))
        for (sender, receiver, step), gap in shortest.items():
            back = shortest.get((receiver, sender, step))
            if sender < receiver and back is not None:
                pair = sender, receiver
                found[pair] = min((gap + back) / 2, found.get(pair, (gap + back) / 2))
    return {pair: each for pair, each in found.items() if SHORTEST <= each <= MOST_SECONDS}

"""Messages that block: both ranks wait until one has been sent and received.

Many engines synchronize around each message. A message then begins when both ranks have arrived,
and neither computes until it has ended; a rank that sends to another and receives from it at the
same time does both at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

Location = tuple[int, int]
"""A place, and the index of one of its instructions, or of the pause before that instruction."""
Exchange = frozenset[Location]
"""A message, or two in opposite directions: in these pauses of two places."""


class Dependency(NamedTuple):
    """Dependency of a computation on the result of one at another place.

    Attributes:
        receiver: Index of the instruction in the sequence of its place.
        sender: Place of the other instruction.
        sent: Index of the other instruction in the sequence there.
    """

    receiver: int
    sender: int
    sent: int


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

"""Chains of windows: pairs of operations of neighboring ranks that have to take equally long.

Where ranks run forward and backward in turn, as under 1F1B, one rank's backward and next forward
lie beside the next rank's forward and backward, between the same two events. Whichever pair is
shorter waits for the other. `c/windows.c` derives a lower bound from these windows. They are found
by the dependencies of operations alone; a graph without any has the continuous bound only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zeus.optimizer.pipeline_frequency._curves import Curves
from zeus.optimizer.pipeline_frequency._pipeline import Operation, Pipeline

_BEHIND, _AHEAD = 1, 2  # as in `c/windows.c`
_MAX_OPTIONS = 256  # of an operation of a chain: all pairs of options are enumerated
_MAX_ENTRIES = 2_000_000  # about 50 MB


@dataclass(frozen=True)
class Chains:
    """Chains of windows of a pipeline.

    Attributes:
        rank_before: Place of the preceding operation of its device, over the dependencies of all
            operations; -1 if there is none.
        chains: Members of each chain, from rank to rank: the numbers of three successive operations
            of a device, and how they are linked with the next member.
    """

    rank_before: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]


def chains_of(pipeline: Pipeline, curves: Curves) -> Chains:
    """Return the chains of windows of a pipeline."""
    ranks = _Ranks(pipeline.operations)
    few = [len(curves.curves[number].options) <= _MAX_OPTIONS for number in curves.of_operation]
    links: dict[int, tuple[int, int]] = {}
    linked: set[int] = set()
    for first in range(len(pipeline.operations)):
        for other, kind in ranks.links(first):
            members = (*ranks.three(first), *ranks.three(other))
            if other not in linked and all(few[number] for number in members):
                links[first] = other, kind
                linked.add(other)
                break
    chains: list[tuple[int, ...]] = []
    for first in links.keys() - linked:
        chain: list[int] = []
        at = first
        while at in links:
            chain += (*ranks.three(at), links[at][1])
            at = links[at][0]
        chains.append((*chain, *ranks.three(at), 0))
    if _entries(chains, curves) > _MAX_ENTRIES:
        chains = []
    # By the microbatch of the last rank, as chains of the first microbatches lack the first ranks.
    return Chains(ranks.places, tuple(sorted(chains, key=lambda chain: chain[-4])))


def _entries(chains: Sequence[Sequence[int]], curves: Curves) -> int:
    """Return how many pairs of options the solver keeps: of all kinds, and twice of each rank."""
    kinds = set()
    for chain in chains:
        for start in range(0, len(chain), 4):
            first, second, third = (curves.of_operation[chain[start + part]] for part in range(3))
            kinds |= {(first, second), (third, second)}
    sizes = [
        len(curves.curves[one].options) * len(curves.curves[other].options) for one, other in kinds
    ]
    longest = max((len(chain) // 4 for chain in chains), default=0)
    return (len(kinds) + 2 * longest) * max(sizes, default=0)


class _Ranks:
    """Operations of each device in their order."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._next: list[int | None] = [None] * len(operations)
        self._previous: list[int | None] = [None] * len(operations)
        self._waiting: list[list[int]] = [[] for _ in operations]
        last: dict[int, int] = {}
        places = []
        start = 0
        for number, operation in enumerate(operations):
            place = -1
            device = operation.device
            if device is not None:
                before = last.get(device)
                if before is not None:
                    self._next[before], self._previous[number] = number, before
                    place = start + operation.after.index(before)
                last[device] = number
            for other in operation.after:
                self._waiting[other].append(number)
            places.append(place)
            start += len(operation.after)
        self.places = tuple(places)

    def three(self, first: int) -> tuple[int, ...]:
        """Return an operation and the next two of its device, or fewer if there are none."""
        numbers = [first]
        while len(numbers) < 3 and (after := self._next[numbers[-1]]) is not None:
            numbers.append(after)
        return tuple(numbers)

    def links(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield operations of later devices that begin windows beside the one after `first`."""
        own = self.three(first)
        device = self._operations[first].device
        if device is None or len(own) < 3:
            return
        for other in self._waiting[first]:
            theirs, beyond = self._operations[other].device, self.three(other)
            if theirs is None or theirs <= device or len(beyond) < 3:
                continue
            before, after = self._previous[other], self._next[own[2]]
            kind = 0
            if after is not None and after in self._waiting[beyond[1]]:
                kind |= _BEHIND
            if (
                before is not None
                and own[1] in self._waiting[before]
                and beyond[2] in self._waiting[own[2]]
            ):
                kind |= _AHEAD
            if kind:
                yield other, kind

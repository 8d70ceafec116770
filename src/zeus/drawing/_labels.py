"""Placement of labels: beside their marks without overlaps, or further off with a leader line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from zeus.drawing._shapes import Anchor, Box


@dataclass(frozen=True)
class Spot:
    """A candidate position of a label, and the leader line from its mark if it is far."""

    box: Box
    anchor: Anchor
    leader: tuple[tuple[float, float], tuple[float, float]] | None = None

    @property
    def x(self) -> float:
        """Anchor of its texts, in pixels."""
        box = self.box
        return {"start": box.left, "end": box.right}.get(self.anchor, box.middle)


def first_free(spots: Iterable[Spot], room: Box, taken: Sequence[Box]) -> Spot | None:
    """Return the first spot within the room that overlaps no occupied box."""
    for spot in spots:
        if spot.box.within(room) and not any(map(spot.box.overlaps, taken)):
            return spot
    return None


def near_spots(mark: Box, width: float, height: float) -> Iterator[Spot]:
    """Yield spots around a mark, best first: away from a line that falls to the right."""
    right, left = mark.right + 1, mark.left - 1
    above, beside, below = mark.top - height + 3, mark.center - height / 2, mark.bottom - 3
    for top in (above, beside):
        yield Spot(Box(right, top, right + width, top + height), "start")
    start = mark.middle - width / 2
    yield Spot(Box(start, above - 4, start + width, above - 4 + height), "middle")
    for top in (below, beside):
        yield Spot(Box(left - width, top, left, top + height), "end")
    yield Spot(Box(start, below + 4, start + width, below + 4 + height), "middle")
    yield Spot(Box(left - width, above, left, above + height), "end")
    yield Spot(Box(right, below, right + width, below + height), "start")


def far_spots(mark: Box, width: float, height: float) -> Iterator[Spot]:
    """Yield spots further off, to the right first, where such a line leaves most room."""
    x, y = mark.middle, mark.center
    reach = mark.right - x - 2
    for distance in (34.0, 52.0, 72.0, 96.0, 124.0):
        for degrees in (-35, -60, -10, 15, -85, 40, 75, 180, 150, -150, 115, -115):
            across, down = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            end = x + distance * across, y + distance * down
            leader = (x + reach * across, y + reach * down), end
            anchor: Anchor = "start" if across > -0.3 else "end"
            left = end[0] + 3 if anchor == "start" else end[0] - 3 - width
            top = end[1] - height / 2
            yield Spot(Box(left, top, left + width, top + height), anchor, leader)


def along(corners: Iterable[tuple[float, float]]) -> Iterator[Box]:
    """Yield small boxes along a line, so that no label overlaps it."""
    for (x0, y0), (x1, y1) in pairwise(corners):
        steps = max(1, math.ceil(math.hypot(x1 - x0, y1 - y0) / 4))
        for step in range(steps + 1):
            share = step / steps
            yield Box.around(x0 + (x1 - x0) * share, y0 + (y1 - y0) * share, 2.0)

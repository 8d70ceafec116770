"""Points over time in a bounded number: the older, the longer, by merging neighbors.

Each lasts a share of its age, so the last hour is known in detail and weeks coarsely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

_SHARE = 1 / 64  # of its age, for which a point may last: about 20 minutes a day ago
_MOST_SHARE = 1e6  # beyond, ages say nothing: most points end at the same instant


class Lasting(Protocol):
    """Something from one instant to another, in seconds."""

    @property
    def begin(self) -> float:
        """Its beginning."""

    @property
    def end(self) -> float:
        """Its end."""


Point = TypeVar("Point", bound=Lasting)


def bounded(
    points: Sequence[Point], most: int, joined: Callable[[Point, Point], Point]
) -> list[Point]:
    """Return fewer than `most` points, by merging neighbors where there are too many.

    Args:
        points: The points in the order of time, or, if not, merged as if they were.
        most: From how many points on they are merged, at least 2.
        joined: Returns the point that stands for two neighbors.
    """
    kept, share = list(points), _SHARE
    while len(kept) >= most:
        kept = _thinned(kept, share, joined) if share < _MOST_SHARE else _paired(kept, joined)
        share *= 2
    return kept


def _thinned(
    points: Sequence[Point], share: float, joined: Callable[[Point, Point], Point]
) -> list[Point]:
    now = max(each.end for each in points)
    found: list[Point] = []
    for each in points:
        if found and each.end - found[-1].begin <= share * (now - each.end):
            found[-1] = joined(found[-1], each)
        else:
            found.append(each)
    return found


def _paired(points: Sequence[Point], joined: Callable[[Point, Point], Point]) -> list[Point]:
    found = [joined(*pair) for pair in zip(points[::2], points[1::2], strict=False)]
    return [*found, *points[len(points) - len(points) % 2 :]]

"""Compares our frontier with a published one at the same iteration times."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zeus.errors import StageProfileError
from zeus.frontier import Frontier
from zeus.optimizer.pipeline_frequency._tables import number, rows


@dataclass(frozen=True)
class Comparison:
    """Our energies relative to those of another frontier."""

    # Our energy over theirs, at each of their times that our plans can reach
    ratios: tuple[float, ...]
    unreachable: int  # number of their times that are shorter than our fastest plan

    @property
    def mean(self) -> float:
        """Mean ratio: below 1 if ours takes less; NaN if none of their times can be reached."""
        return math.fsum(self.ratios) / len(self.ratios) if self.ratios else math.nan


def read_frontier(path: str | os.PathLike[str]) -> list[tuple[float, float]]:
    """Return times and energies from a CSV table with the columns time (s) and energy (J)."""
    return [
        (_positive(cells, "time", where), _positive(cells, "energy", where))
        for where, cells in rows(Path(path), ("time", "energy"), "a frontier")
    ]


def _positive(cells: Mapping[str, str], name: str, where: str) -> float:
    value = number(cells, name, where)
    if value <= 0:
        raise StageProfileError(f"{where}: `{name} > 0` must hold, but got {cells[name]!r}")
    return value


def compare(frontier: Frontier, others: Sequence[tuple[float, float]]) -> Comparison:
    """Compare our energy with theirs at each of their points (s, J)."""
    fastest = frontier.fastest.time
    # By rising time and falling energy, the last plan that is fast enough is the best.
    points = sorted(frontier.pareto(), key=lambda point: point.time)
    ratios, at = [], 0
    reachable = sorted(other for other in others if other[0] >= fastest)
    for time, energy in reachable:
        while at + 1 < len(points) and points[at + 1].time <= time:
            at += 1
        ratios.append(points[at].energy / energy)
    return Comparison(tuple(ratios), len(others) - len(reachable))

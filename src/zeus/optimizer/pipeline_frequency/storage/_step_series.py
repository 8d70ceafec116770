"""Step time and energy of a job over hours and days, in a bounded number of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from zeus._thinning import bounded
from zeus.optimizer.pipeline_frequency.job._messages import StepSums

_WIDTH = 20.0  # seconds of a point, while it is not merged with others
_FEWEST_STEPS = 3  # likewise: ranks do not report at the same moment
MAX_POINTS = 512


@dataclass(frozen=True)
class StepPoint:
    """Steps under a plan in some span of time.

    Attributes:
        begin: When the first of them were reported, in seconds since 1970.
        end: When the last of them were reported.
        version: Version of the plan, the latest if there were several.
        steps: Number of steps, mean over ranks.
        time: Mean seconds of a step.
        ranks: Number of ranks with a measured energy.
        energy: Mean joules of a step, of these ranks together; `None` without any.
    """

    begin: float
    end: float
    version: int
    steps: float
    time: float
    ranks: int
    energy: float | None


class StepSeries:
    """Collects points. When there are too many, the older ones are merged."""

    def __init__(self, closed: Sequence[StepPoint] = ()) -> None:
        self._closed = list(closed)
        self._ranks: dict[int, StepSums] = {}
        self._span = 0.0, 0.0
        self._version = 0

    def add(self, rank: int, version: int, added: StepSums, at: float) -> None:
        """Add steps of a rank that were reported at a time, in seconds since 1970."""
        if added.steps <= 0 and added.measured <= 0:
            return
        if self._ranks and (version != self._version or self._is_full(rank, at)):
            self._close()
        if not self._ranks:
            self._span, self._version = (at, at), version
        self._ranks[rank] = self._ranks.get(rank, StepSums()).joined(added)
        self._span = self._span[0], max(self._span[1], at)

    def points(self) -> list[StepPoint]:
        """Return the points in the order of time.

        Energies are left out of points in which fewer ranks reported one than in others of the
        same version: they are not those of all.
        """
        found = [*self._closed, *self._current()]
        most: dict[int, int] = {}
        for each in found:
            most[each.version] = max(most.get(each.version, 0), each.ranks)
        return [
            each if each.ranks == most[each.version] else replace(each, energy=None)
            for each in found
        ]

    def to_list(self) -> list[Any]:
        """Return the JSON form."""
        return [astuple(each) for each in (*self._closed, *self._current())]

    @classmethod
    def from_list(cls, rows: Sequence[Any]) -> StepSeries:
        """Return the series from its JSON form; the inverse of `to_list`."""
        return cls([StepPoint(*row) for row in rows])

    def _is_full(self, rank: int, at: float) -> bool:
        # By the rank that reports: the others may be a step behind, and belong to it as well.
        steps = self._ranks.get(rank, StepSums()).steps
        return steps >= _FEWEST_STEPS and not 0 <= at - self._span[0] < _WIDTH

    def _current(self) -> list[StepPoint]:
        counted = [each for each in self._ranks.values() if each.steps]
        if not counted:
            return []
        steps = sum(each.steps for each in counted)
        energies = [energy for each in counted if (energy := each.energy) is not None]
        return [
            StepPoint(
                *self._span,
                self._version,
                steps / len(counted),
                math.fsum(each.seconds for each in counted) / steps,
                len(energies),
                math.fsum(energies) if energies else None,
            )
        ]

    def _close(self) -> None:
        self._closed += self._current()
        self._ranks = {}
        self._closed = bounded(self._closed, MAX_POINTS, _merged)


def _merged(one: StepPoint, other: StepPoint) -> StepPoint:
    steps = one.steps + other.steps
    ranks = max(one.ranks, other.ranks)
    known = [each for each in (one, other) if each.ranks == ranks and each.energy is not None]
    weight = math.fsum(each.steps for each in known)
    return StepPoint(
        one.begin,
        other.end,
        other.version,
        steps,
        (one.steps * one.time + other.steps * other.time) / steps,
        ranks,
        math.fsum(each.steps * (each.energy or 0.0) for each in known) / weight if known else None,
    )

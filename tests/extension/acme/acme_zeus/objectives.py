"""An objective: the lowest power among points that are fast enough."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.frontier import Frontier, Objective, ObjectiveEntry, Selection


@dataclass(frozen=True)
class LowestPower(Objective):
    """The point of lowest average power that takes at most `seconds`, else the fastest."""

    seconds: float

    def select(self, frontier: Frontier) -> Selection:
        in_time = [point for point in frontier if point.time <= self.seconds]
        return Selection(min(in_time or [frontier.fastest], key=lambda point: point.average_power))


ENTRY = ObjectiveEntry(
    LowestPower,
    "lowest power within {}",
    options=("--lowest-power",),
    placeholder="S seconds",
    shown="{seconds:g} s",
)

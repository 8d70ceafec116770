"""The narrow waist: time and energy of a fixed amount of work, and the choice of a point.

Optimizers that vary a knob (power limit, clock, batch size, a plan) produce `Point`s of a
`Frontier`; an `Objective` chooses one. Pure: no clock, no device, no files. `zeus.drawing.frontier`
draws them.
"""

from __future__ import annotations

from zeus.frontier._base import Objective, ObjectiveEntry, as_objective
from zeus.frontier._frontier import Frontier
from zeus.frontier._objectives import (
    All,
    Deadline,
    Energy,
    EnergyBudget,
    LatencyBound,
    MaxSlowdownConstraint,
    PowerCap,
    Time,
    ZeusCost,
)
from zeus.frontier._point import Point, Settings
from zeus.frontier._selection import Selection

__all__ = [
    "All",
    "Deadline",
    "Energy",
    "EnergyBudget",
    "Frontier",
    "LatencyBound",
    "MaxSlowdownConstraint",
    "Objective",
    "ObjectiveEntry",
    "Point",
    "PowerCap",
    "Selection",
    "Settings",
    "Time",
    "ZeusCost",
    "as_objective",
]

"""The narrow waist: time and energy of a fixed amount of work, and the choice of a point.

Optimizers that vary a knob (power limit, clock, batch size, a plan) produce `Point`s of a
`Frontier`; an `Objective` chooses one. Pure: no clock, no device, no files. `zeus.drawing.frontier`
draws them.
"""

from __future__ import annotations

from zeus.frontier import _objectives
from zeus.frontier._base import Objective, as_objective
from zeus.frontier._frontier import Frontier
from zeus.frontier._objectives import *  # noqa: F403  (Energy, Time, ZeusCost ...: all that are there)
from zeus.frontier._point import Point, Settings
from zeus.frontier._selection import Selection

__all__ = ["Frontier", "Objective", "Point", "Selection", "Settings", "as_objective"]
__all__ += _objectives.__all__
__all__.sort()

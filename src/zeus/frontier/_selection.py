"""The result of an objective: the choice, and its certainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zeus.frontier._point import Point


@dataclass(frozen=True)
class Selection:
    """The point that an objective chose.

    Attributes:
        point: The choice.
        feasible: Whether it satisfies the objective's constraint. If no point does, the choice is
            the one that violates it least, and `note` says so.
        cost: Minimized cost at this point: joules or seconds, as the objective documents; `None`
            if it has no cost.
        note: Remark for users about the choice; may be empty.
        runner_up: The next best point; `None` if there is no other.
        tie: Whether another point is as good within the uncertainty of both.
    """

    point: Point
    feasible: bool = True
    cost: float | None = None
    note: str = ""
    runner_up: Point | None = None
    tie: bool = False


Chosen = Selection | Point | Mapping[str, Selection | Point] | None
"""A choice, or choices by the name of the objective, to be highlighted in a plot."""

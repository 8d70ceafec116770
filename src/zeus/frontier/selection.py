"""What an objective decided, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.frontier.point import Point


@dataclass(frozen=True)
class Selection:
    """The point that an objective chose.

    Attributes:
        point: The choice.
        feasible: Whether it keeps what the objective demands. If no point does, the choice is the
            least bad one, and `note` says so.
        cost: What the objective minimizes, at this point: joules or seconds, as the objective
            documents; `None` if it has no such figure.
        note: What a user should know about the choice; empty if there is nothing to say.
        runner_up: The next best point; `None` if there is no other.
        tie: Whether another point is as good within the uncertainty of both.
    """

    point: Point
    feasible: bool = True
    cost: float | None = None
    note: str = ""
    runner_up: Point | None = None
    tie: bool = False

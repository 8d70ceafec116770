"""Selectors of zeus 0.16 as objectives: they choose watts from a list of measurements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from zeus.errors import FrontierError
from zeus.frontier import Frontier, Objective, Selection


@dataclass(frozen=True)
class PowerLimitMeasurement:
    """Time and energy at a power limit.

    Attributes:
        power_limit: Watts of each GPU.
        energy: Joules of all GPUs.
        time: Seconds.
    """

    power_limit: float
    energy: float
    time: float


class OptimumSelector(Objective):
    """Base of objectives whose `select` takes a list of measurements and returns watts.

    Optimizers give it a frontier, which is turned into such a list: from the highest power limit
    down, for the optimizer's `job_steps`. All limits are profiled before it decides.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "select" in vars(cls):
            type.__setattr__(cls, "select", _on_frontiers(cls.select))

    @abstractmethod
    def select(self, measurements: Any) -> Any:
        """Return the `power_limit` of one of the measurements."""


def _on_frontiers(select: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(select)
    def choose(selector: object, measurements: Any) -> Any:
        if not isinstance(measurements, Frontier):
            return select(selector, measurements)  # called directly, or by a subclass
        points = {_watts(point.knob, measurements): point for point in measurements}
        chosen = select(
            selector,
            [
                PowerLimitMeasurement(watts, point.energy, point.time)
                for watts, point in points.items()
            ],
        )
        if chosen not in points:
            raise FrontierError(
                f"{select.__qualname__} must return the power limit of one of its measurements, "
                f"{', '.join(f'{watts:g}' for watts in points)} W, but got {chosen!r}"
            )
        return Selection(points[chosen])

    return choose


def _watts(knob: Any, frontier: Frontier) -> float:
    if isinstance(knob, bool) or not isinstance(knob, int | float) or frontier.knob_unit != "W":
        raise FrontierError(
            "an OptimumSelector chooses one power limit for all GPUs, but the frontier is of "
            f"{frontier.knob_name}={knob!r}; write a zeus.frontier.Objective"
        )
    return int(knob) if float(knob).is_integer() else knob

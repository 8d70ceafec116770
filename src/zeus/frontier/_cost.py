"""The cost that weighs energy against time."""

from __future__ import annotations

from typing import Any, TypeVar

_Amount = TypeVar("_Amount")  # a number, or an array of numbers


def zeus_cost(energy: _Amount, time: _Amount, max_power: float, eta_knob: float) -> _Amount:
    """Return the cost in joules: equation 2 of the Zeus paper (NSDI '23).

    Args:
        energy: Joules of all GPUs; a number or an array.
        time: Seconds, likewise.
        max_power: Maximum power of all GPUs together, in watts.
        eta_knob: The paper's eta: 0 weighs only time, 1 only energy.
    """
    joules: Any = energy
    seconds: Any = time
    cost: _Amount = eta_knob * joules + (1 - eta_knob) * max_power * seconds
    return cost

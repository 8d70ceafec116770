"""How a simulated GPU answers to its knobs: what it draws and how fast it works under each setting.

The physics is the caller's, as a function of power limit and clock; here it becomes a table in the
state file, from which the C side takes what follows when a client turns a knob (nvml/response.c).
"""

from __future__ import annotations

import bisect
import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from simulated_drivers._power import fields

MAX_LIMIT_KNOTS = 512
MAX_CLOCK_KNOTS = 256


class Operation(NamedTuple):
    """What a GPU settles at.

    Attributes:
        watts: what it draws.
        speed: how much work it does per second, relative to whatever the load calls 1.
    """

    watts: float
    speed: float


Load = Callable[[float, float], Operation]
"""What a GPU under this load settles at, given its power limit (W) and its highest clock (MHz).

Less of either must not mean more watts: of limit and clock, the one that leaves fewer watts rules.
"""


class Knot(ctypes.Structure):
    """Must mirror `struct knot` in nvml/state.h."""

    _fields_ = fields(ctypes.c_double, "setting", "watts", "speed")


class Response(ctypes.Structure):
    """Must mirror `struct response` in nvml/state.h."""

    _fields_ = [
        *fields(ctypes.c_uint64, "limit_knot_count", "clock_knot_count"),
        ("speed", ctypes.c_double),
        ("limit_knots", Knot * MAX_LIMIT_KNOTS),
        ("clock_knots", Knot * MAX_CLOCK_KNOTS),
    ]


def describe(
    response: Response, load: Load, limits: tuple[float, float], clocks: Sequence[int]
) -> None:
    """Tabulate a load: at every whole watt (of a wide range, at fewer) and every clock.

    Args:
        response: what is rewritten; must not be read meanwhile.
        load: the physics.
        limits: lowest and highest power limit, W.
        clocks: in MHz, in any order.
    """
    lowest, highest = limits
    step = max(1.0, math.ceil((highest - lowest) / (MAX_LIMIT_KNOTS - 1)))
    whole = [lowest + number * step for number in range(math.ceil((highest - lowest) / step))]
    ascending = sorted(set(clocks))
    knots = [(watts, load(watts, ascending[-1])) for watts in (*whole, highest)]
    _write(response.limit_knots, knots)
    _write(response.clock_knots, [(clock, load(highest, clock)) for clock in ascending])
    response.limit_knot_count, response.clock_knot_count = len(knots), len(ascending)


def forget(response: Response) -> None:
    """The GPU draws what was scheduled, whatever its knobs are."""
    response.limit_knot_count = response.clock_knot_count = 0
    response.speed = 1.0


def operation(response: Response, limit: float, clock: float) -> Operation:
    """What follows from the table, as the C side finds it."""
    by_limit = _between(response.limit_knots, response.limit_knot_count, limit)
    by_clock = _between(response.clock_knots, response.clock_knot_count, clock)
    return by_clock if by_clock.watts < by_limit.watts else by_limit


def _write(knots: Any, entries: Sequence[tuple[float, Operation]]) -> None:
    for position, (setting, settled) in enumerate(entries):
        knots[position] = Knot(setting, *settled)


def _between(knots: Any, count: int, setting: float) -> Operation:
    """Linear between two knots, constant beyond the outermost."""
    upper = bisect.bisect_right(range(count), setting, key=lambda number: knots[number].setting)
    if upper in (0, count):
        outermost = knots[0 if upper == 0 else count - 1]
        return Operation(outermost.watts, outermost.speed)
    low, high = knots[upper - 1], knots[upper]
    share = (setting - low.setting) / (high.setting - low.setting)
    return Operation(
        low.watts + share * (high.watts - low.watts), low.speed + share * (high.speed - low.speed)
    )

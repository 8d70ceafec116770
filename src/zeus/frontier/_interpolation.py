"""Linear interpolation between points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from zeus._rules import is_number
from zeus.errors import FrontierError
from zeus.frontier._point import Point, combined_uncertainty

Coordinate = Literal["time", "energy", "knob"]


def along(points: Sequence[Point], name: Coordinate, wanted: float) -> Point:
    """Return the point on the line through the points where a coordinate has the wanted value.

    Args:
        points: In an order in which that coordinate is monotonic.
        name: Which coordinate.
        wanted: Its value.

    Raises:
        FrontierError: Outside the points' range, or between knobs that are not real numbers.
    """
    values = [_coordinate(point, name) for point in points]
    if wanted in values:
        return points[values.index(wanted)]
    for (left, low), (right, high) in pairwise(zip(points, values, strict=True)):
        if min(low, high) < wanted < max(low, high):
            return _mix(left, right, (wanted - low) / (high - low), name, wanted)
    raise FrontierError(
        f"`{min(values):g} <= {name} <= {max(values):g}` must hold here (outside there is nothing "
        f"to interpolate between), but got {name}={wanted!r}"
    )


def real_knob(point: Point) -> float:
    """Return the knob as a number.

    Raises:
        FrontierError: If it is not one.
    """
    if not is_number(point.knob):
        raise FrontierError(
            f"interpolating needs knobs that are real numbers, but got knob={point.knob!r}"
        )
    return float(point.knob)


def _coordinate(point: Point, name: Coordinate) -> float:
    if name == "knob":
        return real_knob(point)
    return point.time if name == "time" else point.energy


def _mix(left: Point, right: Point, share: float, name: Coordinate, wanted: float) -> Point:
    def line(first: float, second: float) -> float:
        value = first + share * (second - first)
        return min(max(value, min(first, second)), max(first, second))  # despite rounding

    def blur(first: float | None, second: float | None) -> float | None:
        if first is None or second is None:
            return None
        return combined_uncertainty((1 - share) * first, share * second)

    knob = line(real_knob(left), real_knob(right))
    time = line(left.time, right.time)
    energy = line(left.energy, right.energy)
    return Point(
        wanted if name == "knob" else knob,
        wanted if name == "time" else time,
        wanted if name == "energy" else energy,
        blur(left.time_uncertainty, right.time_uncertainty),
        blur(left.energy_uncertainty, right.energy_uncertainty),
        0,
        {
            percentile: line(seconds, right.latencies[percentile])
            for percentile, seconds in left.latencies.items()
            if percentile in right.latencies
        },
    )

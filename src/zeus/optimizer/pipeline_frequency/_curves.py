"""The solver's integer problem: options as whole numbers, and their lower convex hulls.

Times are rounded down to ticks, and slopes of hulls down to whole units, so that the integer
problem is nowhere more expensive than the real one: its lower bounds are lower bounds of the real
one as well. Both units are powers of two, the smallest that keep all sums within 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from zeus.optimizer.pipeline_frequency._pipeline import Operation, Pipeline
from zeus.optimizer.pipeline_frequency._profile import Option, useful

_BITS = 59  # sums of all operations stay below 2 to this power
_LARGE = 2000  # operations; a pipeline of no more is solved exactly
_SLOPES = 256  # number of slopes up to the steepest, if it is larger


@dataclass(frozen=True)
class Curve:
    """The options of one kind of operation."""

    options: tuple[Option, ...]  # useful options, by rising time and falling cost
    ticks: tuple[int, ...]  # time of each option in ticks, rising
    energies: tuple[float, ...]  # joules of each option, over all GPUs that run it
    busy: tuple[float, ...]  # GPU-seconds of each option
    costs: tuple[float, ...]  # joules of each option beyond those of waiting for its time
    hull_ticks: tuple[int, ...] = ()  # corners of the lower convex hull in ticks, rising
    # Slope from the previous corner to each, falling; the first is 0
    hull_slopes: tuple[int, ...] = ()
    corner_ticks: tuple[int, ...] = ()  # the same, with slopes rounded to fewer different ones
    corner_slopes: tuple[int, ...] = ()
    least_cost: int = 0  # cost of the last option, in whole units


@dataclass(frozen=True)
class Curves:
    """The curves of a whole pipeline."""

    curves: tuple[Curve, ...]  # the distinct curves
    of_operation: tuple[int, ...]  # index of each operation's curve
    tick_bits: int  # A second has 2 to this power ticks
    # A watt has 2 to this power units of slope. A tick at a slope of one unit costs one unit of
    # cost.
    slope_bits: int


def curves_of(pipeline: Pipeline) -> Curves:
    """Return the curves of a pipeline's operations."""
    numbers: dict[tuple[int, bool], int] = {}
    kinds: list[tuple[Operation, tuple[Option, ...]]] = []
    of_operation = []
    for operation in pipeline.operations:
        # Operations of a kind share the tuple object of options from their profile.
        key = id(operation.options), operation.device is None
        if key not in numbers:
            numbers[key] = len(kinds)
            # Where no GPU is busy, none would wait instead: waiting costs nothing.
            power = 0.0 if operation.device is None else pipeline.blocking_power
            kinds.append((operation, useful(operation.options, power)))
        of_operation.append(numbers[key])
    uses = [0] * len(kinds)
    for number in of_operation:
        uses[number] += 1

    longest = math.fsum(
        use * options[-1].time for use, (_, options) in zip(uses, kinds, strict=True)
    )
    tick_bits = _BITS - math.frexp(longest)[1]
    curves = [_without_hull(pipeline, *kind, tick_bits) for kind in kinds]
    steepest = math.fsum(
        use * _steepest(curve, tick_bits) for use, curve in zip(uses, curves, strict=True)
    )
    slope_bits = _BITS - math.frexp(steepest)[1]
    curves = [_with_hull(curve, slope_bits + tick_bits) for curve in curves]
    unit = _unit(curves, uses)
    return Curves(
        tuple(_with_corners(curve, unit) for curve in curves),
        tuple(of_operation),
        tick_bits,
        slope_bits,
    )


def _unit(curves: Sequence[Curve], uses: Sequence[int]) -> int:
    """Return the unit that slopes are rounded to.

    Each breakpoint of the frontier raises the slope by a unit at least, and each costs time by the
    number of operations. Where both are many, a coarser unit lowers the bound by less than
    0.02 %, and makes ten times fewer breakpoints.
    """
    if sum(uses) <= _LARGE:
        return 1
    steepest = sum(
        use * max(curve.hull_slopes) for use, curve in zip(uses, curves, strict=True)
    ) // sum(uses)
    return max(steepest // _SLOPES, 1)


def _steepest(curve: Curve, tick_bits: int) -> float:
    """Return an upper bound of the slopes of the hull, in watts."""
    falls = [
        (curve.costs[0] - cost) / math.ldexp(ticks - curve.ticks[0], -tick_bits)
        for cost, ticks in zip(curve.costs[1:], curve.ticks[1:], strict=True)
    ]
    return max(falls, default=0.0)


def _with_hull(curve: Curve, cost_bits: int) -> Curve:
    """Return the curve with its hull, in units of cost of 2 to the power `-cost_bits` joules."""
    whole = [_floor(cost, cost_bits) for cost in curve.costs]
    corners = _hull(curve.ticks, whole)
    # Merge sides of the hull whose slopes are equal after rounding. Keep the first corner.
    ticks, slopes = [curve.ticks[corners[0]]], [0]
    for before, corner in pairwise(corners):
        slope = (whole[before] - whole[corner]) // (curve.ticks[corner] - curve.ticks[before])
        if slope == 0:
            break
        if slope == slopes[-1]:
            ticks[-1] = curve.ticks[corner]
        else:
            ticks.append(curve.ticks[corner])
            slopes.append(slope)
    return replace(curve, hull_ticks=tuple(ticks), hull_slopes=tuple(slopes), least_cost=whole[-1])


def _with_corners(curve: Curve, unit: int) -> Curve:
    """Return the curve with the slopes of its hull rounded to multiples of a unit."""
    ticks, slopes = [curve.hull_ticks[0]], [0]
    for tick, exact in zip(curve.hull_ticks[1:], curve.hull_slopes[1:], strict=True):
        slope = (exact + unit // 2) // unit * unit
        if slope == 0:
            break
        if slope == slopes[-1]:
            ticks[-1] = tick
        else:
            ticks.append(tick)
            slopes.append(slope)
    return replace(curve, corner_ticks=tuple(ticks), corner_slopes=tuple(slopes))


def _without_hull(
    pipeline: Pipeline, operation: Operation, options: Sequence[Option], tick_bits: int
) -> Curve:
    """Return the curve of an operation, before the unit of cost is chosen."""
    gpus = pipeline.gpus_of(operation)
    kept: list[tuple[Option, int]] = []
    for option in options:
        tick = int(math.ldexp(option.time, tick_bits))
        # Of options with equal ticks, the last costs least.
        if kept and kept[-1][1] == tick:
            kept.pop()
        kept.append((option, tick))
    energies = [pipeline.energy_of(operation, option) for option, _ in kept]
    busy = [gpus * option.time for option, _ in kept]
    costs = [
        energy - pipeline.blocking_power * seconds
        for energy, seconds in zip(energies, busy, strict=True)
    ]
    kept_options, ticks = zip(*kept, strict=True)
    return Curve(kept_options, ticks, tuple(energies), tuple(busy), tuple(costs))


def _floor(value: float, bits: int) -> int:
    """Return the value times 2 to the power `bits`, rounded down, exactly."""
    numerator, denominator = value.as_integer_ratio()
    return (numerator << max(bits, 0)) // (denominator << max(-bits, 0))


def _hull(ticks: Sequence[int], costs: Sequence[int]) -> list[int]:
    """Return the indices of the corners of the lower convex hull, computed exactly."""
    corners: list[int] = []
    for index in range(len(ticks)):
        while len(corners) > 1:
            before, last = corners[-2], corners[-1]
            falls = (costs[before] - costs[last]) * (ticks[index] - ticks[before])
            if falls > (costs[before] - costs[index]) * (ticks[last] - ticks[before]):
                break
            corners.pop()
        corners.append(index)
    return corners

"""The time-energy frontier of a pipeline: every plan with what it takes, and how good it is.

`solve` has the exact continuous frontier found first, on which operations may mix their options,
and executable plans next (`c/sweep.c`, `c/solve.c`). The continuous frontier bounds every
plan of the same time from below.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.errors import PipelineError
from zeus.frontier import Frontier, Point
from zeus.optimizer.pipeline_frequency import native
from zeus.optimizer.pipeline_frequency.curves import Curves, curves_of
from zeus.optimizer.pipeline_frequency.limit import Limit
from zeus.optimizer.pipeline_frequency.pipeline import Pipeline, counted
from zeus.optimizer.pipeline_frequency.plan import Menu, Plan

PLANS = 500
_ROUNDS = 3
_MOST_PLANS = 1_000_000
_COST_BITS = 60
_STEEPEST = 1 << 61


class Continuous:
    """The continuous frontier, exact: piecewise linear and convex.

    Attributes:
        fastest: Seconds of the shortest iteration there can be.
        least_energy: Seconds of the iteration that takes the least energy.
    """

    def __init__(self, pipeline: Pipeline, curves: Curves, found: native.Found) -> None:
        self._tick_bits = curves.tick_bits
        self._cost_bits = curves.tick_bits + curves.slope_bits
        self._pipelines = pipeline.data_parallel
        self._waiting = pipeline.blocking_power * pipeline.gpus
        self._ticks = found.breakpoint_ticks
        self._slopes = found.breakpoint_slopes
        self._costs = [sum(curves.curves[number].least_cost for number in curves.of_operation)]
        for place in range(len(self._ticks) - 1):
            fall = self._ticks[place] - self._ticks[place + 1]
            self._costs.append(self._costs[-1] + self._slopes[place] * fall)
        self.fastest = self._seconds(len(self._ticks) - 1)
        # As long as a tick less costs no more than waiting for it does, less time is less energy.
        waiting = math.ldexp(self._waiting, curves.slope_bits)
        last = len(self._ticks) - 1
        best = next((place for place in range(last) if self._slopes[place] > waiting), last)
        self.least_energy = self._seconds(best)

    def _seconds(self, place: int) -> float:
        return math.ldexp(self._ticks[place], -self._tick_bits)

    def corners(self) -> list[tuple[float, float]]:
        """Times and energies between which it is linear, from the fastest to the least energy."""
        found: list[tuple[float, float]] = []
        for place in range(len(self._ticks) - 1, -1, -1):
            time = self._seconds(place)
            if not found or time > found[-1][0]:  # what is only ticks apart is one time
                found.append((time, self._energy(self._costs[place], time)))
            if time >= self.least_energy:
                break
        return found

    def energy(self, time: float) -> float:
        """Joules that no plan can go below that takes this time or less.

        Args:
            time: Seconds, from `fastest` on. Beyond `least_energy` it is that of the least.
        """
        time = min(time, self.least_energy)
        # Up, so that rounding of the time cannot raise the bound.
        ticks = int(math.ldexp(time, self._tick_bits)) + 1
        ticks = min(max(ticks, self._ticks[-1]), self._ticks[0])
        place = bisect.bisect_left(self._ticks, -ticks, key=lambda tick: -tick)
        cost = self._costs[place]
        if self._ticks[place] < ticks:
            cost -= self._slopes[place - 1] * (ticks - self._ticks[place])
        return self._energy(cost, time)

    def _energy(self, cost: int, time: float) -> float:
        return self._pipelines * (math.ldexp(cost, -self._cost_bits) + self._waiting * time)


@dataclass(frozen=True)
class Solution:
    """What was found for a pipeline.

    Attributes:
        frontier: Plans by rising time and falling energy; the knob of each point is a `Plan`.
        continuous: The bound of all of them.
        refined: Whether the solver was done; if not, its limit was reached, plans may be further
            from their bound than usual, and the bound from what can be reached.
    """

    frontier: Frontier
    continuous: Continuous
    refined: bool = True

    @property
    def plans(self) -> Sequence[Plan]:
        """The plans alone."""
        return [point.knob for point in self.frontier]


def solve(pipeline: Pipeline, plans: int = PLANS, limit: Limit | None = None) -> Solution:
    """The frontier of a pipeline, from the fastest plan there can be to the one of least energy.

    Args:
        pipeline: What to plan; it cannot be changed any more.
        plans: How many iteration times to aim at. About as many plans are found, and every one
            that no other beats is given.
        limit: What it may take; by default as long as it needs.

    Raises:
        PipelineError: If the pipeline is empty, a number out of range, or time is over before there
            is any plan.
        SolvingCancelledError: If the limit was cancelled.
        NativeCodeError: If the solver is not there and cannot be built.
    """
    if counted("plans", plans) > _MOST_PLANS:
        raise PipelineError(f"`1 <= plans <= {_MOST_PLANS}` must hold, but got plans={plans!r}")
    pipeline.completed()
    curves = curves_of(pipeline)
    for number, curve in zip(curves.of_operation, pipeline.operations, strict=True):
        if len(curves.curves[number].options) >= native.MOST_OPTIONS:
            raise PipelineError(
                f"an operation has fewer than {native.MOST_OPTIONS} options worth choosing, but "
                f"{curve} has {len(curves.curves[number].options)}"
            )
    limit = limit or Limit()
    limit.check()
    found = native.solve(_numbers(pipeline, curves, plans), limit)
    continuous = Continuous(pipeline, curves, found)
    menu = Menu(pipeline, tuple(curves.curves[number].options for number in curves.of_operation))
    pipelines = pipeline.data_parallel
    points = []
    for time, energy, choices in zip(found.times, found.energies, found.choices, strict=True):
        joules = pipelines * energy
        # Rounding may not make a bound of what is reached.
        bound = min(continuous.energy(time), joules)
        points.append(Point(Plan(menu, choices, time, joules, bound), time, joules))
    frontier = Frontier(points, f"one iteration of {pipeline.name}", knob_name="plan")
    return Solution(frontier, continuous, found.refined)


def _numbers(pipeline: Pipeline, curves: Curves, plans: int) -> native.Numbers:
    each = curves.curves
    largest = math.fsum(max(map(abs, each[number].costs)) for number in curves.of_operation)
    cost_bits = _COST_BITS - math.frexp(largest)[1]
    waiting = math.ldexp(pipeline.blocking_power * pipeline.gpus, curves.slope_bits)
    return native.Numbers(
        plans=plans,
        rounds=_ROUNDS,
        blocking_slope=min(math.floor(waiting), _STEEPEST),
        blocking_power=pipeline.blocking_power,
        gpus=pipeline.gpus,
        curve=curves.of_operation,
        before=[operation.after for operation in pipeline.operations],
        option_ticks=[curve.ticks for curve in each],
        option_cost=[
            [math.floor(math.ldexp(cost, cost_bits)) for cost in curve.costs] for curve in each
        ],
        option_time=[[option.time for option in curve.options] for curve in each],
        option_energy=[curve.energies for curve in each],
        option_busy=[curve.busy for curve in each],
        corner_ticks=[curve.corner_ticks for curve in each],
        corner_slope=[curve.corner_slopes for curve in each],
    )

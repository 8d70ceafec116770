"""The time-energy frontier of a pipeline: plans with their times, energies and optimality bounds.

`solve` finds the continuous frontier first, on which operations may mix their options, and
executable plans next (`c/sweep.c`, `c/solve.c`). The continuous frontier is a lower bound for every
plan of the same time; windows in which real options have to fit raise it (`c/windows.c`).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.errors import PipelineError
from zeus.frontier import Frontier, Point
from zeus.optimizer.pipeline_frequency import _native as native
from zeus.optimizer.pipeline_frequency._curves import Curves, curves_of
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._pipeline import Pipeline, counted
from zeus.optimizer.pipeline_frequency._plan import Menu, Plan
from zeus.optimizer.pipeline_frequency._windows import chains_of

PLANS = 500
_ROUNDS = 3
_MAX_PLANS = 1_000_000
_COST_BITS = 60
_STEEPEST = 1 << 61


class Continuous:
    """The continuous frontier: piecewise linear and convex; exact unless the pipeline is large.

    Args:
        pipeline: The iteration.
        curves: Its integer problem.
        found: The solver's result.

    Attributes:
        fastest: Seconds of the shortest possible iteration.
        least_energy: Seconds of the iteration of minimum energy.
    """

    def __init__(self, pipeline: Pipeline, curves: Curves, found: native.Found) -> None:
        self._tick_bits = curves.tick_bits
        self._cost_bits = curves.tick_bits + curves.slope_bits
        self._pipelines = pipeline.data_parallel
        self._waiting = pipeline.blocking_power * pipeline.gpus
        self._least = sum(curves.curves[number].least_cost for number in curves.of_operation)
        fastest = found.breakpoint_ticks[-1]
        # Every breakpoint is a line below all plans: keep those that are the highest somewhere, by
        # rising slope, each with the ticks from which down it is. The first holds at any time.
        self._lines = [(0, 0)]
        self._ticks: list[int] = []
        for line in zip(found.breakpoint_slopes[:-1], found.breakpoint_duals, strict=False):
            while line[0] > self._lines[-1][0]:
                slope, dual = self._lines[-1]
                meets = (line[1] - dual) // (line[0] - slope)
                if not self._ticks or meets < self._ticks[-1]:
                    if meets > fastest:
                        self._lines.append(line)
                        self._ticks.append(meets)
                    break
                self._lines.pop()
                self._ticks.pop()
        self._ticks.append(fastest)
        self.fastest = self._seconds(len(self._ticks) - 1)
        # While saving a tick costs no more than waiting for it, a shorter iteration saves energy.
        waiting = math.ldexp(self._waiting, curves.slope_bits)
        last = len(self._ticks) - 1
        best = next((index for index in range(last) if self._lines[index + 1][0] > waiting), last)
        self.least_energy = self._seconds(best)

    def _seconds(self, index: int) -> float:
        return math.ldexp(self._ticks[index], -self._tick_bits)

    def corners(self) -> list[tuple[float, float]]:
        """Return its corners (s, J), from the fastest to the one of minimum energy."""
        found: list[tuple[float, float]] = []
        for index in range(len(self._ticks) - 1, -1, -1):
            time = self._seconds(index)
            if not found or time > found[-1][0]:  # corners only ticks apart are one
                found.append((time, self._energy(self._cost(self._ticks[index]), time)))
            if time >= self.least_energy:
                break
        return found

    def energy(self, time: float) -> float:
        """Return the lower bound on the joules of any plan that takes this time or less.

        Args:
            time: Seconds, at least `fastest`. Beyond `least_energy` the bound stays constant.
        """
        time = min(time, self.least_energy)
        return self._energy(self._cost(self._ticks_of(time)), time)

    def raised(self, time: float, lines: Sequence[tuple[int, int]]) -> float:
        """Return the same bound, raised by lines that are below all plans as well.

        Args:
            time: As for `energy`.
            lines: Slopes, all steeper than waiting, and costs in no time, in the solver's units.
        """
        # Lines go on to fall where the continuous frontier has ended.
        ticks = self._ticks_of(time)
        costs = [self._least + dual - slope * ticks for slope, dual in lines]
        bound = self.energy(time)
        return max(bound, self._energy(max(costs), time)) if costs else bound

    def _ticks_of(self, time: float) -> int:
        # Round up, so that rounding of the time cannot raise the bound.
        return max(int(math.ldexp(time, self._tick_bits)) + 1, self._ticks[-1])

    def _cost(self, ticks: int) -> int:
        index = bisect.bisect_right(self._ticks, -ticks, key=lambda tick: -tick)
        slope, dual = self._lines[min(index, len(self._lines) - 1)]
        return self._least + dual - slope * ticks

    def _energy(self, cost: int, time: float) -> float:
        return self._pipelines * (math.ldexp(cost, -self._cost_bits) + self._waiting * time)


@dataclass(frozen=True)
class Solution:
    """The plans found for a pipeline.

    Attributes:
        frontier: Plans by rising time and falling energy; the knob of each point is a `Plan`.
        continuous: The frontier if operations could mix their options: a lower bound of all plans.
        refined: Whether the solver finished; if not, its limit was reached, plans may be further
            from their bound than usual, and the bound from the optimum.
    """

    frontier: Frontier
    continuous: Continuous
    refined: bool = True
    _lines: Sequence[tuple[int, int]] = ()

    @property
    def plans(self) -> Sequence[Plan]:
        """Plans of the frontier, by rising time."""
        return [point.knob for point in self.frontier]

    def lower_bound(self, time: float) -> float:
        """Return the lower bound on the joules of any plan that takes this time or less.

        It is that of the continuous frontier, or higher where neighboring ranks cannot choose
        options that take equally long.

        Args:
            time: Seconds, at least `continuous.fastest`.
        """
        return self.continuous.raised(time, self._lines)


def solve(pipeline: Pipeline, plans: int = PLANS, limit: Limit | None = None) -> Solution:
    """Return the frontier of a pipeline, from the fastest possible plan to the minimum energy.

    Args:
        pipeline: The pipeline to plan; it cannot be changed afterwards.
        plans: Number of iteration times to aim at. About as many plans are found; all that are
            Pareto-optimal are returned.
        limit: Limits of time and memory; by default no time limit.

    Raises:
        PipelineError: If the pipeline is empty, a number is out of range, or the time is over
            before there is a plan.
        SolvingCancelledError: If the limit was cancelled.
        NativeCodeError: If the solver is missing and cannot be built.
    """
    if counted("plans", plans) > _MAX_PLANS:
        raise PipelineError(f"`1 <= plans <= {_MAX_PLANS}` must hold, but got plans={plans!r}")
    pipeline.completed()
    curves = curves_of(pipeline)
    for number, curve in zip(curves.of_operation, pipeline.operations, strict=True):
        if len(curves.curves[number].options) >= native.MAX_OPTIONS:
            raise PipelineError(
                f"an operation must have fewer than {native.MAX_OPTIONS} useful options, but "
                f"{curve} has {len(curves.curves[number].options)}"
            )
    limit = limit or Limit()
    limit.check()
    limit.aim(plans, _ROUNDS + 1)
    found = native.solve(_numbers(pipeline, curves, plans), limit)
    continuous = Continuous(pipeline, curves, found)
    menu = Menu(pipeline, tuple(curves.curves[number].options for number in curves.of_operation))
    pipelines = pipeline.data_parallel
    points = []
    for time, energy, choices in zip(found.times, found.energies, found.choices, strict=True):
        joules = pipelines * energy
        # Rounding must not lift the bound above the plan itself.
        bound = min(continuous.raised(time, found.lines), joules)
        points.append(Point(Plan(menu, choices, time, joules, bound), time, joules))
    frontier = Frontier(points, f"one iteration of {pipeline.name}", knob_name="plan")
    return Solution(frontier, continuous, found.refined, found.lines)


def _numbers(pipeline: Pipeline, curves: Curves, plans: int) -> native.Numbers:
    each = curves.curves
    largest = math.fsum(max(map(abs, each[number].costs)) for number in curves.of_operation)
    cost_bits = _COST_BITS - math.frexp(largest)[1]
    chains = chains_of(pipeline, curves)
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
        hull_ticks=[curve.hull_ticks for curve in each],
        hull_slope=[curve.hull_slopes for curve in each],
        corner_ticks=[curve.corner_ticks for curve in each],
        corner_slope=[curve.corner_slopes for curve in each],
        cost_unit=math.ldexp(1.0, curves.tick_bits + curves.slope_bits - cost_bits),
        rank_before=chains.rank_before,
        chains=chains.chains,
    )

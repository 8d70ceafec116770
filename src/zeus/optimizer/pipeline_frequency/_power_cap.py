"""Plans whose total power stays under a cap at every moment, and swings by no more than a bound.

`solve` makes plans without a cap first. They guide a scheduler (`c/capped.c`) that starts no
operation unless the cap has room for it, and a search for what ends first (`c/capped_search.c`).
The power of each plan is then computed again from its execution, and one that broke a bound would
be left out.

A bound on the swing is also a cap: at the beginning of an iteration only the first ranks compute,
so the power is low there whatever is planned, and the highest may exceed the lowest by so much and
no more.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from zeus.errors import PipelineError
from zeus.frontier import Frontier, Point
from zeus.optimizer.pipeline_frequency import _native_capped as native
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._pipeline import MAX_WATTS, Operation, Pipeline, bounded
from zeus.optimizer.pipeline_frequency._plan import Menu, Plan
from zeus.optimizer.pipeline_frequency._profile import Option
from zeus.optimizer.pipeline_frequency._solver import PLANS, Solution, solve
from zeus.optimizer.pipeline_frequency._total_power import excess_of, total_power

_MAX_MARGIN = 0.5
_MAX_GUIDES = 60  # plans that guide
_STRETCHES = (1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08)  # times by which their ends are later
_GUIDED = 4_000_000  # operations of all guides together
_SCHEDULED = 24_000_000  # operations that the search schedules
_MIN_EVALUATIONS, _MAX_EVALUATIONS = 200, 80_000
_ATTEMPTS = 8  # at lower and lower powers, until the swing is kept; two at least
_LOWER = 0.01  # share by which an attempt is lower than the one before, at least
_ROUNDING = 1e-9  # relative, far above that of sums
_HORIZON = 3.0  # times the slowest guide: by then every useful schedule has ended


def solve_capped(
    pipeline: Pipeline,
    cap: float | None = None,
    swing: float | None = None,
    *,
    margin: float = 0.0,
    plans: int = PLANS,
    limit: Limit | None = None,
) -> Solution:
    """Return plans that keep a cap on the total power at every moment, or a bound on its swing.

    The total power is that of `total_power`: over all GPUs of all pipelines. Plans may delay
    operations (`Plan.not_before`). Their `lower_bound` is that of plans without a cap, so it is one
    for these as well.

    With a margin, the cap is kept for certain if every operation takes between `1 - margin` and
    `1 + margin` of its time, each independently, at the power of its option, and starts as soon as
    those that it waits for have ended, but not before `Plan.not_before`; an iteration then takes at
    most `1 + margin` of its time. The lowest power, and so the swing, is that of the times as they
    are in the profile: a GPU may have to wait a little longer at any moment.

    Args:
        pipeline: The pipeline to plan; it cannot be changed afterwards.
        cap: Most watts at any moment.
        swing: Most watts by which the highest power may exceed the lowest, over the whole
            iteration, warm-up and cool-down included.
        margin: Share by which the time of each operation may vary, at most 0.5.
        plans: Number of plans without bounds to begin with, as for `solve`.
        limit: Limits of time and memory; by default no time limit.

    Raises:
        PipelineError: If neither bound is given, one is out of range, or no plan keeps them; the
            message has the least that is possible, or that was found.
        SolvingCancelledError: If the limit was cancelled.
        NativeCodeError: If the solver is missing and cannot be built.
    """
    if cap is None and swing is None:
        raise PipelineError("a plan needs a bound on its power, but got neither `cap` nor `swing`")
    cap = math.inf if cap is None else bounded("cap", cap, MAX_WATTS)
    swing = math.inf if swing is None else bounded("swing", swing, MAX_WATTS)
    if bounded("margin", margin, _MAX_MARGIN) and math.isinf(cap):
        raise PipelineError(
            f"`margin` is that of a cap, which must be given, but got only margin={margin:g}"
        )
    limit = limit or Limit()
    solution = solve(pipeline, plans, limit)
    problem = _Problem(pipeline, margin)
    problem.check(cap)
    found = problem.plans(solution, cap, swing, limit)
    points = [Point(plan, plan.time, plan.energy) for plan in _pareto(found)]
    frontier = Frontier(points, solution.frontier.work, knob_name="plan")
    return replace(solution, frontier=frontier)


def least_peak(pipeline: Pipeline) -> float:
    """Return the watts that some moment of any plan has at least.

    It is reached if each operation runs at its lowest power while all other GPUs wait. If options
    draw less than waiting, running them at the same time might take still less.

    Args:
        pipeline: The pipeline.
    """
    least = max(
        (
            min(excess_of(pipeline, operation, option) for option in operation.options)
            for operation in _kinds(pipeline)
        ),
        default=0.0,
    )
    return _total(pipeline, max(least, 0.0))


def most_low(pipeline: Pipeline) -> float:
    """Return the watts that the lowest power of any plan cannot exceed.

    Only what waits for nothing runs at the beginning of an iteration, and only what nothing waits
    for at its end.

    Args:
        pipeline: The pipeline.
    """
    operations = pipeline.operations
    shortest = [min(option.time for option in operation.options) for operation in operations]
    heads, tails = [0.0] * len(operations), [0.0] * len(operations)
    for number, operation in enumerate(operations):
        for other in operation.after:
            heads[number] = max(heads[number], heads[other] + shortest[other])
    for number in range(len(operations) - 1, -1, -1):
        for other in operations[number].after:
            tails[other] = max(tails[other], tails[number] + shortest[number])
    return _total(pipeline, min(_together(pipeline, heads), _together(pipeline, tails)))


def _together(pipeline: Pipeline, distances: Sequence[float]) -> float:
    """Return the most watts beyond waiting of operations at one end of the graph."""
    lanes: dict[int | None, float] = {}
    for operation, distance in zip(pipeline.operations, distances, strict=True):
        if distance > 0:
            continue
        watts = max(excess_of(pipeline, operation, option) for option in operation.options)
        lane = operation.device
        if lane is None:
            lanes[lane] = lanes.get(lane, 0.0) + max(watts, 0.0)
        else:
            lanes[lane] = max(lanes.get(lane, 0.0), watts)
    return math.fsum(lanes.values())


def _total(pipeline: Pipeline, excess: float) -> float:
    return pipeline.data_parallel * (pipeline.blocking_power * pipeline.gpus + excess)


def _kinds(pipeline: Pipeline) -> Iterable[Operation]:
    """Return an operation of each kind: those that share options, on a rank or on none."""
    return {
        (id(operation.options), operation.device is None): operation
        for operation in pipeline.operations
    }.values()


@dataclass(frozen=True)
class _Kind:
    """The options of a kind of operation that are of use: faster ones draw more."""

    options: tuple[Option, ...]
    powers: tuple[float, ...]  # beyond waiting
    costs: tuple[float, ...]  # likewise, J

    @classmethod
    def of(cls, pipeline: Pipeline, operation: Operation) -> _Kind:
        """Return the options that no other is both faster and lower in power than."""
        kept: list[tuple[Option, float]] = []
        for option in sorted(operation.options, key=lambda each: (each.time, each.energy)):
            watts = excess_of(pipeline, operation, option)
            if not kept or watts < kept[-1][1]:
                kept.append((option, watts))
        options, powers = zip(*kept, strict=True)
        return cls(options, powers, tuple(watts * option.time for option, watts in kept))

    def within(self, watts: float) -> int:
        """Return the fastest option of at most this power, or the last."""
        last = len(self.powers) - 1
        return next((n for n, power in enumerate(self.powers) if power <= watts), last)


class _Problem:
    """A pipeline as the scheduler takes it."""

    def __init__(self, pipeline: Pipeline, margin: float) -> None:
        self.pipeline, self.margin = pipeline, margin
        numbers: dict[tuple[int, bool], int] = {}
        self.kinds: list[_Kind] = []
        self.of_operation: list[int] = []
        for operation in pipeline.operations:
            key = id(operation.options), operation.device is None
            if key not in numbers:
                numbers[key] = len(self.kinds)
                self.kinds.append(_Kind.of(pipeline, operation))
            self.of_operation.append(numbers[key])
        self.menu = Menu(pipeline, tuple(self.kinds[kind].options for kind in self.of_operation))
        self.numbers = native.Numbers(
            devices=pipeline.devices,
            device=[-1 if each.device is None else each.device for each in pipeline.operations],
            curve=self.of_operation,
            before=[operation.after for operation in pipeline.operations],
            option_time=[[option.time for option in kind.options] for kind in self.kinds],
            option_power=[kind.powers for kind in self.kinds],
            option_cost=[kind.costs for kind in self.kinds],
        )

    def check(self, cap: float) -> None:
        """Raise `PipelineError` if no plan keeps the cap."""
        least = least_peak(self.pipeline)
        if cap < least:
            raise PipelineError(
                f"`cap >= {least:.6g}` must hold for {self.pipeline.name}, the power of one "
                f"operation while all other GPUs wait, but got cap={cap:g}"
            )

    def plans(self, solution: Solution, cap: float, swing: float, limit: Limit) -> list[Plan]:
        """Return plans that keep the bounds.

        Raises:
            PipelineError: If there is none.
        """
        lowest, most = least_peak(self.pipeline), self._most()
        cap = min(cap, most)
        highest = max(min(cap, most_low(self.pipeline) + swing), lowest)
        guides = list(self._guides(solution, highest))
        if math.isinf(swing):
            found = self._schedules(guides, highest, cap, swing, limit)
            return self._kept(found, cap, swing, solution)
        least, kept = math.inf, []
        for attempt in range(_ATTEMPTS):
            found = self._schedules(guides, highest, cap, swing, limit)
            kept += self._kept(found, cap, swing, solution)
            nearest = min(map(self._swing, found))
            least = min(least, nearest)
            # At the highest power that the swing allows, the lowest has to be as high as it can be;
            # somewhat below, plans are easier to find.
            if highest <= lowest or (kept and attempt):
                break
            lower = _LOWER * (highest - lowest)
            highest = max(highest - max(1.5 * (nearest - swing), lower), lowest)
        if not kept:
            raise PipelineError(
                f"no plan was found for {self.pipeline.name} whose power swings by {swing:g} W or "
                f"less; the least found is {least:.6g} W"
            )
        return kept

    def _schedules(
        self,
        guides: Sequence[native.Guide],
        highest: float,
        cap: float,
        swing: float,
        limit: Limit,
    ) -> list[native.Schedule]:
        """Return schedules of at most the highest power, and of the cap while times vary.

        Raises:
            PipelineError: If there is none.
        """
        count = len(self.of_operation)
        longest = max(max(guide.ends) for guide in guides if guide.ends)
        evaluations = min(max(_SCHEDULED // count, _MIN_EVALUATIONS), _MAX_EVALUATIONS)
        for off in (-_ROUNDING, _ROUNDING):  # the second only where a cap is just reached
            bounds = native.Bounds(
                headroom=(1 + off) * self._headroom(highest),
                varied_headroom=(1 + off) * self._headroom(cap),
                swing=swing / self.pipeline.data_parallel,
                margin=self.margin,
                horizon=_HORIZON * longest,
            )
            found = native.schedules(self.numbers, bounds, guides, evaluations, limit)
            if found:
                return found
        self._refuse(cap)

    def _kept(
        self, found: Iterable[native.Schedule], cap: float, swing: float, solution: Solution
    ) -> list[Plan]:
        """Return the plans of schedules that keep the bounds."""
        within = [each for each in found if self._swing(each) <= (1 + _ROUNDING) * swing]
        plans = (self._plan(each, solution) for each in self._best(within))
        return [plan for plan in plans if _keeps(plan, cap, swing)]

    def _most(self) -> float:
        """Return watts that no plan exceeds, so that a cap of infinity is a number."""
        lanes: dict[int | None, float] = {}
        for operation, kind in zip(self.pipeline.operations, self.of_operation, strict=True):
            watts, lane = max(self.kinds[kind].powers[0], 0.0), operation.device
            others = lanes.get(lane, 0.0)
            lanes[lane] = watts + others if lane is None else max(watts, others)
        # Somewhat more, as the scheduler leaves a billionth of it.
        return _total(self.pipeline, 1.001 * math.fsum(lanes.values()))

    def _headroom(self, watts: float) -> float:
        pipeline = self.pipeline
        own = watts / pipeline.data_parallel - pipeline.blocking_power * pipeline.gpus
        return max(own, 0.0)

    def _swing(self, schedule: native.Schedule) -> float:
        return self.pipeline.data_parallel * (schedule.peak - schedule.low)

    def _refuse(self, cap: float) -> NoReturn:
        """Raise `PipelineError`: with the margin, operations must wait for each other too long."""
        lanes: dict[int | None, float] = {}
        for operation, kind in zip(self.pipeline.operations, self.of_operation, strict=True):
            watts, lane = max(self.kinds[kind].powers[-1], 0.0), operation.device
            others = lanes.get(lane, 0.0)
            lanes[lane] = watts + others if lane is None else max(watts, others)
        enough = _total(self.pipeline, math.fsum(lanes.values()))
        raise PipelineError(
            f"no plan was found for {self.pipeline.name} that keeps cap={cap:g} with "
            f"margin={self.margin:g}; with any margin, a cap of {enough:.6g} W can be kept"
        )

    def _guides(self, solution: Solution, highest: float) -> Iterator[native.Guide]:
        """Yield plans to begin with: those without a cap, and of equal power everywhere."""
        count = len(self.of_operation)
        share = self._headroom(highest) / self.pipeline.devices
        fastest = [0] * count
        yield native.Guide([self.kinds[kind].within(share) for kind in self.of_operation])
        yield native.Guide(fastest)
        each = 2 * len(_STRETCHES) + 1
        wanted = min(max(_GUIDED // (each * count), 2), _MAX_GUIDES, len(solution.plans))
        last = len(solution.plans) - 1
        # Plans have the very options of operations, which are slow to compare by value.
        places = [{id(each): n for n, each in enumerate(kind.options)} for kind in self.kinds]
        for number in sorted({round(n * last / max(wanted - 1, 1)) for n in range(wanted)}):
            execution = solution.plans[number].execute()
            pairs = zip(execution.options, self.of_operation, strict=True)
            yield native.Guide([places[kind].get(id(each), 0) for each, kind in pairs])
            ends = [s + o.time for s, o in zip(execution.starts, execution.options, strict=True)]
            late = self._latest(execution.options, execution.time)
            for stretch in _STRETCHES:
                yield native.Guide(fastest, [stretch * end for end in ends])
                yield native.Guide(fastest, [stretch * end for end in late])

    def _latest(self, options: Sequence[Option], time: float) -> list[float]:
        """Return when each operation must have ended for all to end in time."""
        latest = [time] * len(options)
        for number in range(len(options) - 1, -1, -1):
            for other in self.pipeline.operations[number].after:
                latest[other] = min(latest[other], latest[number] - options[number].time)
        return latest

    def _best(self, found: Iterable[native.Schedule]) -> Iterator[native.Schedule]:
        """Yield the schedules that no other beats in both time and energy."""
        waiting, least = self.pipeline.blocking_power * self.pipeline.gpus, math.inf
        energies = [(each.time, each.cost + waiting * each.time, each) for each in found]
        for _, energy, each in sorted(energies, key=lambda row: row[:2]):
            if energy < least:
                least = energy
                yield each

    def _plan(self, schedule: native.Schedule, solution: Solution) -> Plan:
        chosen = array("H", schedule.choices)
        options = [kind[choice] for kind, choice in zip(self.menu.options, chosen, strict=True)]
        not_before = self._delays(options, schedule.starts)
        execution = self.pipeline.execute(options, not_before)
        return Plan(
            self.menu,
            schedule.choices,
            execution.time,
            execution.energy,
            min(solution.lower_bound(execution.time), execution.energy),
            not_before=not_before.tobytes() if any(not_before) else b"",
        )

    def _delays(self, options: Sequence[Option], starts: Sequence[float]) -> array[float]:
        """Return the starts of operations that begin later than they could, and 0 for others."""
        not_before = array("d", bytes(8 * len(options)))
        ends: list[float] = []
        for number, operation in enumerate(self.pipeline.operations):
            if starts[number] > max((ends[other] for other in operation.after), default=0.0):
                not_before[number] = starts[number]
            ends.append(starts[number] + options[number].time)
        return not_before


def _keeps(plan: Plan, cap: float, swing: float) -> bool:
    power = total_power(plan.execute())
    return power.peak <= (1 + _ROUNDING) * cap and power.swing <= swing + _ROUNDING * power.peak


def _pareto(plans: Iterable[Plan]) -> list[Plan]:
    """Return the plans that no other beats in both time and energy, by rising time."""
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.time, plan.energy)):
        if not kept or plan.energy < kept[-1].energy:
            kept.append(plan)
    return kept

"""Plans that keep their time when work varies.

A plan fills the slack of an iteration with slower computations. Where their times vary, every
filled path may become the longest, and the iteration takes longer than planned. So slowed
computations are planned as if they took longer than they do, by a share of what they are slowed by,
which leaves that share of the slack as a reserve; those at the highest clock are planned as they
are, so that the fastest iteration stays as fast. How large the share must be is found by executing
plans with times drawn at random. In the fastest plan, the reserve is then given to the computations
that need it (`_exchange.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zeus.errors import PipelineError
from zeus.frontier import Frontier, Point
from zeus.optimizer.pipeline_frequency._coarsening import coarsened
from zeus.optimizer.pipeline_frequency._exchange import exchanged
from zeus.optimizer.pipeline_frequency._limit import Limit
from zeus.optimizer.pipeline_frequency._pipeline import Operation, Pipeline
from zeus.optimizer.pipeline_frequency._plan import Menu, Plan
from zeus.optimizer.pipeline_frequency._power_cap import solve_capped
from zeus.optimizer.pipeline_frequency._profile import Option
from zeus.optimizer.pipeline_frequency._solver import PLANS, Solution, solve

MEAN_EXCESS, TAIL_EXCESS = 0.004, 0.008
"""How much longer the fastest plan may take than the highest clocks: its mean, and its 95 %."""
_EXCHANGED_EXCESS = 0.003
"""The same of a plan whose reserve was exchanged, in the mean: it leaves none where none is needed,
but what is known of times and of the lag is not exact."""
LARGE = 2_000
"""Operations from which plans take seconds, so that a first one comes sooner."""
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.62, 0.75, 0.9, 1.1, 1.35, 1.6, 2.0, 2.5)
_TINY = 0.003  # relative variation below which nothing has to be reserved
_TAIL = 1.645  # standard deviations from the mean to the 95 %
_SEED = 2024
_NUMBERS = 150_000_000  # drawn times at most, over plans, scenarios and operations
_AT_ONCE = 6_000_000  # likewise, in memory
_SCENARIOS = (8, 64)  # fewest and most
_EXCHANGED_SCENARIOS = 256  # more than plans are judged by, as these are chosen by them
_NEAREST = 3  # plans of which the first keeps its time, if any does
_TRIED = 20  # plans that are enough to see whether the fastest keeps its time
_QUICK = 1.0  # seconds of the solver for it, at each reserve that is tried
_EXECUTED = 1_000_000  # operations of all plans together, to be executed in seconds


@dataclass(frozen=True)
class Variation:
    """How the times of instructions vary.

    Attributes:
        relative: Standard deviation of a time, relative to its mean.
        shared: Share of that variance that a microbatch has in common at all stages.
        lag: Seconds that a GPU takes to change its clock.
    """

    relative: float = 0.0
    shared: float = 0.0
    lag: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Expected time and energy of an iteration.

    Attributes:
        time: Mean seconds.
        tail: Seconds that 95 % of iterations take at most.
        energy: Mean joules over all GPUs.
    """

    time: float
    tail: float
    energy: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the time, relative, as far as the tail shows."""
        return max(self.tail / self.time - 1, 0.0) / _TAIL


@dataclass(frozen=True)
class Robust:
    """Plans by what they are expected to take where times vary.

    Attributes:
        solution: The plans, as points of their expected time and energy.
        before: The same without a plan, at the highest clocks.
        reserve: Share of the slack that is left unused; 0 without variation.
    """

    solution: Solution
    before: Outcome
    reserve: float


def solve_robust(
    pipeline: Pipeline,
    variation: Variation,
    plans: int = PLANS,
    limit: Limit | None = None,
    first: Callable[[Robust], None] | None = None,
    *,
    swing: float | None = None,
) -> Robust:
    """Return plans that keep their time where times vary, and clocks take time to change.

    Args:
        pipeline: The pipeline to plan; it cannot be changed afterwards.
        variation: How times vary.
        plans: As for `solve`.
        limit: As for `solve`.
        first: Called with plans near the fastest that are found within about a second or two, if
            the pipeline is so large that all of them take longer.
        swing: Most watts by which the highest power may exceed the lowest, with times that do not
            vary. Plans that keep it have no reserve, and may delay operations.

    Raises:
        PipelineError: As `solve`, and as `solve_capped` with a bound on the swing. Also if clocks
            take longer to change than an operation lasts, as the swing cannot be kept then.
        SolvingCancelledError: If the limit was cancelled.
        NativeCodeError: If the solver is missing and cannot be built.
    """
    plans = max(min(plans, _EXECUTED // len(pipeline.operations)), _TRIED)
    search = _Search(pipeline, variation, plans)
    if swing is not None:
        return search.within_swing(swing, limit)
    if len(pipeline.operations) <= LARGE:
        return search.thoroughly(limit)
    limit = limit or Limit()
    quick, share = search.quickly(limit)
    if first is not None:
        first(quick)
    try:
        return search.from_share(share, limit)
    except PipelineError:  # no time is left
        return replace(quick, solution=replace(quick.solution, refined=False))


class _Search:
    """Finds plans with a reserve, and what they are expected to take."""

    def __init__(self, pipeline: Pipeline, variation: Variation, plans: int) -> None:
        self._pipeline = pipeline
        self._variation = variation
        self._plans = plans
        self._judge = _Judge(pipeline, variation)
        self._before = self._judge.at_highest_clocks()

    def thoroughly(self, limit: Limit | None) -> Robust:
        """Return plans with the least reserve that is enough, of all that are tried."""
        nominal = self._solved(self._pipeline, self._plans, limit)
        found = self.judged(nominal)
        if not self.needs_reserve(found[1]):
            return self.robust(found[0], 0.0)
        for share in _SHARES:
            hurry = limit is not None and limit.left < limit.seconds / 3
            if hurry or self.keeps_time(self.inflated(share, _TRIED, limit, nominal)[1]):
                break
        solution, _ = self.inflated(share, self._plans, limit, nominal)
        if limit is None or limit.left > limit.seconds / 3:
            solution = self.with_reserve_exchanged(solution, nominal)
        return self.robust(solution, share)

    def with_reserve_exchanged(self, solution: Solution, nominal: Solution) -> Solution:
        """Return the plans with a fastest one that takes less energy, if there is any."""
        plan = solution.frontier.fastest.knob
        if not _changes_in_time(plan, self._variation.lag):
            return solution  # neighbors share a clock
        judge = _Judge(self._pipeline, self._variation, _EXCHANGED_SCENARIOS, _SEED + 1)
        before = judge.at_highest_clocks()
        mean, tail = (1 + _EXCHANGED_EXCESS) * before.time, (1 + TAIL_EXCESS) * before.tail
        options = exchanged(plan, judge.drawn, mean, tail)
        if options is None:
            return solution
        (outcome,) = self._judge.outcomes([options])
        if outcome.energy >= solution.frontier.fastest.energy or not self.keeps_time(outcome):
            return solution
        execution = self._pipeline.execute(options)
        bound = min(nominal.lower_bound(execution.time), execution.energy)
        better = plan.with_options(options, execution.time, execution.energy)
        better = better.on(plan.menu, execution.time, execution.energy, bound)
        points = [Point(better, outcome.time, outcome.energy)]
        points += (
            point
            for point in solution.frontier
            if point.time > outcome.time and point.energy < outcome.energy
        )
        frontier = Frontier(points, solution.frontier.work, knob_name="plan")
        return replace(solution, frontier=frontier)

    def within_swing(self, swing: float, limit: Limit | None) -> Robust:
        """Return plans that keep a bound on the swing of power, without a reserve."""
        plans = solve_capped(self._pipeline, swing=swing, plans=self._plans, limit=limit)
        _check_lag(plans, self._variation.lag)
        return self.robust(self.judged(plans)[0], 0.0)

    def quickly(self, limit: Limit) -> tuple[Robust, float]:
        """Return plans near the fastest, and the share by which slowed computations are longer.

        Each try takes a second or two; the least share that is enough is found by bisection.
        """
        nominal = solve(self._pipeline, _TRIED, limit.within(_QUICK))
        if not self.needs_reserve(self.judged(_thinned(nominal, _NEAREST, fastest=True))[1]):
            return self.robust(self.judged(_thinned(nominal, _TRIED))[0], 0.0), 0.0
        found: dict[int, Solution] = {}

        def tried(number: int) -> Outcome:
            other = _inflated(self._pipeline, _SHARES[number])
            found[number] = solve(other, _TRIED, limit.within(_QUICK))
            near = _thinned(found[number], _NEAREST, fastest=True)
            return self.judged(_restored(near, self._pipeline, nominal))[1]

        low, high = 0, len(_SHARES) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.keeps_time(tried(middle)) else (middle + 1, high)
        if high not in found:
            tried(high)
        restored = _restored(_thinned(found[high], _TRIED), self._pipeline, nominal)
        return self.robust(self.judged(restored)[0], _SHARES[high]), _SHARES[high]

    def from_share(self, share: float, limit: Limit) -> Robust:
        """Return all plans, with this share or, if it is not enough and there is time, more.

        Plans that are improved use more of the slack, so that they need no smaller one.
        """
        nominal = self._solved(self._pipeline, self._plans, limit)
        if not share:
            found = self.judged(nominal)
            if not self.needs_reserve(found[1]):
                return self.robust(found[0], 0.0)
        best: Robust | None = None
        for more in (each for each in _SHARES if each >= share):
            if best is not None and limit.left < limit.seconds / 2:
                break
            solution, outcome = self.inflated(more, self._plans, limit, nominal)
            best = self.robust(solution, more)
            if self.keeps_time(outcome):
                break
        assert best is not None
        return best

    def inflated(
        self, share: float, plans: int, limit: Limit | None, nominal: Solution
    ) -> tuple[Solution, Outcome]:
        """Return plans with a reserve, and the outcome of the fastest."""
        solution = self._solved(_inflated(self._pipeline, share), plans, limit)
        return self.judged(_restored(solution, self._pipeline, nominal))

    def _solved(self, pipeline: Pipeline, plans: int, limit: Limit | None) -> Solution:
        """Return as many plans as can be executed in seconds."""
        most = max(_EXECUTED // len(pipeline.operations), _TRIED)
        return _thinned(solve(pipeline, plans, limit), most)

    def judged(self, solution: Solution) -> tuple[Solution, Outcome]:
        """Return plans by what they are expected to take, and the outcome of the fastest."""
        return _judged(solution, self._judge, self._variation, self._before)

    def needs_reserve(self, fastest: Outcome) -> bool:
        """Whether plans whose fastest has this outcome leave too little slack."""
        return self._variation.relative > _TINY and not self.keeps_time(fastest)

    def keeps_time(self, fastest: Outcome) -> bool:
        """Whether plans whose fastest has this outcome are about as fast as the highest clocks."""
        before = self._before
        return (
            fastest.time <= (1 + MEAN_EXCESS) * before.time
            and fastest.tail <= (1 + TAIL_EXCESS) * before.tail
        )

    def robust(self, solution: Solution, share: float) -> Robust:
        """Return plans of which slowed computations were planned longer by a share."""
        return Robust(solution, self._before, share / (1 + share))


def at_highest_clocks(pipeline: Pipeline, variation: Variation) -> Outcome:
    """Return what an iteration is expected to take without a plan.

    Args:
        pipeline: The pipeline.
        variation: How times vary.
    """
    return _Judge(pipeline, variation).at_highest_clocks()


def _check_lag(solution: Solution, lag: float) -> None:
    """Raise `PipelineError` if clocks cannot change as often as plans under a swing want."""
    for plan in solution.plans:
        if not _changes_in_time(plan, lag):
            raise PipelineError(
                "computations must last longer than a clock takes to change "
                f"({1e3 * lag:.3g} ms), or the swing of power cannot be kept: neighbors that share "
                "a clock draw another power than planned"
            )


def _changes_in_time(plan: Plan, lag: float) -> bool:
    """Whether clocks can change as often as a plan wants."""
    return coarsened(plan, lag) is plan


def _judged(
    solution: Solution, judge: _Judge, variation: Variation, before: Outcome
) -> tuple[Solution, Outcome]:
    """Return the solution with expected times and energies, and the outcome of its fastest plan."""
    plans = [coarsened(plan, variation.lag) for plan in solution.plans]
    outcomes = judge.outcomes([plan.options for plan in plans], [plan.not_before for plan in plans])
    order = sorted(range(len(plans)), key=lambda at: (outcomes[at].time, outcomes[at].energy))
    points: list[Point] = []
    fastest: Outcome | None = None
    for at in order:
        outcome = outcomes[at]
        if points and outcome.energy >= points[-1].energy:
            continue
        fastest = fastest or outcome
        points.append(Point(plans[at], outcome.time, outcome.energy))
    frontier = Frontier(points, solution.frontier.work, knob_name="plan")
    return replace(solution, frontier=frontier), fastest or before


def _thinned(solution: Solution, most: int, *, fastest: bool = False) -> Solution:
    """Return at most so many of the plans: the fastest, or from the fastest to the slowest."""
    points = list(solution.frontier)
    if len(points) <= most:
        return solution
    last = len(points) - 1
    kept = points[:most] if fastest else [
        points[round(at * last / (most - 1))] for at in range(most)
    ]  # fmt: skip
    frontier = Frontier(kept, solution.frontier.work, knob_name="plan")
    return replace(solution, frontier=frontier)


def _inflated(pipeline: Pipeline, share: float) -> Pipeline:
    """Return the pipeline with options that take longer, by a share of what they are slowed by."""

    def longer(operation: Operation) -> list[Option]:
        least = _fastest(operation.options).time
        return [
            replace(each, time=each.time + share * max(each.time - least, 0.0))
            for each in operation.options
        ]

    return pipeline.with_options(longer)


def _restored(solution: Solution, pipeline: Pipeline, nominal: Solution) -> Solution:
    """Return the plans of an inflated pipeline as plans of the pipeline itself."""
    known: dict[tuple[int, int], tuple[Option, ...]] = {}
    menu: Menu | None = None
    points = []
    for plan in solution.plans:
        if menu is None:
            rows = []
            for operation, options in zip(pipeline.operations, plan.menu.options, strict=True):
                key = id(operation.options), id(options)
                if key not in known:
                    by_choice = {_choice(each): each for each in operation.options}
                    known[key] = tuple(by_choice[_choice(each)] for each in options)
                rows.append(known[key])
            menu = Menu(pipeline, tuple(rows))
        execution = pipeline.execute(plan.on(menu).options)
        bound = min(nominal.lower_bound(execution.time), execution.energy)
        kept = plan.on(menu, execution.time, execution.energy, bound)
        points.append(Point(kept, execution.time, execution.energy))
    frontier = Frontier(points, solution.frontier.work, knob_name="plan")
    return replace(nominal, frontier=frontier, refined=solution.refined)


def _choice(option: Option) -> tuple[Any, ...]:
    """Return what identifies an option of an operation."""
    return option.frequency, option.energy


def _fastest(options: Sequence[Option]) -> Option:
    return max(options, key=lambda option: option.frequency or 0.0)


class _Judge:
    """Executes plans with times drawn at random; the same ones for all plans.

    Args:
        pipeline: The pipeline.
        variation: How times vary.
        scenarios: How many times of each operation to draw; by default as many as there is time
            for.
        seed: Of the times.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        variation: Variation,
        scenarios: int | None = None,
        seed: int = _SEED,
    ) -> None:
        self._pipeline = pipeline
        self._variation = variation
        self._scenarios = scenarios
        self._seed = seed
        self._drawn: Any = None

    @property
    def drawn(self) -> Any:
        """Factors of the times, by operation and scenario."""
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn

    def at_highest_clocks(self) -> Outcome:
        """Return the outcome without a plan."""
        fastest = [_fastest(operation.options) for operation in self._pipeline.operations]
        return self.outcomes([fastest])[0]

    def outcomes(
        self,
        plans: Sequence[Sequence[Option]],
        delays: Sequence[Sequence[float]] | None = None,
    ) -> list[Outcome]:
        """Return the outcome of each plan, given as an option for each operation.

        Args:
            plans: The options.
            delays: Of each plan, seconds before which each operation must not start; by default
                none is delayed.
        """
        if delays is None:
            delays = [[0.0] * len(self._pipeline.operations)] * len(plans)
        if self._variation.relative <= _TINY:
            return [self._nominal(*each) for each in zip(plans, delays, strict=True)]
        scenarios = self.drawn.shape[1]
        operations = len(self._pipeline.operations)
        some = max(_AT_ONCE // (operations * scenarios), 1)
        found: list[Outcome] = []
        for first in range(0, len(plans), some):
            found += self._execute(plans[first : first + some], delays[first : first + some])
        return found

    def _nominal(self, plan: Sequence[Option], not_before: Sequence[float]) -> Outcome:
        execution = self._pipeline.execute(plan, not_before)
        return Outcome(execution.time, execution.time, execution.energy)

    def _draw(self) -> Any:
        """Return factors of the times, by operation and scenario."""
        import numpy as np  # noqa: PLC0415  (a server has it; plans without variation do not need it)

        operations = self._pipeline.operations
        fewest, most = _SCENARIOS
        scenarios = min(max(_NUMBERS // (len(operations) * PLANS), fewest), most)
        scenarios = self._scenarios or scenarios
        random = np.random.default_rng(self._seed)
        own = random.standard_normal((len(operations), scenarios))
        microbatches = {each.microbatch for each in operations}
        common = {each: random.standard_normal(scenarios) for each in sorted(microbatches, key=str)}
        shared = min(max(self._variation.shared, 0.0), 1.0)
        for at, operation in enumerate(operations):
            own[at] *= math.sqrt(1 - shared)
            own[at] += math.sqrt(shared) * common[operation.microbatch]
            if operation.device is None:
                own[at] = 0.0  # messages do not vary with the work
        return np.clip(1 + self._variation.relative * own, 0.3, None)

    def _execute(
        self, plans: Sequence[Sequence[Option]], delays: Sequence[Sequence[float]]
    ) -> list[Outcome]:
        import numpy as np  # noqa: PLC0415

        pipeline = self._pipeline
        count, scenarios = len(plans), self.drawn.shape[1]
        ends: list[Any] = []
        longest = np.zeros((count, scenarios))
        cost = np.zeros(count)
        for at, operation in enumerate(pipeline.operations):
            options = [plan[at] for plan in plans]
            times = np.array([option.time for option in options])
            gpus = pipeline.gpus_of(operation)
            cost += [
                pipeline.energy_of(operation, option) - gpus * pipeline.blocking_power * option.time
                for option in options
            ]
            start: Any = np.array([late[at] for late in delays])[:, None]
            for other in operation.after:
                start = np.maximum(start, ends[other])
            ends.append(start + times[:, None] * self.drawn[at][None, :])
            np.maximum(longest, ends[-1], out=longest)
        mean = longest.mean(axis=1)
        tail = np.quantile(longest, 0.95, axis=1)
        energy = pipeline.data_parallel * (cost + pipeline.blocking_power * pipeline.gpus * mean)
        return [
            Outcome(float(one), float(two), float(three))
            for one, two, three in zip(mean, tail, energy, strict=True)
        ]

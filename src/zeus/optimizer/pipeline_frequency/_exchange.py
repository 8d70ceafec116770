"""Gives the reserve of a plan to the computations that need it.

One share of the slack for all computations is more than most need: what a slower computation
costs in time is how often, and by how much, it then ends too late for the iteration. With times
drawn at random that is known for each of them. So computations with little effect are slowed
further, and those with much are sped up, until no such exchange saves energy at the same time.
"""

from __future__ import annotations

from typing import Any

from zeus.optimizer.pipeline_frequency._pipeline import Pipeline
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency._profile import Option

_EFFORT = 40_000  # executions of one operation, in all scenarios, over all that is tried
_ON_PATH = 1e-9  # seconds of slack on a longest path, as rounded
_AT_ONCE = 64  # operations, of which one is changed before the iteration is executed again


def exchanged(plan: Plan, factors: Any, mean: float, tail: float) -> list[Option] | None:
    """Return options of all operations that keep the time with less energy.

    Args:
        plan: A plan to begin with, whose operations all start as soon as they can.
        factors: Factors of the times, by operation and scenario.
        mean: Seconds that an iteration may take on average over the scenarios.
        tail: Seconds that 95 % of them may take at most.

    Returns:
        None if no options were found that keep the time.
    """
    choices = _Exchange(plan, factors, mean, tail).run()
    if choices is None:
        return None
    return [row[at] for row, at in zip(plan.menu.options, choices, strict=True)]


class _Exchange:
    def __init__(self, plan: Plan, factors: Any, mean: float, tail: float) -> None:
        import numpy as np  # noqa: PLC0415  (as for drawing times)

        pipeline, menu = plan.pipeline, plan.menu.options
        self._np = np
        self._factors, self._mean, self._tail = factors, mean, tail
        self._before, self._after = _neighbors(pipeline)
        self._every = np.arange(len(menu))
        self._last = np.array([len(options) - 1 for options in menu])
        shape = len(menu), int(self._last.max()) + 1
        self._times, self._costs = np.zeros(shape), np.zeros(shape)
        for at, (operation, options) in enumerate(zip(pipeline.operations, menu, strict=True)):
            waiting = pipeline.gpus_of(operation) * pipeline.blocking_power
            for number, option in enumerate(options):
                self._times[at, number] = option.time
                energy = pipeline.energy_of(operation, option)
                self._costs[at, number] = energy - waiting * option.time
        chosen = zip(menu, plan.options, strict=True)
        self._choices = np.array([options.index(option) for options, option in chosen])
        self._power = pipeline.blocking_power * pipeline.gpus
        self._width = max(len(menu) // _AT_ONCE, 1)
        self._left = _EFFORT // len(menu)

    def run(self) -> Any:
        """Return the best choices that were found; `None` if no better ones than the first."""
        best, least = None, float("inf")
        tried: set[int] = set()
        while self._left > 0 and self._fill():
            energy = self._costs[self._every, self._choices].sum() + self._power * self._longest
            if energy < least - 1e-9 * abs(energy):
                best, least = self._choices.copy(), energy
                tried.clear()
            elif best is not None:
                self._choices = best.copy()
                self._execute()
            order = [at for at in self._dearest() if int(at) not in tried][: self._width]
            if not order:
                break
            tried.update(map(int, order))
            self._choices[order] -= 1
        return best

    def _fill(self) -> bool:
        """Speed up until the iteration keeps its time, slow down as far as it does then.

        Returns:
            Whether it keeps its time.
        """
        np = self._np
        while self._left > 0 and not self._execute():
            dearest = self._dearest()[: self._width]
            if not len(dearest):
                return False
            self._choices[dearest] -= 1
        while self._left > 0:
            slower = np.minimum(self._choices + 1, self._last)
            longer = self._times[self._every, slower] - self._times[self._every, self._choices]
            late = np.maximum(longer[:, None] * self._factors - self._slack, 0.0).mean(1)
            saved = self._costs[self._every, self._choices] - self._costs[self._every, slower]
            room = self._mean - self._longest
            worth = np.where((saved > 0) & (late <= room), saved / (late + 1e-12), -1.0)
            order = np.argsort(-worth)[: self._width]
            order = order[(worth[order] > 0) & (np.cumsum(late[order]) <= room)]
            if not len(order):
                return True
            self._choices[order] += 1
            if not self._execute():
                self._choices[order] -= 1
                return self._execute()
        return self._keeps

    def _dearest(self) -> Any:
        """Return operations that may be sped up, first those where it costs least for its time."""
        np = self._np
        faster = np.maximum(self._choices - 1, 0)
        shorter = self._times[self._every, self._choices] - self._times[self._every, faster]
        critical = self._slack <= _ON_PATH
        gained = shorter * np.where(critical, self._factors, 0.0).mean(1)
        cost = self._costs[self._every, faster] - self._costs[self._every, self._choices]
        order = np.argsort(cost / (gained + 1e-12))
        return order[gained[order] > 0]

    def _execute(self) -> bool:
        """Execute the iteration in all scenarios; return whether it keeps its time."""
        np = self._np
        self._left -= 1
        times = self._times[self._every, self._choices][:, None] * self._factors
        ends, rest = np.empty_like(times), np.zeros_like(times)
        for at, others in enumerate(self._before):
            ends[at] = times[at]
            if others:
                ends[at] += ends[others].max(0)
        for at in range(len(times) - 1, -1, -1):
            others = self._after[at]
            if others:
                rest[at] = (rest[others] + times[others]).max(0)
        longest = ends.max(0)
        self._slack = longest - ends - rest
        self._longest = float(longest.mean())
        tail = float(np.quantile(longest, 0.95))
        self._keeps = self._longest <= self._mean and tail <= self._tail
        return self._keeps


def _neighbors(pipeline: Pipeline) -> tuple[list[list[int]], list[list[int]]]:
    """Return which operations each one waits for, and which wait for it."""
    before = [list(operation.after) for operation in pipeline.operations]
    after: list[list[int]] = [[] for _ in before]
    for at, others in enumerate(before):
        for other in others:
            after[other].append(at)
    return before, after

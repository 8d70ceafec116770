"""Chooses clocks to measure at during the first steps: several in each step.

A step is cut into slots of a few instructions. Every other slot runs at the highest clock, which
keeps steps fast; the others visit lower clocks, first a coarse set, then lower ones for as long as
they save energy. Curves fill in the clocks between (`_profiler`). All ranks visit clocks in the
same order, so that they are slow at the same time and do not wait for each other in turn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.optimizer.pipeline_frequency.running._profiler import Profiler

_FIRST_SHARES = (0.83, 0.7, 0.9, 0.76, 0.95)  # of the highest clock, in the order of visits
_NEXT_SHARES = (0.63, 0.56, 0.49, 0.42, 0.35, 0.28, 0.2)  # visited while energy still falls
_SLOT = 0.1  # seconds: as long as the slowest sensors take for a refresh, and the lag several times
_FEWEST = 4  # instructions in a slot
_MIN_STEPS = 6
_MIN_SECONDS = 3.5  # of measuring: thirty-five refreshes of the slowest sensors
_MAX_SECONDS = 60.0
_TIME_PRECISION, _POWER_PRECISION = 0.04, 0.1  # relative standard deviations
_SLOWEST = 2.0  # times as long as at the highest clock: slower than any plan would use
_SLOWDOWN = 0.09  # mean over steps, at most
_LAST = 25  # steps after which it ends in any case


class Exploration:
    """Decides at which clocks the next step is measured.

    Args:
        ladder: Clocks, in MHz, the highest first.
        instructions: Number of instructions in a step.
        profiler: Learns from the steps.
        together: Whether other ranks must visit the same clocks at the same steps (tensor
            parallelism): then nothing depends on what this rank measures.
        known: Whether profiles of an earlier run are only to be verified.

    Attributes:
        done: Whether enough is known for a first plan.
        steps: Number of steps explored.
    """

    def __init__(
        self,
        ladder: Sequence[float],
        instructions: int,
        profiler: Profiler,
        *,
        together: bool = False,
        known: bool = False,
    ) -> None:
        self.done = False
        self.steps = 0
        self._ladder = tuple(ladder)
        self._instructions = instructions
        self._profiler = profiler
        self._together = together
        self._known = known
        self._targets = list(dict.fromkeys(map(self._nearest, _FIRST_SHARES)))
        self._next = list(map(self._nearest, _NEXT_SHARES))
        if together:
            self._targets.append(self._next[0])
        self._visits: Counter[float] = Counter()
        self._slot_left = 0  # instructions
        self._slot_clock = self._ladder[0]
        self._explored_last = False
        self._seconds = self._step_seconds = 0.0
        self._slow = 0.0

    @property
    def progress(self) -> Progress:
        """How far it has come, and about how many steps it will take."""
        visited = sum(self._visits[clock] > 0 for clock in self._targets)
        mean = self._seconds / self.steps if self.steps else 0.0
        fewest, seconds = self._fewest
        left = fewest - self.steps
        if mean:
            left = max(left, math.ceil((seconds - self._seconds) / mean))
        if visited and not self._known:  # at the pace so far
            missing = len(self._targets) - visited
            paced = math.ceil(missing * max(self.steps - 1, 1) / visited)
            left = max(left, min(paced, _LAST - self.steps))
        left = max(left, 1)
        # The highest clock is none of the targets, and visited from the first step on.
        clocks = visited + (self.steps > 0)
        targets = visited + 1 if self._known else len(self._targets) + 1
        return Progress(self.steps, self.steps + left, clocks, targets, mean)

    @property
    def _fewest(self) -> tuple[int, float]:
        """Steps and seconds that it takes at least."""
        return (2, 1.0) if self._known else (_MIN_STEPS, _MIN_SECONDS)

    def clocks(self) -> list[float]:
        """Return the clock of each instruction of the next step, in MHz."""
        highest = self._ladder[0]
        if self.steps == 0:
            return [highest] * self._instructions
        found: list[float] = []
        length = self._slot_length()
        while len(found) < self._instructions:
            if self._slot_left <= 0:
                self._slot_clock, self._slot_left = self._choose(), length
            some = min(self._slot_left, self._instructions - len(found))
            found += [self._slot_clock] * some
            self._slot_left -= some
        self._slow += math.fsum(map(self._slowdown, found)) / self._instructions
        return found

    def end_step(self, seconds: float) -> None:
        """Decide whether to go on, after a step of this length that the profiler has learned."""
        self.steps += 1
        self._seconds += seconds
        self._step_seconds = seconds
        if not self._together:
            self._go_lower()
        fewest, seconds_at_least = self._fewest
        if self.steps < fewest or self._seconds < seconds_at_least:
            return
        if self._known:
            self.done = True
            return
        if self._together:
            self.done = self._visited_all() or self.steps >= _LAST
            return
        late = self.steps >= _LAST or self._seconds > _MAX_SECONDS
        self.done = late or (self._visited_all() and self._precise())

    def _choose(self) -> float:
        """Return the clock of the next slot: the least visited one, and the highest in between."""
        self._explored_last = not self._explored_last
        slow = self._slow / max(self.steps, 1)
        if not self._explored_last or slow > _SLOWDOWN:
            return self._ladder[0]
        clock = min(self._targets, key=lambda each: self._visits[each])
        self._visits[clock] += 1
        return clock

    def _slot_length(self) -> int:
        """Return the instructions of a slot; more than a step has if instructions are short."""
        profiler = self._profiler
        times = [profiler.times.time(kind, self._ladder[0]) for kind in profiler.chosen]
        known = [time for time in times if time is not None]
        mean = math.fsum(known) / len(known) if known else _SLOT
        return max(_FEWEST, math.ceil(_SLOT / mean))

    def _slowdown(self, clock: float) -> float:
        times, highest = self._profiler.times, self._ladder[0]
        ratios = []
        for kind in self._profiler.chosen:
            slow, fast = times.time(kind, clock), times.time(kind, highest)
            if slow is not None and fast is not None:
                ratios.append(slow / fast - 1)
        # Before anything is known, as if all were proportional to the clock.
        return max(ratios) if ratios and self.steps > 1 else highest / clock - 1

    def _go_lower(self) -> None:
        """Add the next lower clock, if all are visited and energy still falls toward it."""
        all_visited = all(self._visits[clock] for clock in self._targets)
        if not self._next or not all_visited or self.steps >= _MIN_STEPS:
            return
        lowest, lower = min(self._targets), self._next[0]
        profiler, highest = self._profiler, self._ladder[0]
        for kind in profiler.chosen:
            here, there = profiler.cost(kind, lowest), profiler.cost(kind, lower)
            slow, fast = profiler.times.time(kind, lower), profiler.times.time(kind, highest)
            if None in (here, there, slow, fast):
                continue
            assert here is not None
            assert there is not None
            assert slow is not None
            assert fast is not None
            if there < here and slow < _SLOWEST * fast:
                self._targets.append(self._next.pop(0))
                return

    def _visited_all(self) -> bool:
        # The last one may have been added just now; curves reach a little further.
        return all(self._visits[clock] for clock in self._targets[: len(_FIRST_SHARES)])

    def _precise(self) -> bool:
        # Not at the lowest clocks: where little is known, plans are cautious.
        profiler = self._profiler
        return all(
            profiler.times.uncertainty(kind, clock) <= _TIME_PRECISION
            and profiler.powers.uncertainty(kind, clock) <= _POWER_PRECISION
            for kind in profiler.chosen
            for clock in (self._ladder[0], self._targets[0])
        )

    def _nearest(self, share: float) -> float:
        wanted = share * self._ladder[0]
        return min(self._ladder, key=lambda clock: abs(clock - wanted))

"""One rank whose instructions, clocks and sensors are exact, without any device or client."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

from tests.optimizer.pipeline_frequency.running.curves import BACKWARD, FORWARD, HIGHEST, MODEL

from zeus.monitor._edges import Piece
from zeus.monitor._levels import Integral
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._profiler import Profiler
from zeus.optimizer.pipeline_frequency.running._step_record import StepRecord

ACTIVITY = 0.9
TICK = 0.1


class Rank:
    """Runs steps at requested clocks, and gives the profiler what a client would see of them.

    Attributes:
        seconds: Of a forward and a backward at the highest clock.
        lag: Seconds until a requested clock is in force.
        variation: Relative standard deviation of the work.
        slow: How many times as long everything takes.
        microbatches: Forwards and backwards of a step, in turns.
        wait: Seconds without an instruction after each of them.
        bubble: The same in the middle of the step.
    """

    def __init__(
        self,
        seconds: tuple[float, float] = (0.025, 0.05),
        *,
        lag: float = 0.015,
        variation: float = 0.05,
        seed: int = 1,
        microbatches: int = 8,
        wait: float = 0.004,
        bubble: float = 0.0,
    ) -> None:
        self.seconds = dict(zip((FORWARD, BACKWARD), seconds, strict=True))
        self.lag, self.variation = lag, variation
        self.wait, self.bubble = wait, bubble
        self.slow = 1.0
        self.kinds = [FORWARD, BACKWARD] * microbatches
        self.now = 1.0
        self.energy = 0.0
        self.requests: list[tuple[float, float]] = [(0.0, float(HIGHEST))]
        self.number = 0
        self._draws = random.Random(seed)
        self._taken = 0
        self._energies: list[tuple[float, float]] = [(self.now, 0.0)]  # at instants
        self._tick = self.now

    def time(self, kind: InstructionKind, clock: float) -> float:
        """Return seconds of a kind, in truth."""
        return self.slow * self.seconds[kind] * (0.8 * HIGHEST / clock + 0.2)

    def power(self, clock: float) -> float:
        """Return watts of all kinds, in truth."""
        return MODEL.busy_power(clock / HIGHEST, ACTIVITY)

    def step(self, clocks: Sequence[float]) -> StepRecord:
        """Run a step; each clock is requested when its instruction begins."""
        self.number += 1
        record = StepRecord(self.number, self.now)
        for kind, clock in zip(self.kinds, clocks, strict=True):
            if clock != self.requests[-1][1]:
                self.requests.append((self.now, clock))
            record.kinds.append(kind)
            record.begins.append(self.now)
            self._run(kind)
            record.ends.append(self.now)
            middle = 2 * len(record.ends) == len(self.kinds)
            self._pass(self.wait + self.bubble * middle, MODEL.busy_power(1.0, 0.0))
        record.end = self.now
        return record

    def teach(self, profiler: Profiler, clocks: Sequence[float]) -> StepRecord:
        """Run a step, and let a profiler learn from it."""
        record = self.step(clocks)
        profiler.add_step(record, self.requests[self._taken :], len(self.kinds))
        self._taken = len(self.requests)
        profiler.add_energies(self.ticks())
        return record

    def learn_times(self, profiler: Profiler, clocks: Sequence[float]) -> None:
        """Run a step, and let a profiler learn its times; nothing of it is kept here."""
        record = self.step(clocks)
        profiler.add_step(record, self.requests[self._taken :], len(self.kinds))
        self.requests = [(0.0, self.requests[-2][1]), self.requests[-1]]
        self._taken = len(self.requests)
        del self._energies[:-1]

    def ticks(self) -> list[Integral]:
        """Return the energies of the refreshes since the last call."""
        found = []
        while self._tick + TICK <= self.now:
            begin, end = self._tick, self._tick + TICK
            joules = self.exact(end) - self.exact(begin)
            found.append(Integral([Piece(0, (), begin, end)], joules, 1e-4))
            self._tick = end
        return found

    def exact(self, instant: float) -> float:
        """Return joules until an instant."""
        for (since, one), (until, two) in itertools.pairwise(reversed(self._energies)):
            if until <= instant <= since:
                return two + (one - two) * (instant - until) / max(since - until, 1e-12)
        raise AssertionError(instant)

    def _run(self, kind: InstructionKind) -> None:
        left = max(1 + self.variation * self._draws.gauss(0, 1), 0.3)
        while left > 1e-12:
            clock, until = self._in_force()
            whole = self.time(kind, clock)
            some = min(left * whole, until - self.now)
            self._pass(some, self.power(clock))
            left -= some / whole

    def _in_force(self) -> tuple[float, float]:
        """Return the clock now, and until when; a request replaces one that is not in force yet."""
        clock, until = float(HIGHEST), math.inf
        for number, (asked, wanted) in enumerate(self.requests):
            comes = asked + self.lag
            later = self.requests[number + 1 :]
            if later and later[0][0] < comes:
                continue
            if comes <= self.now + 1e-12:
                clock = wanted
            else:
                until = min(until, comes)
        return clock, until

    def _pass(self, seconds: float, watts: float) -> None:
        self.now += seconds
        self.energy += seconds * watts
        self._energies.append((self.now, self.energy))

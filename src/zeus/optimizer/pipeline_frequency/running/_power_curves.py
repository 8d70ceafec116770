"""The power of each kind of instruction at each clock, and of waiting, from sensor refreshes.

A counter is refreshed every 20 to 100 ms, and instructions may be shorter. So no instruction is
measured alone: each refresh is one equation about the power of all that ran since the one before,
and the curves of all kinds are the solution of all equations together. Kinds that mostly run
together are told apart by what their curves have in common.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._curve_terms import (
    BENDS,
    TERMS,
    power_terms,
    precisions,
    row,
)
from zeus.optimizer.pipeline_frequency.running._regression import Equation, Posterior, regress

_MAX_EQUATIONS = 600
_RIPPLE = 0.01  # of the energy of an equation: instructions of a kind differ
# By how much the curve of a kind differs from that of all, relative: its level and slope, and its
# bends, as a share of theirs. A GPU's power depends on clock and voltage alike in all kernels.
_DIFFER, _DIFFER_BEND = (0.2, 0.1), 0.2
_WAITING_SLOPE = 0.15  # of the power: how much waiting may depend on the clock, highest to 0


class Load(NamedTuple):
    """One of the loads of a GPU.

    Attributes:
        kind: Kind of the running instruction; `None` while none runs.
        in_step: Without an instruction, whether it waits for the next one of the step.
        clock: MHz.
    """

    kind: InstructionKind | None
    in_step: bool
    clock: float


class PowerCurves:
    """Power of instructions by kind and clock.

    Args:
        kinds: Kinds of instructions.
        highest: The highest clock, in MHz.
    """

    def __init__(self, kinds: Iterable[InstructionKind], highest: float) -> None:
        self._highest = highest
        # First the terms that all kinds have in common, then those by which each differs.
        self._first = {kind: (number + 1) * TERMS for number, kind in enumerate(kinds)}
        self._waiting = TERMS * (len(self._first) + 1)  # a line: two unknowns
        self._between = self._waiting + 2  # between steps: one unknown, whatever runs there
        # By the load that lasts longest, so that clocks that were explored are not forgotten while
        # a plan uses others.
        self._equations: dict[Load, deque[Equation]] = {}
        self._count = 0
        self._watts = 1.0
        self._waited = self._waited_at = 0.0
        self._fit: Posterior | None = None

    def add(self, seconds: Mapping[Load, float], joules: float, variance: float) -> None:
        """Add the energy of an interval.

        Args:
            seconds: Seconds of each load in the interval.
            joules: Energy of the whole interval.
            variance: Its variance, in joules squared.
        """
        total = math.fsum(seconds.values())
        if total <= 0:
            return
        unknowns: dict[int, float] = {}
        for load, length in seconds.items():
            for at, by in self._row(load, length).items():
                unknowns[at] = unknowns.get(at, 0.0) + by
            if load.kind is None and load.in_step:
                self._waited += length
                self._waited_at += length * load.clock
        self._keep(
            max(seconds, key=lambda load: seconds[load]),
            Equation(unknowns, joules, variance + (_RIPPLE * joules) ** 2),
        )
        self._watts = max(self._watts, joules / total)
        self._fit = None

    def __len__(self) -> int:
        return self._count

    def power(self, kind: InstructionKind, clock: float) -> float | None:
        """Return the watts of a kind at a clock; `None` if nothing is known."""
        return self._power(Load(kind, True, clock))

    def uncertainty(self, kind: InstructionKind, clock: float) -> float:
        """Return the relative standard deviation of `power`; infinite if nothing is known."""
        fit, power = self._solved(), self.power(kind, clock)
        if fit is None or power is None:
            return math.inf
        return math.sqrt(fit.variance(self._row(Load(kind, True, clock), 1.0))) / power

    def waiting(self) -> float | None:
        """Return the watts while waiting, at the clocks seen meanwhile; `None` if it never did."""
        if not self._waited:
            return None
        return self._power(Load(None, True, self._waited_at / self._waited))

    def _power(self, load: Load) -> float | None:
        fit = self._solved()
        if fit is None:
            return None
        found = fit.value(self._row(load, 1.0))
        return found if found > 0 else None

    def _row(self, load: Load, length: float) -> dict[int, float]:
        share = load.clock / self._highest
        if load.kind is not None:
            terms = power_terms(share)
            return row(terms, 0, length) | row(terms, self._first[load.kind], length)
        if load.in_step:
            return row(power_terms(share)[:2], self._waiting, length)
        return {self._between: length}

    def _keep(self, load: Load, equation: Equation) -> None:
        """Add an equation; if there are too many, drop the oldest of the load with the most."""
        self._equations.setdefault(load, deque()).append(equation)
        self._count += 1
        if self._count > _MAX_EQUATIONS:
            max(self._equations.values(), key=len).popleft()
            self._count -= 1

    def _solved(self) -> Posterior | None:
        if self._fit is None and self._count:
            equations = [each for group in self._equations.values() for each in group]
            fits = [regress(equations, self._precisions(bend)) for bend in BENDS]
            self._fit = max(fits, key=lambda fit: fit.evidence)
        return self._fit

    def _precisions(self, bend: float) -> list[float]:
        watts = self._watts
        common = precisions(watts, bend)
        level, slope = (1 / (share * watts) ** 2 for share in _DIFFER)
        own = [level, slope, *precisions(watts, _DIFFER_BEND * bend)[2:]]
        waiting = [common[0], 1 / (_WAITING_SLOPE * watts) ** 2]
        return [*common, *own * len(self._first), *waiting, common[0]]

"""How long each kind of instruction takes at each clock, learned from some of them at some clocks.

Microbatches differ, so a mean over few instructions is uncertain; the curve of a kind is fitted to
all of them at once, at whatever clock they ran, with one relative variation for all.

A GPU that warms up, or longer sequences, make instructions slower at all clocks by much the same
factor. So an instruction says two things: how long its kind takes at its clock, and by how much all
times of the kind have moved since they were measured. What was learned at clocks that no plan uses
is thus neither forgotten nor left behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind
from zeus.optimizer.pipeline_frequency.running._curve_terms import (
    BENDS,
    precisions,
    row,
    time_terms,
)
from zeus.optimizer.pipeline_frequency.running._regression import Equation, Posterior, regress

_HICCUP = 2.0  # times what was expected: longer ones are outliers
_FIRST_VARIATION, _FIRST_COUNT = 0.03, 4.0  # relative, before anything is known, and its weight
_LEAST_VARIATION = 1e-3  # relative
_ASSUMED_COUNT = 3.0  # instructions at each clock
_MEMORY = 4_000.0  # instructions at one clock: with more, earlier ones count less
_PACE = 400.0  # instructions over which a common factor of all clocks is followed
_KEPT = 40.0  # instructions of a kind that count after a drift, shared by the clocks
_ASSUMED_MOVE = 0.02  # relative: by how much an earlier run may have been faster or slower


@dataclass
class _Sums:
    """Instructions of a kind at one clock: their number, and sums of seconds and of squares."""

    count: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.seconds / self.count

    def multiply(self, factor: float) -> None:
        self.seconds *= factor
        self.squares *= factor * factor

    def fade(self, most: float) -> None:
        """Let instructions count as so many at most."""
        weight = min(most / max(self.count, 1e-9), 1.0)
        self.count *= weight
        self.seconds *= weight
        self.squares *= weight


@dataclass
class _Kind:
    sums: dict[float, _Sums] = field(default_factory=dict)
    fit: Posterior | None = None
    uncertainties: dict[float, float] = field(default_factory=dict)
    doubt: float = 0.0  # variance of the common factor by which times may have moved
    moved: float = 1.0  # that factor, since the latest fit

    @property
    def count(self) -> float:
        return math.fsum(sums.count for sums in self.sums.values())

    def multiply(self, factor: float) -> None:
        for sums in self.sums.values():
            sums.multiply(factor)


class TimeCurves:
    """Times of instructions by kind and clock.

    Args:
        kinds: Kinds of instructions.
        highest: The highest clock, in MHz.
    """

    def __init__(self, kinds: Iterable[InstructionKind], highest: float) -> None:
        self._highest = highest
        self._kinds = {kind: _Kind() for kind in kinds}
        self._variation: float | None = None
        self._seen_variation = _FIRST_VARIATION  # when it was last computed

    def add(
        self, kind: InstructionKind, clock: float, seconds: float, expected: float | None = None
    ) -> None:
        """Add an instruction that ran at one clock from begin to end.

        Args:
            kind: Its kind.
            clock: MHz.
            seconds: How long it took.
            expected: What `time` returned for it, if known: far longer ones are outliers.
        """
        known = self._kinds[kind]
        sums = known.sums.setdefault(clock, _Sums())
        if expected is not None and known.count >= 4 and seconds > _HICCUP * expected:
            return
        if expected is not None and clock in known.uncertainties:
            self._move(known, seconds / (expected * known.moved), known.uncertainties[clock])
        sums.fade(_MEMORY - 1)
        sums.count += 1
        sums.seconds += seconds
        sums.squares += seconds * seconds
        known.fit = self._variation = None

    def _move(self, known: _Kind, ratio: float, unknown: float) -> None:
        """Move the times of a kind at all clocks by the part of a ratio that is not chance.

        As a Kalman filter does: the share depends on how well the common factor is known, how much
        instructions vary, and how well the time at this clock is known.
        """
        noise = self._seen_variation**2
        known.doubt += noise / _PACE**2
        gain = known.doubt / (known.doubt + noise + unknown * unknown)
        known.doubt *= 1 - gain
        factor = 1 + gain * (ratio - 1)
        known.multiply(factor)
        known.moved *= factor

    def assume(self, kind: InstructionKind, clock: float, seconds: float) -> None:
        """Assume a mean time that was measured in an earlier run, as if by few instructions."""
        known, count = self._kinds[kind], _ASSUMED_COUNT
        square = seconds * seconds * (1 + _FIRST_VARIATION**2)
        known.sums[clock] = _Sums(count, count * seconds, count * square)
        known.doubt = _ASSUMED_MOVE**2
        known.fit = self._variation = None

    def scale(
        self,
        kind: InstructionKind,
        factor: float,
        latest: Iterable[tuple[float, float]] = (),
    ) -> None:
        """Multiply the times of a kind at all clocks: it has become slower or faster.

        Little weight stays on what was measured often, so that another shape is learned soon.

        Args:
            kind: The kind.
            factor: By which to multiply.
            latest: Clock and seconds of instructions that took the other time already.
        """
        known, slow = self._kinds[kind], list(latest)
        known.multiply(factor)
        for clock, seconds in slow:
            sums = known.sums[clock]
            sums.seconds -= (factor - 1) * seconds
            sums.squares -= (factor * factor - 1) * seconds * seconds
        for sums in known.sums.values():
            sums.fade(_KEPT / len(known.sums))
        known.doubt = self.variation**2 / max(len(slow), 1)  # as the factor is known from these
        known.fit = self._variation = None

    @property
    def variation(self) -> float:
        """Relative standard deviation of the time of instructions of a kind at one clock."""
        if self._variation is None:
            squares, count = _FIRST_COUNT * _FIRST_VARIATION**2, _FIRST_COUNT
            for known in self._kinds.values():
                for sums in known.sums.values():
                    if sums.count > 1:
                        mean = sums.mean
                        squares += max(sums.squares / mean**2 - sums.count, 0.0)
                        count += sums.count - 1
            self._variation = max(math.sqrt(squares / count), _LEAST_VARIATION)
            self._seen_variation = self._variation
        return self._variation

    def count(self, kind: InstructionKind) -> float:
        """Return how many instructions of a kind were measured, earlier ones by their weight."""
        return self._kinds[kind].count

    def shortest(self, kind: InstructionKind) -> float | None:
        """Return the least mean time at any clock, in seconds; `None` if there is none."""
        sums = [each.mean for each in self._kinds[kind].sums.values() if each.count]
        return min(sums, default=None)

    def lowest_clock(self, kind: InstructionKind) -> float:
        """Return the lowest clock at which a kind was measured, in MHz; infinite if at none."""
        sums = self._kinds[kind].sums.items()
        return min((clock for clock, each in sums if each.count), default=math.inf)

    def time(self, kind: InstructionKind, clock: float) -> float | None:
        """Return the mean time of a kind at a clock, in seconds; `None` if nothing is known."""
        fit = self._fit(kind)
        if fit is None:
            return None
        found = fit.value(row(time_terms(clock / self._highest)))
        return found if found > 0 else None

    def uncertainty(self, kind: InstructionKind, clock: float) -> float:
        """Return the relative standard deviation of `time`; infinite if nothing is known."""
        fit, time = self._fit(kind), self.time(kind, clock)
        if fit is None or time is None:
            return math.inf
        known = self._kinds[kind].uncertainties
        if clock not in known:
            known[clock] = math.sqrt(fit.variance(row(time_terms(clock / self._highest)))) / time
        return known[clock]

    def _fit(self, kind: InstructionKind) -> Posterior | None:
        known = self._kinds[kind]
        if known.fit is None:
            found = {clock: sums for clock, sums in known.sums.items() if sums.count}
            if not found:
                return None
            scale = max(sums.mean for sums in found.values())
            equations = [
                Equation(
                    row(time_terms(clock / self._highest)),
                    sums.mean,
                    (self.variation * sums.mean) ** 2 / sums.count,
                )
                for clock, sums in found.items()
            ]
            fits = [regress(equations, precisions(scale, bend)) for bend in BENDS]
            known.fit = max(fits, key=lambda fit: fit.evidence)
            known.uncertainties.clear()
            known.moved = 1.0
        return known.fit

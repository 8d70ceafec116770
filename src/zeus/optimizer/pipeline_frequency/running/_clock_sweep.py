"""The clock sweep: time and energy of every instruction at ever lower clocks, until energy rises.

Pure: it takes measurements of instructions and decides at which clock to measure next. Steps differ
for reasons that all their instructions share (temperature, neighbors), so the uncertainty of an
energy is estimated from how much steps at the same clock differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zeus._student import student_factor
from zeus.optimizer.pipeline_frequency._profile import Option
from zeus.optimizer.pipeline_frequency.job._messages import FIXED, InstructionKind

PRECISION = 0.01  # relative, of a mean energy, at about 95 % confidence
MAX_STEPS = 8  # at one clock, however noisy
FIRST_STEPS = 3  # at the highest clock, where they cost nothing, to estimate how much steps differ
_VAGUE = 0.25  # relative uncertainty of a mean energy above which it is unusable
_SLOWEST = 2.0  # times as long as at the highest clock: slower than any plan would use
_HICCUP = 2.0  # times the median: longer ones are outliers
_CLEAR = 2.0  # times the uncertainty: a rise that needs no confirmation at the next clock


@dataclass
class _Samples:
    """Measurements of one kind of instruction at one clock."""

    times: list[float] = field(default_factory=list)
    energies: list[float] = field(default_factory=list)
    uncertainties: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def kept(self) -> list[int]:
        longest = _HICCUP * statistics.median(self.times)
        return [place for place, time in enumerate(self.times) if time <= longest]

    def mean(self) -> _Mean:
        kept = self.kept()
        energies = [self.energies[place] for place in kept]
        count = len(kept)
        # The larger of the meter's uncertainty and the spread of the instructions.
        unseen = math.sqrt(math.fsum(self.uncertainties[place] ** 2 for place in kept)) / count
        spread = 2 * statistics.stdev(energies) / math.sqrt(count) if count > 1 else 0.0
        return _Mean(
            math.fsum(self.times[place] for place in kept) / count,
            math.fsum(energies) / count,
            max(unseen, spread),
        )

    def by_step(self) -> list[float]:
        """Return the mean energy of each step, in joules."""
        found: dict[int, list[float]] = {}
        for place in self.kept():
            found.setdefault(self.steps[place], []).append(self.energies[place])
        return [math.fsum(each) / len(each) for each in found.values()]


@dataclass(frozen=True)
class _Mean:
    time: float
    energy: float
    uncertainty: float

    def at_least(self, share: float) -> _Mean:
        """Return it with an uncertainty of at least this share of its energy."""
        return _Mean(self.time, self.energy, max(self.uncertainty, share * self.energy))


@dataclass
class _StepNoise:
    """Relative variance of the energies of steps at the same clock, pooled over all clocks."""

    squares: float = 0.0
    freedom: int = 0

    def with_(self, means: Sequence[float]) -> _StepNoise:
        """Return it with the step means of one more clock added."""
        middle = math.fsum(means) / len(means)
        if len(means) < 2 or middle <= 0:
            return self
        squares = math.fsum((mean / middle - 1) ** 2 for mean in means)
        return _StepNoise(self.squares + squares, self.freedom + len(means) - 1)

    def half_width(self, steps: int) -> float:
        """Return the relative 95 % half-width of the mean of some steps; 0 if nothing is known."""
        if not self.freedom:
            return 0.0
        return student_factor(self.freedom) * math.sqrt(self.squares / self.freedom / steps)


class ClockSweep:
    """A sweep down a ladder of clocks.

    Args:
        ladder: MHz, the highest first.
        kinds: Kinds of instructions in a step.
        steps_per_clock: Steps to measure at each clock; `None` for as many as energies need to be
            known to 1 %, up to 8. Tensor-parallel ranks must all measure the same number.

    Attributes:
        steps: Number of steps measured.
        done: Whether the sweep is over.
        trouble: Why the sweep failed; empty while all is well.
    """

    def __init__(
        self,
        ladder: Sequence[float],
        kinds: Collection[InstructionKind],
        steps_per_clock: int | None = None,
    ) -> None:
        self._ladder = tuple(ladder)
        self._kinds = tuple(kinds)
        self._chosen = tuple(kind for kind in self._kinds if kind.name not in FIXED)
        self._fixed_steps = steps_per_clock
        self._rung = 0
        self._steps_here = 0
        self._samples: dict[InstructionKind, _Samples] = {kind: _Samples() for kind in self._kinds}
        self._means: list[dict[InstructionKind, _Mean]] = []
        self._noise: dict[InstructionKind, _StepNoise] = {
            kind: _StepNoise() for kind in self._kinds
        }
        self.steps = 0
        self.done = False
        self.trouble = ""

    @property
    def clock(self) -> float:
        """MHz at which to measure now."""
        return self._ladder[min(self._rung, len(self._ladder) - 1)]

    def add(self, kind: InstructionKind, time: float, energy: float, uncertainty: float) -> None:
        """Add the measurement of an instruction that ran at `clock`.

        Args:
            kind: Kind of the instruction; one that does not belong to the step is ignored.
            time: Seconds.
            energy: Joules.
            uncertainty: Joules by which `energy` may be off.
        """
        samples = self._samples.get(kind)
        if samples is not None and time > 0 and not self.done:
            samples.times.append(time)
            samples.energies.append(max(energy, 0.0))
            samples.uncertainties.append(uncertainty)
            samples.steps.append(self._steps_here)

    def end_of_step(self) -> None:
        """Go to the next clock, or end the sweep, once this clock is measured precisely enough."""
        if self.done or not all(samples.times for samples in self._samples.values()):
            return
        self.steps += 1
        self._steps_here += 1
        seen = {kind: samples.mean() for kind, samples in self._samples.items()}
        noise = {
            kind: self._noise[kind].with_(samples.by_step())
            for kind, samples in self._samples.items()
        }
        means = {
            kind: mean.at_least(noise[kind].half_width(self._steps_here))
            for kind, mean in seen.items()
        }
        if not self._enough(means):
            return
        for kind in self._chosen:
            if seen[kind].uncertainty > _VAGUE * seen[kind].energy:
                self.trouble = (
                    f"energies must be known to {100 * _VAGUE:.0f} %, but {kind} takes "
                    f"{seen[kind].energy:.3g} J, give or take {seen[kind].uncertainty:.3g} J"
                )
                return
        self._means.append(means)
        self._noise = noise
        self._samples = {kind: _Samples() for kind in self._kinds}
        self._steps_here = 0
        self._rung += 1
        self.done = self._rung == len(self._ladder) or self._risen() or self._too_slow()

    def options(self) -> Mapping[InstructionKind, tuple[Option, ...]]:
        """Return the mean time and energy of each kind at each clock, the highest clock first."""
        found: dict[InstructionKind, tuple[Option, ...]] = {}
        for kind in self._kinds:
            if kind.name in FIXED:
                found[kind] = (self._fixed(kind),)
                continue
            found[kind] = tuple(
                Option(clock, means[kind].time, means[kind].energy)
                for clock, means in zip(self._ladder, self._means, strict=False)
            )
        return found

    def _fixed(self, kind: InstructionKind) -> Option:
        # Any time above the minimum was spent waiting for other ranks.
        fastest = min((means[kind] for means in self._means), key=lambda mean: mean.time)
        return Option(None, fastest.time, fastest.energy)

    def _enough(self, means: Mapping[InstructionKind, _Mean]) -> bool:
        if self._fixed_steps is not None:
            return self._steps_here >= self._fixed_steps
        if not self._means and self._steps_here < FIRST_STEPS:
            return False
        return self._steps_here >= MAX_STEPS or all(
            means[kind].uncertainty <= PRECISION * means[kind].energy for kind in self._chosen
        )

    def _risen(self) -> bool:
        """Whether every kind clearly takes more energy now than at a higher clock."""
        return all(map(self._kind_has_risen, self._chosen))

    def _kind_has_risen(self, kind: InstructionKind) -> bool:
        """Whether its energy rose by far, or, to rule out noise, at two clocks in a row."""
        found = [means[kind] for means in self._means]
        rise, noise = _rise(found)
        if rise > max(_CLEAR * noise, PRECISION * found[-1].energy):
            return True
        rise_before, noise_before = _rise(found[:-1])
        return rise > noise and rise_before > noise_before

    def _too_slow(self) -> bool:
        first, last = self._means[0], self._means[-1]
        return all(last[kind].time > _SLOWEST * first[kind].time for kind in self._chosen)


def _rise(found: Sequence[_Mean]) -> tuple[float, float]:
    """Return the joules of the last above the minimum before it, and their uncertainty."""
    if len(found) < 2:
        return 0.0, 0.0
    *before, last = found
    best = min(before, key=lambda mean: mean.energy)
    return last.energy - best.energy, math.hypot(best.uncertainty, last.uncertainty)

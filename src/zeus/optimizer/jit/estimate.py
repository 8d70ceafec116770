"""How well a step's time and energy are known, and how many more steps would do.

Steps vary alike at all settings, so what one setting tells about the noise serves the others: the
relative variance per step is pooled, and a setting that comes later needs fewer steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from zeus.frontier import Point
from zeus.frontier.point import student_factor
from zeus.optimizer.jit.stretch import Taken

# Uncertainties of measurements are as many standard deviations.
_COVERAGE = 1.96


@dataclass
class Slice:
    """Everything that was measured at one setting."""

    parts: list[Taken] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Steps of training."""
        return sum(part.steps for part in self.parts)

    @property
    def time(self) -> float:
        """Seconds."""
        return sum(part.time for part in self.parts)

    @property
    def energy(self) -> float:
        """Joules."""
        return sum(part.energy for part in self.parts)

    @property
    def energy_uncertainty(self) -> float:
        """Joules by which measuring may be off; what varies between steps is not in it."""
        return math.sqrt(sum(part.uncertainty**2 for part in self.parts))

    @property
    def highest_power(self) -> float:
        """Watts of the GPU that drew most, in any part."""
        return max(part.highest_power for part in self.parts)


@dataclass(frozen=True)
class Spread:
    """By which share of its value the mean over some steps may be off, in 19 of 20 cases.

    Attributes:
        per_step: That of a single step, for a mean over n steps to be divided by the root of n;
            `None` if no setting was measured twice.
    """

    per_step: float | None

    def of_mean(self, steps: int) -> float | None:
        """That of the mean over so many steps."""
        return None if self.per_step is None else self.per_step / math.sqrt(steps)


@dataclass(frozen=True)
class Noise:
    """How much steps vary in time and in energy."""

    time: Spread
    energy: Spread

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> Noise:
        """What all slices together tell."""
        known = list(slices)
        times = _spread(known, lambda part: part.time)
        energies = _spread(
            known, lambda part: part.energy, lambda part: part.uncertainty / _COVERAGE
        )
        # A longer step takes more energy: that shows in the time even where a counter is coarse.
        if times.per_step is not None and energies.per_step is not None:
            energies = Spread(max(times.per_step, energies.per_step))
        return cls(times, energies)

    def doubt(self, piece: Slice) -> float:
        """The larger of the shares by which time and energy of a step may be off."""
        of_time = self.time.of_mean(piece.steps) or 0.0
        return max(of_time, self._energy_doubt(piece) / piece.energy if piece.energy else 0.0)

    def steps_for(self, precision: float, piece: Slice) -> int:
        """Steps in all after which a slice should be known to this share."""
        varying = max(
            self.time.of_mean(piece.steps) or 0.0, self.energy.of_mean(piece.steps) or 0.0
        )
        # What varies between steps shrinks by the root; what a window's ends leave open is as much
        # for a long window as for a short one, and one more window is to come.
        needed = (varying / precision) ** 2
        if piece.energy:
            parts = len(piece.parts)
            at_ends = piece.energy_uncertainty / piece.energy * math.sqrt((parts + 1) / parts)
            needed = max(needed, at_ends / precision)
        return math.ceil(piece.steps * needed)

    def point(self, knob: object, piece: Slice) -> Point:
        """A step at this setting."""
        steps = piece.steps
        time = piece.time / steps
        of_time = self.time.of_mean(steps)
        return Point(
            knob,
            time,
            piece.energy / steps,
            None if of_time is None else of_time * time,
            self._energy_doubt(piece) / steps,
            repeats=len(piece.parts),
        )

    def _energy_doubt(self, piece: Slice) -> float:
        varying = (self.energy.of_mean(piece.steps) or 0.0) * piece.energy
        return math.hypot(varying, piece.energy_uncertainty)


def _spread(
    slices: Iterable[Slice],
    value: Callable[[Taken], float],
    off: Callable[[Taken], float] = lambda _: 0.0,
) -> Spread:
    """How much steps vary.

    Args:
        slices: What was measured.
        value: What of it.
        off: By how much measuring alone is off, as a standard deviation: makes parts differ too,
            but does not come from steps.
    """
    squares, freedom = 0.0, 0
    for piece in slices:
        total, steps = sum(value(part) for part in piece.parts), piece.steps
        if len(piece.parts) < 2 or total <= 0:
            continue
        mean = total / steps
        for part in piece.parts:
            # A part's mean over n steps varies by 1/n of what a step does: n undoes that.
            seen = (value(part) / part.steps / mean - 1) ** 2
            expected = (off(part) / part.steps / mean) ** 2 * (1 - part.steps / steps)
            squares += part.steps * (seen - expected)
        freedom += len(piece.parts) - 1
    if freedom == 0:
        return Spread(None)
    return Spread(student_factor(freedom) * math.sqrt(max(0.0, squares) / freedom))

"""How well a step's time and energy are known, and how many more steps would do.

Steps vary alike at all settings, so what one setting tells about the noise serves the others: the
relative variance per step is pooled, and a setting that comes later needs fewer steps.

Hosts disturb single steps (late data), single windows and whole stays at a setting (a neighbor,
drift). So late steps and windows that stand out are left out, a setting that was visited three
times or more takes the median of its stays, and stays of the same round are compared with each
other: what drifts meanwhile has met them all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zeus.frontier import Point
from zeus.frontier.point import student_factor
from zeus.optimizer.jit.stretch import Taken

# Uncertainties of measurements are as many standard deviations.
_COVERAGE = 2.4
# A window that is off by more than this share of the median one, and by more than this many times
# what windows are typically off by, was disturbed.
_OUTLYING = 0.12
_OUTLYING_DEVIATIONS = 6.0
# A host is quiet if stays at the same setting differ by less than this share (a standard
# deviation), as so many stays have shown, and single steps by less than that one.
_QUIET = 0.001
_SOME = 2
# Settings that are compared may lie further apart in time than stays at the same setting, and drift
# further apart.
_FURTHER = 1.3
_EVEN = 0.01


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
        together = next((p.together for p in reversed(self.parts) if p.together is not None), None)
        if together is not None:
            return together
        return math.sqrt(sum(part.uncertainty**2 for part in self.parts))

    @property
    def torn(self) -> bool:
        """Whether there are only two windows, and one of them stands out."""
        if len(self.parts) != 2:
            return False
        first, second = ((part.time - part.late) / part.steps for part in self.parts)
        return abs(first - second) > _OUTLYING * min(first, second)

    @property
    def typical(self) -> Slice:
        """Without the windows that stand out, if there are enough to tell."""
        if len(self.parts) < 3:
            return self
        times = [(part.time - part.late) / part.steps for part in self.parts]
        median = statistics.median(times)
        usual = statistics.median(abs(time - median) for time in times)
        bound = max(_OUTLYING * median, _OUTLYING_DEVIATIONS * usual)
        return Slice(
            [
                part
                for part, time in zip(self.parts, times, strict=True)
                if abs(time - median) <= bound
            ]
        )

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
    """How much steps vary in time and in energy.

    Attributes:
        time: Of the time.
        energy: Of the energy.
        waiting: Watts of all GPUs while a step is late.
    """

    time: Spread
    energy: Spread
    waiting: float = 0.0

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> Noise:
        """What all slices together tell."""
        waiting = _waiting_power(slices := [piece.typical for piece in slices])
        known = [Slice([_undelayed(part, waiting) for part in piece.parts]) for piece in slices]
        times = _spread(known, lambda part: part.time)
        energies = _spread(
            known, lambda part: part.energy, lambda part: part.uncertainty / _COVERAGE
        )
        # A longer step takes more energy: that shows in the time even where a counter is coarse.
        if times.per_step is not None and energies.per_step is not None:
            energies = Spread(max(times.per_step, energies.per_step))
        return cls(times, energies, waiting)

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
        """A step at this setting, as one stay there tells: typical windows, no late steps."""
        piece = Slice([_undelayed(part, self.waiting) for part in piece.typical.parts])
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


@dataclass(frozen=True)
class Stays:
    """What several stays at settings tell together.

    Attributes:
        points: A step at each rung; uncertainties are those of comparing rungs with each other.
        between: Two standard deviations, as a share, of a stay from the others at its setting,
            drift that met all alike left out; `None` if too few settings were visited twice.
        drift: By which share a single stay is off in 19 of 20 cases, drift included.
        quiet: Whether steps hardly vary, and stays neither: nothing disturbs this host.
    """

    points: dict[int, Point]
    between: float | None
    drift: float
    quiet: bool

    @classmethod
    def of(cls, stays: Mapping[int, Sequence[Slice]], knobs: Sequence[object]) -> Stays:
        """All stays, by rung, each setting's in the order of time."""
        noise = Noise.of(piece for pieces in stays.values() for piece in pieces)
        single = {
            rung: [noise.point(knobs[rung], piece) for piece in pieces]
            for rung, pieces in stays.items()
        }
        times = _Rounds.of({rung: [p.time for p in points] for rung, points in single.items()})
        energies = _Rounds.of({rung: [p.energy for p in points] for rung, points in single.items()})
        between = None
        if times.between is not None:
            between = max(times.between, energies.between or 0.0)
        return cls(
            {
                rung: _combined(points, times.value(rung), energies.value(rung), between)
                for rung, points in single.items()
            },
            between,
            max(times.drift, energies.drift),
            quiet=times.again >= _SOME
            and times.drift < _QUIET * _FURTHER * student_factor(times.again)
            and (noise.time.per_step or 0.0) < _EVEN,
        )

    def stated(self) -> dict[int, Point]:
        """The points with uncertainties that hold against the truth."""
        return {rung: _with_drift(point, self.drift) for rung, point in self.points.items()}


@dataclass(frozen=True)
class _Rounds:
    """Values of settings that were visited in rounds; a round shifts all of its values alike."""

    logarithms: Mapping[int, Sequence[float]]
    shifts: Sequence[float]
    between: float | None
    drift: float
    again: int  # stays beyond the first at a setting

    @classmethod
    def of(cls, values: Mapping[int, Sequence[float]]) -> _Rounds:
        logarithms = {
            rung: [math.log(max(value, 1e-300)) for value in each] for rung, each in values.items()
        }
        shifts = [0.0]
        fitted = 0
        for number in range(1, max(map(len, logarithms.values()), default=1)):
            there = [each for each in logarithms.values() if len(each) > number]
            # The shift of a round with only one value in it cannot be told from that value.
            fitted += len(there) > 1
            shifts.append(
                statistics.median(each[number] - _middle(each[:number], shifts) for each in there)
                if len(there) > 1
                else 0.0
            )
        again = [each for each in logarithms.values() if len(each) > 1]
        freedom = sum(len(each) - 1 for each in again)
        rest = [y - shift - _middle(each, shifts) for each in again
                for y, shift in zip(each, shifts, strict=False)]  # fmt: skip
        all_of_it = [y - statistics.fmean(each) for each in again for y in each]
        return cls(
            logarithms,
            shifts,
            # Only to choose what to visit next: after two or three stays, what holds in 19 of 20
            # cases would make everything a contender.
            2 * _root_mean(rest, freedom - fitted) if freedom > fitted else None,
            _FURTHER * student_factor(freedom) * _root_mean(all_of_it, freedom) if freedom else 0.0,
            freedom,
        )

    def value(self, rung: int) -> float:
        return math.exp(_middle(self.logarithms[rung], self.shifts))


def _middle(values: Sequence[float], shifts: Sequence[float]) -> float:
    return statistics.median(y - shift for y, shift in zip(values, shifts, strict=False))


def _root_mean(values: Iterable[float], freedom: int) -> float:
    return math.sqrt(math.fsum(v * v for v in values) / freedom)


def _combined(points: Sequence[Point], time: float, energy: float, between: float | None) -> Point:
    if len(points) == 1:
        return points[0]
    root = math.sqrt(len(points))
    return replace(
        points[0],
        time=time,
        energy=energy if points[0].energy else 0.0,
        time_uncertainty=max(
            statistics.fmean(p.time_uncertainty or 0.0 for p in points), (between or 0.0) * time
        )
        / root,
        energy_uncertainty=max(
            statistics.fmean(p.energy_uncertainty or 0.0 for p in points), (between or 0.0) * energy
        )
        / root,
        repeats=sum(p.repeats or 1 for p in points),
    )


def _with_drift(point: Point, drift: float) -> Point:
    if not drift:
        return point
    return replace(
        point,
        time_uncertainty=math.hypot(point.time_uncertainty or 0.0, drift * point.time),
        energy_uncertainty=math.hypot(point.energy_uncertainty or 0.0, drift * point.energy),
    )


def _undelayed(part: Taken, waiting: float) -> Taken:
    """A window as if no step had been late."""
    if not part.late:
        return part
    return replace(
        part,
        time=part.time - part.late,
        energy=max(0.0, part.energy - waiting * part.late),
        late=0.0,
    )


def _waiting_power(slices: Sequence[Slice]) -> float:
    """Watts while a step is late: what windows with more lateness take more than others."""
    above = below = power = 0.0
    for piece in slices:
        late = sum(part.late for part in piece.parts) / max(1, piece.steps)
        energy = piece.energy / max(1, piece.steps)
        for part in piece.parts:
            off = part.late / part.steps - late
            above += part.steps * off * (part.energy / part.steps - energy)
            below += part.steps * off * off
            power = max(power, part.energy / part.time)
    return min(power, max(0.0, above / below)) if below > 0 else power / 2


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

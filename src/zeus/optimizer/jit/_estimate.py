"""The uncertainty of a step's time and energy, and how many more steps are needed.

Steps vary similarly at all settings, so the noise seen at one setting applies to the others: the
relative variance per step is pooled, and later settings need fewer steps.

Hosts disturb single steps (late data), single windows and whole stays at a setting (a neighbor,
drift). So late steps and outlying windows are left out, a setting that was visited three times or
more takes the median of its stays, and stays of the same round are compared with each other: drift
affects all of them equally.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zeus._student import student_factor
from zeus.frontier import Point
from zeus.optimizer.jit._segment import SegmentResult

# Standard deviations in the uncertainty of a measurement.
_COVERAGE = 2.4
# A window was disturbed if it deviates from the median one by more than this share of it, and by
# more than this many times the typical deviation.
_OUTLYING = 0.12
_OUTLYING_DEVIATIONS = 6.0
# A host is quiet if stays at the same setting differ by less than `_QUIET` (a standard deviation,
# as a share) over at least `_SOME` repeated stays, and single steps by less than `_EVEN`.
_QUIET = 0.001
_SOME = 2
# Compared settings may be further apart in time than stays at the same setting, and drift more.
_FURTHER = 1.3
_EVEN = 0.01


@dataclass
class SettingSamples:
    """The measurements of one stay at a setting."""

    parts: list[SegmentResult] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Number of training steps."""
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
        """Uncertainty of the measured energy in joules, without variation between steps."""
        together = next((p.together for p in reversed(self.parts) if p.together is not None), None)
        if together is not None:
            return together
        return math.sqrt(sum(part.uncertainty**2 for part in self.parts))

    @property
    def torn(self) -> bool:
        """Whether there are only two windows, and one of them is an outlier."""
        if len(self.parts) != 2:
            return False
        first, second = ((part.time - part.late) / part.steps for part in self.parts)
        return abs(first - second) > _OUTLYING * min(first, second)

    @property
    def typical(self) -> SettingSamples:
        """The stay without outlying windows, if there are enough to identify them."""
        if len(self.parts) < 3:
            return self
        times = [(part.time - part.late) / part.steps for part in self.parts]
        median = statistics.median(times)
        usual = statistics.median(abs(time - median) for time in times)
        bound = max(_OUTLYING * median, _OUTLYING_DEVIATIONS * usual)
        return SettingSamples(
            [
                part
                for part, time in zip(self.parts, times, strict=True)
                if abs(time - median) <= bound
            ]
        )

    @property
    def highest_power(self) -> float:
        """Highest average power of any GPU in any part, in watts."""
        return max(part.highest_power for part in self.parts)


@dataclass(frozen=True)
class Spread:
    """Relative uncertainty (19 of 20 cases) of the mean over some steps.

    Attributes:
        per_step: Uncertainty of a single step; divide by the root of n for a mean over n steps.
            `None` if no setting was measured twice.
    """

    per_step: float | None

    def of_mean(self, steps: int) -> float | None:
        """Return the relative uncertainty of the mean over `steps` steps."""
        return None if self.per_step is None else self.per_step / math.sqrt(steps)


@dataclass(frozen=True)
class Noise:
    """How much steps vary in time and in energy.

    Attributes:
        time: Spread of the time.
        energy: Spread of the energy.
        waiting: Power of all GPUs while a step is late, in watts.
    """

    time: Spread
    energy: Spread
    waiting: float = 0.0

    @classmethod
    def of(cls, stays: Iterable[SettingSamples]) -> Noise:
        """Estimate the noise from all stays together."""
        waiting = _waiting_power(stays := [samples.typical for samples in stays])
        known = [
            SettingSamples([_undelayed(part, waiting) for part in samples.parts])
            for samples in stays
        ]
        times = _spread(known, lambda part: part.time)
        energies = _spread(
            known, lambda part: part.energy, lambda part: part.uncertainty / _COVERAGE
        )
        # A longer step takes more energy: that shows in the time even where a counter is coarse.
        if times.per_step is not None and energies.per_step is not None:
            energies = Spread(max(times.per_step, energies.per_step))
        return cls(times, energies, waiting)

    def uncertainty(self, samples: SettingSamples) -> float:
        """Return the larger of the relative uncertainties of a step's time and energy."""
        of_time = self.time.of_mean(samples.steps) or 0.0
        return max(
            of_time, self._energy_uncertainty(samples) / samples.energy if samples.energy else 0.0
        )

    def steps_for(self, precision: float, samples: SettingSamples) -> int:
        """Return the total steps after which a stay should be known to this share."""
        varying = max(
            self.time.of_mean(samples.steps) or 0.0, self.energy.of_mean(samples.steps) or 0.0
        )
        # Variation between steps shrinks by the root; the uncertainty at a window's ends is the
        # same for a long window as for a short one, and one more window is to come.
        needed = (varying / precision) ** 2
        if samples.energy:
            parts = len(samples.parts)
            at_ends = samples.energy_uncertainty / samples.energy * math.sqrt((parts + 1) / parts)
            needed = max(needed, at_ends / precision)
        return math.ceil(samples.steps * needed)

    def point(self, knob: object, samples: SettingSamples) -> Point:
        """Return a step at this setting by one stay there: typical windows, no late steps."""
        samples = SettingSamples([_undelayed(part, self.waiting) for part in samples.typical.parts])
        steps = samples.steps
        time = samples.time / steps
        of_time = self.time.of_mean(steps)
        return Point(
            knob,
            time,
            samples.energy / steps,
            None if of_time is None else of_time * time,
            self._energy_uncertainty(samples) / steps,
            repeats=len(samples.parts),
        )

    def _energy_uncertainty(self, samples: SettingSamples) -> float:
        varying = (self.energy.of_mean(samples.steps) or 0.0) * samples.energy
        return math.hypot(varying, samples.energy_uncertainty)


@dataclass(frozen=True)
class Stays:
    """The combined results of several stays at settings.

    Attributes:
        points: A step at each rung; uncertainties apply to comparisons between rungs.
        between: Two standard deviations, as a share, of a stay from the others at its setting,
            without common drift; `None` if too few settings were visited twice.
        drift: Relative error of a single stay in 19 of 20 cases, drift included.
        quiet: Whether neither steps nor stays vary much: nothing disturbs this host.
    """

    points: dict[int, Point]
    between: float | None
    drift: float
    quiet: bool

    @classmethod
    def of(cls, stays: Mapping[int, Sequence[SettingSamples]], knobs: Sequence[object]) -> Stays:
        """Combine all stays, given by rung and in order of time."""
        noise = Noise.of(samples for at_rung in stays.values() for samples in at_rung)
        single = {
            rung: [noise.point(knobs[rung], samples) for samples in at_rung]
            for rung, at_rung in stays.items()
        }
        times = _Rounds.of({rung: [p.time for p in points] for rung, points in single.items()})
        energies = _Rounds.of({rung: [p.energy for p in points] for rung, points in single.items()})
        between = None
        if times.between is not None:
            between = max(times.between, energies.between or 0.0)
        return cls(
            {
                rung: _combined_point(points, times.value(rung), energies.value(rung), between)
                for rung, points in single.items()
            },
            between,
            max(times.drift, energies.drift),
            quiet=times.again >= _SOME
            and times.drift < _QUIET * _FURTHER * student_factor(times.again)
            and (noise.time.per_step or 0.0) < _EVEN,
        )

    def stated(self) -> dict[int, Point]:
        """Return the points with uncertainties of the absolute values, drift included."""
        return {rung: _with_drift(point, self.drift) for rung, point in self.points.items()}


@dataclass(frozen=True)
class _Rounds:
    """Values of settings visited in rounds; each round shifts all of its values equally."""

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
            # The shift of a round with only one value cannot be separated from that value.
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
            # Only to choose what to visit next: after two or three stays, a bound for 19 of 20
            # cases would make every setting a contender.
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


def _combined_point(
    points: Sequence[Point], time: float, energy: float, between: float | None
) -> Point:
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


def _undelayed(part: SegmentResult, waiting: float) -> SegmentResult:
    """Return a window as if no step had been late."""
    if not part.late:
        return part
    return replace(
        part,
        time=part.time - part.late,
        energy=max(0.0, part.energy - waiting * part.late),
        late=0.0,
    )


def _waiting_power(stays: Sequence[SettingSamples]) -> float:
    """Return the watts while a step is late: regression of energy on lateness over windows."""
    above = below = power = 0.0
    for samples in stays:
        late = sum(part.late for part in samples.parts) / max(1, samples.steps)
        energy = samples.energy / max(1, samples.steps)
        for part in samples.parts:
            off = part.late / part.steps - late
            above += part.steps * off * (part.energy / part.steps - energy)
            below += part.steps * off * off
            power = max(power, part.energy / part.time)
    return min(power, max(0.0, above / below)) if below > 0 else power / 2


def _spread(
    stays: Iterable[SettingSamples],
    value: Callable[[SegmentResult], float],
    off: Callable[[SegmentResult], float] = lambda _: 0.0,
) -> Spread:
    """Return how much steps vary.

    Args:
        stays: The measurements.
        value: Returns the time or energy of a part.
        off: Returns the standard deviation of the measurement alone: it makes parts differ too,
            but does not come from steps.
    """
    squares, freedom = 0.0, 0
    for samples in stays:
        total, steps = sum(value(part) for part in samples.parts), samples.steps
        if len(samples.parts) < 2 or total <= 0:
            continue
        mean = total / steps
        for part in samples.parts:
            # The variance of a part's mean over n steps is 1/n of a step's: n undoes that.
            seen = (value(part) / part.steps / mean - 1) ** 2
            expected = (off(part) / part.steps / mean) ** 2 * (1 - part.steps / steps)
            squares += part.steps * (seen - expected)
        freedom += len(samples.parts) - 1
    if freedom == 0:
        return Spread(None)
    return Spread(student_factor(freedom) * math.sqrt(max(0.0, squares) / freedom))

"""The sweep over settings, from the highest down, until the objective can only get worse.

A sweep never ends above the job's power: limits there are equivalent, and any difference is noise.
It ends where limits bind, and where the objective is settled at two rungs in a row, so that one
probe further down has confirmed it. Then settings that may still be the best are visited again in
turns, until one of them is known to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zeus.frontier import Point
from zeus.frontier._point import combined_uncertainty
from zeus.optimizer.jit._estimate import Noise, SettingSamples, Stays
from zeus.optimizer.jit._segment import Segment, SegmentResult
from zeus.optimizer.jit._segment_lengths import (
    BUDGET,
    LONGEST,
    PRECISION,
    SETTLE,
    STAY,
    WARM_UP,
    SegmentLengths,
)

# Two settings are the same to the job if time and energy differ by no more than this share, or by
# no more than twice the uncertainty: they should be the same, and on a plateau noise alone would
# resemble a valley and end the sweep.
_SAME = 0.003
_UNCERTAINTIES = 2
# Uncertainties hold in 19 of 20 cases, and a sweep makes more decisions than that. So they are
# widened by this factor when it checks whether to end.
_CAUTION = 1.5
# Hosts drift by about this share between settings a few rungs apart, which no single visit can
# detect.
_DRIFT = 0.01
# Settings that are certainly worse need to be known only to this share.
_ROUGHLY = 0.005
_VERY_ROUGHLY = 0.06
# A power limit this far above the job's average power has no effect, unless power is bursty.
_HEADROOM = 1.1
# A limit binds if the job draws at least `_CAPPED` of it; or if it is at most `_BELOW_DRAW` of the
# job's highest power at any limit; or, as a bursty job never reaches a limit on average, if the job
# draws at most `_DRAWING_LESS` of that power and is slower by the factor `_SLOWED`.
_CAPPED = 0.95
_BELOW_DRAW = 0.85
_DRAWING_LESS = 0.88
_SLOWED = 1.03
# A first part that is off by more than this share of the following ones was still warming up.
_UNSTEADY = 0.03
_MAX_UNSTEADY = 20
# Maximum number of settings measured again because they were slower than a lower one.
_MAX_FORGOTTEN = 4
# Maximum rungs of a first sweep; on a longer ladder, those around the best are filled in later.
_MAX_RUNGS = 13
# A stay may have been disturbed throughout by about this share, until a second one agrees, or until
# the others have shown that the host is quiet.
_DISTURBED = 0.035
_DISAGREEING = 0.02
# Settings that differ by less than this are equally good.
_EQUALLY_GOOD = 0.003
# Maximum visits of one setting; and minimum repeated visits, whatever their duration.
_MAX_VISITS = 6
_MIN_VISITS_AGAIN = 2


@dataclass
class SettingSweep:
    """A sweep down a ladder of settings.

    Attributes:
        knobs: The settings, from the highest down; a *rung* is an index into it.
        settled: Returns, for points from the highest setting down, whether no lower one can win.
        lengths: Lengths of segments.
        limits: Watts that each rung allows a GPU, for a ladder of power limits.
        known: Points of a previous run, by rung.
        off_ladder: A rung that the sweep skips: it is not on the ladder.
        gpus: Number of GPUs in the energy of a point.
        select: Returns the point that the objective would choose; `None` if settings are only to
            be measured, not compared with each other.
        stays: Measurements by rung, one for each stay there.
    """

    knobs: Sequence[Any]
    settled: Callable[[Sequence[Point]], bool]
    lengths: SegmentLengths
    limits: Sequence[float] | None = None
    known: Mapping[int, Point] = field(default_factory=dict)
    off_ladder: int | None = None
    gpus: int = 1
    select: Callable[[Sequence[Point]], Point] | None = None
    stays: dict[int, list[SettingSamples]] = field(default_factory=dict)
    _step_time: float | None = field(default=None, init=False)  # seconds, of the latest steps
    _spent: float = field(default=0.0, init=False)  # seconds of steps so far
    _cached: Stays | None = field(default=None, init=False)  # until `stays` changes

    def run(self) -> Generator[Segment, SegmentResult | None, None]:
        """Yield segments, receive their results, and end when the best setting is known."""
        first = self.next_rung()
        if first is None:
            return
        if self.lengths.wait:
            yield Segment(self.lengths.wait, self.knobs[first], measured=False)
        forgotten = 0
        while (rung := self.next_rung()) is not None:
            yield from self.visit(rung, self.knobs[rung])
            if self.lengths.profile is None:
                for slower in self._slower_above(rung)[: _MAX_FORGOTTEN - forgotten]:
                    forgotten += 1
                    yield from self.visit(slower, self.knobs[slower])
                    self._forget_disturbed(slower)
        if self._comparing:
            yield from self._compare()

    def knows(self, rung: int) -> bool:
        """Return whether a step there is known, measured or from equal neighbors."""
        points = self._points()
        above = max((known for known in points if known <= rung), default=None)
        return rung in points or (above is not None and self._between_equals(rung, above, points))

    def visit(self, rung: int, setting: Any) -> Generator[Segment, SegmentResult | None, None]:
        """Let the GPUs settle at a setting, then measure it.

        Args:
            rung: Its rung.
            setting: The value to set; `None` for the one before the run.
        """
        if self._step_time is None and self.lengths.warmup is None:
            self._step_time = yield from self._warm_up(setting)
        else:
            settling = self.lengths.settling(self._step_time)
            if settling:
                # The very first steps are skipped as well, but show how long steps are.
                unknown = self._step_time is None and self.lengths.profile is None
                self._spent += settling * (self._step_time or 0.0)
                result = yield Segment(settling, setting, measured=unknown)
                if unknown and result is not None:
                    self._step_time = result.time / result.steps
        yield from self._measure(rung, setting)

    def points(self) -> list[Point]:
        """Return the known points, from the highest setting down."""
        return list(dict(sorted({**self.known, **self._combined().stated()}.items())).values())

    def next_rung(self) -> int | None:
        """Return the rung to measure next; `None` if no lower setting can win, or all are known."""
        points = self._points()
        prefix: list[int] = []
        last: int | None = None
        for rung in range(len(self.knobs)):
            if rung in points:
                prefix.append(rung)
                last = rung
            elif rung == self.off_ladder or self._is_skipped(rung):
                continue
            elif last is None:
                return rung
            elif not self._between_equals(rung, last, points):
                if self._surely_settled(prefix, points):
                    return None
                return self._lowest_without_effect(rung, last, points)
        return None

    # --- internal ---------------------------------------------------------------------------

    def _surely_settled(self, prefix: Sequence[int], points: Mapping[int, Point]) -> bool:
        """Return whether no lower setting can win, beyond what noise explains.

        Args:
            prefix: All known rungs down to the one in question.
            points: All known points: those further down may contradict a rise.
        """
        cautious = [_widened(points[rung]) for rung in prefix]
        below = [_widened(point) for rung, point in points.items() if rung > prefix[-1]]
        if not self.settled(cautious) or (below and not self.settled([*cautious, *below])):
            return False
        if self.limits is not None:
            if not all(self._binds(rung, points) for rung in prefix[-2:]):
                return False
            # One probe further down; where the very first limit binds, nothing is faster than it.
            return len(prefix) == 1 or self.settled(cautious[:-1])
        # Settings without effect are not past the valley, and fewer than three points show none.
        return len(prefix) < 3 or not _same(points[prefix[0]], points[prefix[-1]])

    def _surely_worse(self, rung: int, samples: SettingSamples, noise: Noise) -> bool:
        """Return whether a setting is worse than another: one more like it would end the sweep."""
        if self.lengths.profile is not None or not samples.parts:
            return False
        above = [point for known, point in self._points().items() if known < rung]
        here = noise.point(self.knobs[rung], samples)
        return len(above) > 0 and self.settled([*map(_widened, above), *[_widened(here)] * 2])

    def _binds(self, rung: int, points: Mapping[int, Point]) -> bool:
        """Return whether a limit binds: without it the job would draw more power."""
        assert self.limits is not None
        draws = {known: self._draw(known, point) for known, point in points.items()}
        limit, draw = self.limits[rung], max(draws.values())
        if draws[rung] >= _CAPPED * limit or limit <= _BELOW_DRAW * draw:
            return True
        fastest = min(point.time for known, point in points.items() if known <= rung)
        return draws[rung] <= _DRAWING_LESS * draw and points[rung].time >= _SLOWED * fastest

    def _draw(self, rung: int, point: Point) -> float:
        """Return the highest power of any GPU in watts; the average, where only that is known."""
        if rung in self.stays:
            return max(samples.highest_power for samples in self.stays[rung])
        return point.average_power / self.gpus

    def _is_skipped(self, rung: int) -> bool:
        """Return whether a rung of a long ladder is skipped in the first sweep."""
        if not self._comparing:
            return False
        stride = -(-len(self.knobs) // _MAX_RUNGS)
        return rung % stride != 0 and rung != len(self.knobs) - 1

    @property
    def _comparing(self) -> bool:
        """Whether settings are visited again: not if the user sets the number of steps."""
        return self.select is not None and self.lengths.profile is None

    def _combined(self) -> Stays:
        if self._cached is None:
            self._cached = Stays.of(self.stays, self.knobs)
        return self._cached

    def _points(self) -> dict[int, Point]:
        return dict(sorted({**self.known, **self._combined().points}.items()))

    # --- settings that may be the best ------------------------------------------------------

    def _compare(self) -> Generator[Segment, SegmentResult | None, None]:
        """Revisit settings that may be the best, in turns, until one of them is known to be."""
        again = 0
        while (rung := self._next_contender()) is not None:
            stay = SETTLE + max(STAY, self._step_time or 0.0)
            if again >= _MIN_VISITS_AGAIN and self._spent + stay > BUDGET:
                return
            again += rung in self.stays
            yield from self.visit(rung, self.knobs[rung])
            # The apparent end may have been noise, as a second visit may show.
            if (lower := self.next_rung()) is not None and self._spent < BUDGET:
                yield from self.visit(lower, self.knobs[lower])

    def _next_contender(self) -> int | None:
        """Return the rung to visit again; `None` if the best is known."""
        points = self._points()
        best = self._chosen(points)
        unknown = self._unknown_beside(best, points)
        if unknown is not None:
            return unknown
        contenders = [rung for rung in points if rung == best or self._may_win(rung, best, points)]
        visits = {rung: len(self.stays.get(rung, ())) for rung in contenders if rung in self.stays}
        if not visits or (len(contenders) == 1 and visits.get(best, 2) >= 2):
            return None
        if len(visits) == 1 and best in visits and self._combined().between is None:
            # No other setting comes near; one more visit confirms that this was no accident.
            return best if visits[best] < 2 else None
        rung = min(visits, key=lambda rung: (visits[rung], abs(rung - best), rung))
        return rung if visits[rung] < _MAX_VISITS else None

    def _unknown_beside(self, best: int, points: Mapping[int, Point]) -> int | None:
        """Return a skipped rung of a long ladder between the best and its neighbors, if any."""
        above = max((rung for rung in points if rung < best), default=best)
        below = min((rung for rung in points if rung > best), default=best)
        for rung in range(above + 1, below):
            if rung not in points and rung != self.off_ladder and self._is_skipped(rung):
                return rung
        return None

    def _may_win(self, rung: int, best: int, points: Mapping[int, Point]) -> bool:
        """Return whether a setting would be chosen within the uncertainty of both."""
        off, best_off = self._uncertainty(rung, points), self._uncertainty(best, points)
        uncertainty = math.hypot(off, best_off)
        if uncertainty <= _EQUALLY_GOOD:
            return False
        better = {**points, rung: _scaled(points[rung], 1 / (1 + uncertainty))}
        worse = {**points, best: _scaled(points[best], 1 + uncertainty)}
        return rung in (self._chosen(better), self._chosen(worse))

    def _uncertainty(self, rung: int, points: Mapping[int, Point]) -> float:
        """Return the relative uncertainty of a setting, compared with others."""
        point, at_rung = points[rung], self.stays.get(rung, ())
        within = max(
            (point.time_uncertainty or 0.0) / point.time,
            (point.energy_uncertainty or 0.0) / point.energy if point.energy else 0.0,
        )
        if self._combined().quiet:
            return within
        if len(at_rung) == 2:
            first, second = (samples.typical for samples in at_rung)
            ratio = (first.time / first.steps) / (second.time / second.steps)
            if abs(ratio - 1) > _DISAGREEING:
                return _DISTURBED
        return within if len(at_rung) > 1 else max(within, _DISTURBED)

    def _chosen(self, points: Mapping[int, Point]) -> int:
        assert self.select is not None
        chosen = self.select(list(points.values())).knob
        return next(rung for rung, point in points.items() if point.knob == chosen)

    # --- one setting ------------------------------------------------------------------------

    def _warm_up(self, setting: Any) -> Generator[Segment, SegmentResult | None, float]:
        """Run steps until the job is warm; returns the seconds of one."""
        steps, spent = 1, 0.0
        while True:
            result = yield Segment(steps, setting)
            assert result is not None
            spent += result.time
            self._spent += result.time
            if spent >= WARM_UP:
                return result.time / result.steps
            steps *= 2

    def _measure(self, rung: int, setting: Any) -> Generator[Segment, SegmentResult | None, None]:
        first = not self.stays
        known = [samples for at_rung in self.stays.values() for samples in at_rung]
        samples = SettingSamples()
        unsteady = 0
        while True:
            noise = Noise.of((*known, samples))
            precision, longest = self._enough(rung, samples, noise)
            steps = self.lengths.next_part(
                samples,
                self._step_time,
                noise,
                first=first,
                precision=precision,
                longest=longest,
            )
            if steps < 1:
                self.stays.setdefault(rung, []).append(samples)
                self._cached = None
                return
            result = yield Segment(steps, setting, continues=bool(samples.parts))
            assert result is not None
            self._spent += result.time
            samples.parts.append(result)
            if first and self.lengths.profile is None and unsteady < _MAX_UNSTEADY:
                unsteady += _forget_unsteady(samples)
            self._step_time = samples.time / samples.steps

    def _enough(self, rung: int, samples: SettingSamples, noise: Noise) -> tuple[float, float]:
        """Return the precision needed for a setting, and the maximum seconds to measure it."""
        worse = self._surely_worse(rung, samples, noise)
        if not self._comparing:
            return _ROUGHLY if worse else PRECISION, LONGEST
        if rung in self.stays:
            return _ROUGHLY if worse else PRECISION, STAY
        # Settings that are certainly worse are usually slow: the fewer steps, the better.
        return (_VERY_ROUGHLY, STAY / 2) if worse else (_ROUGHLY, STAY)

    def _slower_above(self, rung: int) -> list[int]:
        """Return higher settings that were slower in their only stay: perhaps during warm-up."""
        points = self._combined().points
        return [
            above
            for above, at_rung in self.stays.items()
            if above < rung and len(at_rung) == 1 and _surely_slower(points[above], points[rung])
        ]

    def _forget_disturbed(self, rung: int) -> None:
        """Drop the first of two stays if it was slower than the second: it was not typical."""
        noise = Noise.of(self.stays[rung])
        first, second = (noise.point(self.knobs[rung], samples) for samples in self.stays[rung])
        if _surely_slower(first, second):
            del self.stays[rung][0]
            self._cached = None

    def _between_equals(self, rung: int, above: int, points: Mapping[int, Point]) -> bool:
        """Return whether a rung lies between two that are the same to the job, so is the same."""
        below = min((known for known in points if known > rung), default=None)
        return below is not None and _same(points[above], points[below])

    def _lowest_without_effect(self, rung: int, above: int, points: Mapping[int, Point]) -> int:
        """Return the lowest limit that should not affect the job; else the next rung."""
        if self.limits is None or above not in self.stays:
            return rung
        if any(known > rung for known in points):
            return rung  # such a jump was tried from here, and it affected the job
        enough = _HEADROOM * max(samples.highest_power for samples in self.stays[above])
        without_effect = [
            at
            for at in range(rung, len(self.knobs))
            if self.limits[at] >= enough and at != self.off_ladder and not self._is_skipped(at)
        ]
        return without_effect[-1] if without_effect else rung


def _forget_unsteady(samples: SettingSamples) -> bool:
    """Drop the first part if the following ones agree that it was not representative."""
    first, *rest = samples.parts
    if len(rest) < 2:
        return False
    following = SettingSamples(rest)
    share = (first.time / first.steps) / (following.time / following.steps)
    if abs(share - 1) <= _UNSTEADY:
        return False
    del samples.parts[0]
    return True


def _widened(point: Point) -> Point:
    return replace(
        point,
        time_uncertainty=math.hypot(
            _CAUTION * (point.time_uncertainty or 0.0), _DRIFT * point.time
        ),
        energy_uncertainty=math.hypot(
            _CAUTION * (point.energy_uncertainty or 0.0), _DRIFT * point.energy
        ),
    )


def _scaled(point: Point, factor: float) -> Point:
    return replace(point, time=point.time * factor, energy=point.energy * factor)


def _surely_slower(point: Point, other: Point) -> bool:
    uncertainty = combined_uncertainty(point.time_uncertainty, other.time_uncertainty)
    return point.time - other.time > max(_UNSTEADY * other.time, uncertainty)


def _same(first: Point, second: Point) -> bool:
    """Return whether two settings are the same to the job, within noise."""
    in_time = combined_uncertainty(first.time_uncertainty, second.time_uncertainty)
    in_energy = combined_uncertainty(first.energy_uncertainty, second.energy_uncertainty)
    return abs(second.time - first.time) <= max(
        _SAME * first.time, _UNCERTAINTIES * in_time
    ) and abs(second.energy - first.energy) <= max(_SAME * first.energy, _UNCERTAINTIES * in_energy)

"""Which setting to try next, from the highest down, until the objective can only get worse."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zeus.frontier import Point
from zeus.frontier.point import combined_uncertainty
from zeus.optimizer.jit.estimate import Noise, Slice
from zeus.optimizer.jit.lengths import PRECISION, WARM_UP, Lengths
from zeus.optimizer.jit.stretch import Stretch, Taken

# Two settings are the same to the job if time and energy differ by no more than this share, or by
# no more than twice the uncertainty: they should be the same, and on a plateau noise alone would
# look like a valley and end the walk.
_SAME = 0.003
_DOUBTS = 2
# Uncertainties hold in 19 of 20 cases, and a walk asks more often than that. So it takes them to be
# this much wider when it asks whether to end.
_CAUTION = 1.5
# What is surely worse needs to be known only to this share.
_ROUGHLY = 0.005
# A power limit this far above what the job draws on average is not felt, unless it draws in bursts.
_HEADROOM = 1.1
# A first part that is off by more than this share of the following ones was still warming up.
_UNSTEADY = 0.03
_MOST_UNSTEADY = 20
# Settings that were slower than a lower one, and are measured again: at most so many.
_MOST_FORGOTTEN = 4


@dataclass
class Walk:
    """A walk down a ladder of settings.

    Attributes:
        knobs: The settings, from the highest down; a *rung* is a place in it.
        settled: Tells of points, from the highest setting down, whether no lower one can win.
        lengths: Of stretches.
        limits: Watts that each rung allows a GPU, where the ladder is one of power limits.
        known: Points from before, by rung.
        aside: A rung that the walk passes by: it is not on the ladder.
        slices: What was measured, by rung.
    """

    knobs: Sequence[Any]
    settled: Callable[[Sequence[Point]], bool]
    lengths: Lengths
    limits: Sequence[float] | None = None
    known: Mapping[int, Point] = field(default_factory=dict)
    aside: int | None = None
    slices: dict[int, Slice] = field(default_factory=dict)
    _step_time: float | None = field(default=None, init=False)  # seconds, of the latest steps

    def run(self) -> Generator[Stretch, Taken | None, None]:
        """Yields stretches, is sent what they took, and ends when the best setting is known."""
        first = self.next_rung()
        if first is None:
            return
        if self.lengths.wait:
            yield Stretch(self.lengths.wait, self.knobs[first], measured=False)
        forgotten = 0
        while (rung := self.next_rung()) is not None:
            yield from self.visit(rung, self.knobs[rung])
            if self.lengths.profile is None and forgotten < _MOST_FORGOTTEN:
                forgotten += self._forget_slower_above(rung)

    def knows(self, rung: int) -> bool:
        """Whether it is known what a step takes there, be it from both sides."""
        points = self._points()
        above = max((known for known in points if known <= rung), default=None)
        return rung in points or (above is not None and self._between_equals(rung, above, points))

    def visit(self, rung: int, setting: Any) -> Generator[Stretch, Taken | None, None]:
        """Let the GPUs get used to a setting, then measure it.

        Args:
            rung: Its place.
            setting: What to set for it: `None` for whatever was set before the run.
        """
        if self._step_time is None and self.lengths.warmup is None:
            self._step_time = yield from self._warm_up(setting)
        else:
            settling = self.lengths.settling(self._step_time)
            if settling:
                # The first steps of all are passed by as well, but tell how long steps are.
                unknown = self._step_time is None and self.lengths.profile is None
                taken = yield Stretch(settling, setting, measured=unknown)
                if unknown and taken is not None:
                    self._step_time = taken.time / taken.steps
        yield from self._measure(rung, setting)

    def points(self) -> list[Point]:
        """What is known, from the highest setting down."""
        return list(self._points().values())

    def next_rung(self) -> int | None:
        """The rung to measure next; `None` if no lower setting can win, or all are known."""
        points = self._points()
        prefix: list[Point] = []
        last: int | None = None
        for rung in range(len(self.knobs)):
            if rung in points:
                prefix.append(points[rung])
                last = rung
            elif rung == self.aside:
                continue
            elif last is None:
                return rung
            elif not self._between_equals(rung, last, points):
                if self._surely_settled(
                    prefix, [point for known, point in points.items() if known > rung]
                ):
                    return None
                return self._farthest_unfelt(rung, last, points)
        return None

    # --- inside -----------------------------------------------------------------------------

    def _surely_settled(self, prefix: Sequence[Point], below: Sequence[Point]) -> bool:
        """Whether no lower setting can win, and it is not only noise that says so.

        Args:
            prefix: All points down to the rung in question.
            below: What is known further down: may belie a rise.
        """
        cautious = [_widened(point) for point in prefix]
        if not self.settled(cautious):
            return False
        if below and not self.settled([*cautious, *map(_widened, below)]):
            return False
        # What is not felt yet is not past the valley; and less than three points make none.
        return len(prefix) < 3 or not _same(prefix[0], prefix[-1])

    def _surely_worse(self, rung: int, piece: Slice, noise: Noise) -> bool:
        """Whether a setting is worse than another: one more like it would end the walk."""
        if self.lengths.profile is not None or not piece.parts:
            return False
        above = [point for known, point in self._points().items() if known < rung]
        here = noise.point(self.knobs[rung], piece)
        return len(above) > 0 and self._surely_settled([*above, here, here], ())

    def _points(self) -> dict[int, Point]:
        noise = Noise.of(self.slices.values())
        measured = {
            rung: noise.point(self.knobs[rung], piece) for rung, piece in self.slices.items()
        }
        return dict(sorted({**self.known, **measured}.items()))

    def _warm_up(self, setting: Any) -> Generator[Stretch, Taken | None, float]:
        """Pass steps until they have taken a while; returns the seconds of one."""
        steps, spent = 1, 0.0
        while True:
            taken = yield Stretch(steps, setting)
            assert taken is not None
            spent += taken.time
            if spent >= WARM_UP:
                return taken.time / taken.steps
            steps *= 2

    def _measure(self, rung: int, setting: Any) -> Generator[Stretch, Taken | None, None]:
        first = not self.slices
        piece = Slice()
        unsteady = 0
        while True:
            noise = Noise.of((*self.slices.values(), piece))
            enough = _ROUGHLY if self._surely_worse(rung, piece, noise) else PRECISION
            steps = self.lengths.next_part(
                piece, self._step_time, noise, first=first, precision=enough
            )
            if steps < 1:
                self.slices[rung] = piece
                return
            taken = yield Stretch(steps, setting)
            assert taken is not None
            piece.parts.append(taken)
            if first and self.lengths.profile is None and unsteady < _MOST_UNSTEADY:
                unsteady += _forget_unsteady(piece)
            self._step_time = piece.time / piece.steps

    def _forget_slower_above(self, rung: int) -> int:
        """Drop settings above that were slower: so they were measured before the job was warm."""
        noise = Noise.of(self.slices.values())
        here = noise.point(self.knobs[rung], self.slices[rung])
        slower = [
            above
            for above, piece in self.slices.items()
            if above < rung and _surely_slower(noise.point(self.knobs[above], piece), here)
        ]
        for above in slower:
            del self.slices[above]
        return len(slower)

    def _between_equals(self, rung: int, above: int, points: Mapping[int, Point]) -> bool:
        """Whether a rung lies between two that are the same to the job, and so is as they are."""
        below = min((known for known in points if known > rung), default=None)
        return below is not None and _same(points[above], points[below])

    def _farthest_unfelt(self, rung: int, above: int, points: Mapping[int, Point]) -> int:
        """The lowest limit that the job should not feel; without such, the very next rung."""
        if self.limits is None or above not in self.slices:
            return rung
        if any(known > rung for known in points):
            return rung  # such a jump has been tried from here, and the job did feel it
        enough = _HEADROOM * self.slices[above].highest_power
        unfelt = [
            at
            for at in range(rung, len(self.knobs))
            if self.limits[at] >= enough and at != self.aside
        ]
        return unfelt[-1] if unfelt else rung


def _forget_unsteady(piece: Slice) -> bool:
    """Drop the first part if the following ones agree that it was not representative."""
    first, *rest = piece.parts
    if len(rest) < 2:
        return False
    following = Slice(rest)
    share = (first.time / first.steps) / (following.time / following.steps)
    if abs(share - 1) <= _UNSTEADY:
        return False
    del piece.parts[0]
    return True


def _widened(point: Point) -> Point:
    return replace(
        point,
        time_uncertainty=_CAUTION * (point.time_uncertainty or 0.0),
        energy_uncertainty=_CAUTION * (point.energy_uncertainty or 0.0),
    )


def _surely_slower(point: Point, other: Point) -> bool:
    doubt = combined_uncertainty(point.time_uncertainty, other.time_uncertainty)
    return point.time - other.time > max(_UNSTEADY * other.time, doubt)


def _same(first: Point, second: Point) -> bool:
    """Whether two settings that should be the same to the job are so, as far as noise lets see."""
    doubt_of_time = combined_uncertainty(first.time_uncertainty, second.time_uncertainty)
    doubt_of_energy = combined_uncertainty(first.energy_uncertainty, second.energy_uncertainty)
    return abs(second.time - first.time) <= max(_SAME * first.time, _DOUBTS * doubt_of_time) and (
        abs(second.energy - first.energy) <= max(_SAME * first.energy, _DOUBTS * doubt_of_energy)
    )

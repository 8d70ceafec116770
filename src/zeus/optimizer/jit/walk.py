"""Which setting to try next, from the highest down, until the objective can only get worse."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zeus.frontier import Point
from zeus.optimizer.jit.estimate import Noise, Slice
from zeus.optimizer.jit.lengths import WARM_UP, Lengths
from zeus.optimizer.jit.stretch import Stretch, Taken

# Two settings are the same to the job if time and energy differ by no more than this share.
_SAME = 0.003
# A power limit this far above what the job draws on average is not felt, unless it draws in bursts.
_HEADROOM = 1.1
# A first part that is off by more than this share of the following ones was still warming up.
_UNSTEADY = 0.03
_MOST_UNSTEADY = 20


@dataclass
class Walk:
    """A walk down a ladder of settings.

    Attributes:
        knobs: The settings, from the highest down; a *rung* is a place in it.
        settled: Tells of points, from the highest setting down, whether no lower one can win.
        lengths: Of stretches.
        limits: Watts that each rung allows a GPU, where the ladder is one of power limits.
        known: Points from before, by rung.
        slices: What was measured, by rung.
    """

    knobs: Sequence[Any]
    settled: Callable[[Sequence[Point]], bool]
    lengths: Lengths
    limits: Sequence[float] | None = None
    known: Mapping[int, Point] = field(default_factory=dict)
    slices: dict[int, Slice] = field(default_factory=dict)

    def run(self) -> Generator[Stretch, Taken | None, None]:
        """Yields stretches, is sent what they took, and ends when the best setting is known."""
        if self.next_rung() is None:
            return
        if self.lengths.wait:
            yield Stretch(self.lengths.wait, self.knobs[0], measured=False)
        step_time = 1.0
        if self.lengths.needs_step_time:
            step_time = yield from self._warm_up()
        while (rung := self.next_rung()) is not None:
            settling = self.lengths.settling(step_time)
            if settling:
                yield Stretch(settling, self.knobs[rung], measured=False)
            step_time = yield from self._measure(rung, step_time)

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
            elif last is None:
                return rung
            elif not self._between_equals(rung, last, points):
                if self.settled(prefix):
                    return None
                return self._farthest_unfelt(rung, last, points)
        return None

    # --- inside -----------------------------------------------------------------------------

    def _points(self) -> dict[int, Point]:
        noise = Noise.of(self.slices.values())
        measured = {
            rung: noise.point(self.knobs[rung], piece) for rung, piece in self.slices.items()
        }
        return dict(sorted({**self.known, **measured}.items()))

    def _warm_up(self) -> Generator[Stretch, Taken | None, float]:
        """Pass steps until they have taken a while; returns the seconds of one."""
        steps, spent = 1, 0.0
        while True:
            taken = yield Stretch(steps, self.knobs[0])
            assert taken is not None
            spent += taken.time
            if spent >= WARM_UP:
                return taken.time / taken.steps
            steps *= 2

    def _measure(self, rung: int, step_time: float) -> Generator[Stretch, Taken | None, float]:
        first = not self.slices
        piece = Slice()
        unsteady = 0
        while True:
            noise = Noise.of((*self.slices.values(), piece))
            steps = self.lengths.next_part(piece, step_time, noise, first=first)
            if steps < 1:
                self.slices[rung] = piece
                return step_time
            taken = yield Stretch(steps, self.knobs[rung])
            assert taken is not None
            piece.parts.append(taken)
            if first and self.lengths.profile is None and unsteady < _MOST_UNSTEADY:
                unsteady += _forget_unsteady(piece)
            step_time = piece.time / piece.steps

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
        unfelt = [at for at in range(rung, len(self.knobs)) if self.limits[at] >= enough]
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


def _same(first: Point, second: Point) -> bool:
    return (
        abs(second.time - first.time) <= _SAME * first.time
        and abs(second.energy - first.energy) <= _SAME * first.energy
    )

"""What windows of each name draw, learned from every refresh of a sensor.

The power of a GPU is modeled as

    level[names of the open windows] + deviation[segment] + fast(t) + slow(t)

Levels are learned jointly, because a refresh often covers several segments; a deviation is how much
one segment differs from others of its kind, and how much that is, is learned per kind. Both ripples
are stationary with an exponential correlation: a fast one within a segment, as kernels come and go,
and a slow one that goes on across edges, as heat does. All of it is Gaussian, so an energy, which
is an integral of power, has a mean and a variance given any other integrals: see `conditioned`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from zeus.monitor.edges import Names, Piece

_FAST, _SLOW = 0.01, 0.3  # seconds over which ripples are correlated
_MAX_LEVELS = 16
_NEW_LEVEL = 0.35  # of the power limit: how far a name that was never seen may be from the last
_NEW_DEVIATION = 0.1  # of the power limit: how much segments of such a name may differ
_LEAST_DEVIATION = 0.002  # of the level
_LEAST_FAST, _LEAST_SLOW = 0.03, 0.0075  # of the level
_DRIFT = 0.002  # of the level, by which it may have moved from segment to segment
_FOLLOW = 0.05  # of the variance of deviations, likewise: what varies much may have moved
_MEMORY = 30.0  # refreshes over which a ripple is learned
_SHARED = 6.0  # refreshes that what all names have in common counts for
_SURPRISE = 4.0  # standard deviations, from which a level is doubted


@dataclass
class Integral:
    """Energy between two instants, as a sensor tells it.

    Attributes:
        pieces: The segments that it covers.
        joules: Told.
        variance: Of what is told, in joules squared.
        counted: Whether it is from the energy counter; else from a power meter.
    """

    pieces: Sequence[Piece]
    joules: float
    variance: float
    counted: bool = True

    @property
    def begin(self) -> float:
        """Instant."""
        return self.pieces[0].begin

    @property
    def end(self) -> float:
        """Instant."""
        return self.pieces[-1].end


class Sizes(NamedTuple):
    """Pieces, as their covariance with others needs them.

    Attributes:
        lengths: Seconds by level.
        weights: Covariance of each level with the energy of the pieces.
        slow: Joules of the slow ripple, as a standard deviation.
        middle: Instant.
        segments: By number: begin, end, variance of the deviation and of the fast ripple.
    """

    lengths: list[float]
    weights: list[float]
    slow: float
    middle: float
    segments: dict[int, tuple[float, float, float, float]]

    def covariance(self, other: Sizes) -> float:
        """Of the energies, in joules squared."""
        total = _dot(self.lengths, other.weights)
        total += self.slow * other.slow * math.exp(-abs(self.middle - other.middle) / _SLOW)
        for segment, (begin, end, deviation, fast) in self.segments.items():
            shared = other.segments.get(segment)
            if shared is not None:
                total += deviation * (end - begin) * (shared[1] - shared[0])
                total += fast * _correlated(begin, end, shared[0], shared[1], _FAST)
        return total


class Ripple:
    """The variance of a ripple per name, leaning on that of all names until there is enough."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._sums: dict[Names, tuple[float, float]] = {}
        self._all = (0.0, 0.0)

    def add(self, names: Names, variance: float) -> None:
        """One more estimate of it."""
        keep = 1 - 1 / _MEMORY
        # One outlier must not drown all that was learned before.
        variance = min(variance, 100 * self.variance(names) + 1.0)
        total, count = self._sums.get(names, (0.0, 0.0))
        self._sums[names] = total * keep + variance, count * keep + 1
        self._all = self._all[0] * keep + variance, self._all[1] * keep + 1

    def variance(self, names: Names) -> float:
        """In watts squared."""
        common = (self._all[0] + self._start) / (self._all[1] + 1)
        total, count = self._sums.get(names, (0.0, 0.0))
        return (total + _SHARED * common) / (count + _SHARED)

    def forget(self, names: Names) -> None:
        """Drop a name."""
        self._sums.pop(names, None)


class Levels:
    """Levels and how they vary, with their joint covariance.

    Args:
        max_power: Watts that the GPU draws at most.
    """

    def __init__(self, max_power: float) -> None:
        self._max_power = max_power
        self._index: dict[Names, int] = {}
        self._mean: list[float] = []
        self._covariance: list[list[float]] = []
        self._deviation: list[float] = []
        self._seen: list[int] = []
        self._used: dict[Names, float] = {}
        self._last: Names | None = None
        self.fast = Ripple((0.02 * max_power) ** 2)
        self.slow = Ripple((0.02 * max_power) ** 2)

    def snapshot(self) -> Levels:
        """What is known now; ripples are shared."""
        copy = Levels(self._max_power)
        copy._index = dict(self._index)
        copy._mean = list(self._mean)
        copy._covariance = [list(row) for row in self._covariance]
        copy._deviation = list(self._deviation)
        copy._seen = list(self._seen)
        copy._last = self._last
        copy.fast, copy.slow = self.fast, self.slow
        return copy

    def level(self, names: Names) -> tuple[float, float] | None:
        """Watts that are drawn while these windows are open, and their variance, if known."""
        at = self._index.get(names)
        return None if at is None else (self._mean[at], self._covariance[at][at])

    def expected(self, pieces: Sequence[Piece]) -> float:
        """Joules, before anything is told of these very pieces."""
        return sum(self._mean[self._at(p.names)] * (p.end - p.begin) for p in pieces)

    def sizes(self, pieces: Sequence[Piece]) -> Sizes:
        """What the covariance with other pieces needs, worked out once."""
        for p in pieces:
            self._at(p.names)
        lengths = [0.0] * len(self._mean)
        slow, segments = 0.0, {}
        for p in pieces:
            at, length = self._index[p.names], p.end - p.begin
            lengths[at] += length
            slow += length * math.sqrt(self._ripple(self.slow, p.names, _LEAST_SLOW))
            fast = self._ripple(self.fast, p.names, _LEAST_FAST)
            segments[p.segment] = (p.begin, p.end, self._deviation[at], fast)
        weights = [_dot(lengths, row) for row in self._covariance]
        middle = (pieces[0].begin + pieces[-1].end) / 2
        return Sizes(lengths, weights, slow, middle, segments)

    def _ripple(self, ripple: Ripple, names: Names, least: float) -> float:
        return max(ripple.variance(names), (least * self._mean[self._at(names)]) ** 2)

    def _at(self, names: Names) -> int:
        """The place of a name; a new one begins where the last one was."""
        at = self._index.get(names)
        if at is not None:
            return at
        if len(self._index) >= _MAX_LEVELS:
            self._drop(min(self._index, key=lambda known: self._used.get(known, -math.inf)))
        last = self._index.get(self._last) if self._last is not None else None
        at = self._index[names] = len(self._mean)
        self._mean.append(0.3 * self._max_power if last is None else self._mean[last])
        for row in self._covariance:
            row.append(0.0)
        self._covariance.append([0.0] * at + [(_NEW_LEVEL * self._max_power) ** 2])
        self._deviation.append((_NEW_DEVIATION * self._max_power) ** 2)
        self._seen.append(0)
        return at

    def _drop(self, names: Names) -> None:
        at = self._index.pop(names)
        for numbers in (self._mean, self._deviation, self._seen):
            del numbers[at]
        del self._covariance[at]
        for row in self._covariance:
            del row[at]
        self._index = {known: i - (i > at) for known, i in self._index.items()}
        self.fast.forget(names)
        self.slow.forget(names)

    def learn(self, told: Integral, *, again: bool) -> None:
        """Learn from an integral.

        Args:
            told: The integral.
            again: Whether it lies in the same segment as the last: it says nothing new of levels.
        """
        pieces = told.pieces
        for p in pieces:
            self._at(p.names)
            self._used[p.names] = p.end
        lengths: dict[int, float] = {}
        for p in pieces:
            at = self._at(p.names)
            lengths[at] = lengths.get(at, 0.0) + p.end - p.begin
        gains = [
            sum(length * row[at] for at, length in lengths.items()) for row in self._covariance
        ]
        sizes = self.sizes(pieces)
        variance = sizes.covariance(sizes) + told.variance
        surprise = told.joules - self.expected(pieces)
        self._learn_deviations(told, surprise, variance)
        self._last = pieces[-1].names
        if again:
            return
        if surprise * surprise > _SURPRISE**2 * variance:
            # It draws otherwise than it did, as after a change of a knob.
            for at in lengths:
                self._covariance[at][at] += surprise**2 / (told.end - told.begin) ** 2
            gains = [
                sum(length * row[at] for at, length in lengths.items()) for row in self._covariance
            ]
            sizes = self.sizes(pieces)
            variance = sizes.covariance(sizes) + told.variance
        for at, gain in enumerate(gains):
            self._mean[at] += gain * surprise / variance
            row = self._covariance[at]
            for to, other in enumerate(gains):
                row[to] -= gain * other / variance
        for at, length in lengths.items():
            share = length / (told.end - told.begin)
            moved = max((_DRIFT * self._mean[at]) ** 2, _FOLLOW * self._deviation[at])
            self._covariance[at][at] += moved * share

    def _learn_deviations(self, told: Integral, surprise: float, variance: float) -> None:
        """By expectation: what a segment's deviation was, given the surprise, and its doubt."""
        whole = told.end - told.begin
        for p in told.pieces:
            length = p.end - p.begin
            if length < whole / 4:
                continue  # it tells too little
            at = self._at(p.names)
            self._seen[at] += 1
            before = self._deviation[at]
            mean = before * length * surprise / variance
            after = mean * mean + before - (before * length) ** 2 / variance
            rate = max(2 / (self._seen[at] + 1), 0.04) * length / whole
            least = (_LEAST_DEVIATION * abs(self._mean[at]) + 0.02) ** 2
            self._deviation[at] = max(before + rate * (after - before), least)

    def learn_slow(self, names: Names, step: float, width: float) -> None:
        """Learn the slow ripple from the step between two intervals that follow each other."""
        fast = _correlated(0, width, 0, width, _FAST) - _correlated(
            0, width, width, 2 * width, _FAST
        )
        slow = _correlated(0, width, 0, width, _SLOW) - _correlated(
            0, width, width, 2 * width, _SLOW
        )
        explained = self._ripple(self.fast, names, _LEAST_FAST) * fast / width**2
        self.slow.add(names, max(step * step / 2 - explained, 0.0) * width**2 / slow)

    def learn_fast(self, names: Names, off: float, width: float) -> None:
        """Learn the fast ripple from how far a mean over some time is off that over longer."""
        self.fast.add(names, off * off * width**2 / _correlated(0, width, 0, width, _FAST))


def _correlated(a: float, b: float, c: float, d: float, time: float) -> float:
    """The integral of exp(-|s - t| / time) over s in [a, b] and t in [c, d]."""
    if c - b > 8 * time or a - d > 8 * time:
        return 0.0

    def half(u: float) -> float:
        x = abs(u) / time
        return time * time * (x - 1 + math.exp(-x)) if x > 1e-4 else u * u / 2

    return half(b - c) - half(a - c) - half(b - d) + half(a - d)


def conditioned(
    levels: Levels, told: Sequence[Integral], targets: Sequence[Sequence[Piece]]
) -> list[tuple[float, float]]:
    """Mean and variance of energies, given integrals that sensors tell.

    Args:
        levels: What was known before these integrals.
        told: The integrals.
        targets: What is asked for, as pieces of segments.
    """
    for pieces in (*(one.pieces for one in told), *targets):
        levels.expected(pieces)  # all names have their level before sizes are worked out
    sizes = [levels.sizes(one.pieces) for one in told]
    factor: list[list[float]] = []  # Cholesky
    scaled: list[float] = []
    for i, one in enumerate(told):
        row: list[float] = []
        for j in range(i):
            cross = sizes[i].covariance(sizes[j])
            row.append((cross - _dot(row, factor[j])) / factor[j][j])
        own = sizes[i].covariance(sizes[i]) + one.variance
        row.append(math.sqrt(max(own - _dot(row, row), 1e-12)))
        factor.append(row)
        surprise = one.joules - levels.expected(one.pieces)
        scaled.append((surprise - _dot(row, scaled)) / row[i])
    found = []
    for target in targets:
        size = levels.sizes(target)
        weights: list[float] = []
        for i, other in enumerate(sizes):
            cross = size.covariance(other)
            weights.append((cross - _dot(weights, factor[i])) / factor[i][i])
        mean = levels.expected(target) + _dot(weights, scaled)
        variance = size.covariance(size) - _dot(weights, weights)
        found.append((mean, max(variance, 0.0)))
    return found


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total

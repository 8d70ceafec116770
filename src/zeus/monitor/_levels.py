"""Power drawn by windows of each name, learned from every refresh of a sensor.

The power of a GPU is modeled as

    level[names of the open windows] + deviation[segment] + fast(t) + slow(t)

Levels are learned jointly, because a refresh often covers several segments. A deviation is how much
one segment differs from others of its kind; its variance is learned per kind. The fast ripple is
white at the scale of windows, as kernels come and go; the slow one continues across edges, as heat
does. All of it is Gaussian, so an energy, which is an integral of power, has a mean and a variance
given any other integrals: see `conditioned`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from operator import mul
from typing import NamedTuple

from zeus.monitor._edges import Names, Piece

_WHITE = 0.02  # seconds over which the fast ripple is correlated, far less than windows last
_SMOOTH = 0.004  # seconds after which it has changed
_SLOW = 0.3  # seconds over which the slow one is correlated
_MAX_LEVELS = 32  # unless more occur together, as under the many clocks of a pipeline
_NEW_LEVEL = 0.35  # of the power limit: how far a new name's level may be from the last
_NEW_DEVIATION = 0.2  # of the power limit: how much segments of such a name may differ
_MIN_DEVIATION = 0.002  # of the level
_MIN_FAST, _MIN_SLOW = 0.03, 0.0075  # of the level
_HIDDEN = 3.0  # times the observed fast ripple: what repeats in step with a meter is not seen
_DRIFT = 0.002  # of the level, by which it may drift from segment to segment
_FOLLOW = 0.05  # of the variance between segments, likewise: what varies much may have drifted
_MEMORY = 30.0  # refreshes over which a ripple is learned
_SHARED = 6.0  # refreshes; weight of the variance common to all names
_SURPRISE = 4.0  # standard deviations from which a level is doubted
_SIGNIFICANT = 2.0  # squared standard deviations per level, up to which a difference may be chance
_OUTLIER = 25.0  # times the expected square, to which outliers are clipped


class Integral:
    """Energy (J) of pieces of segments as measured by a sensor, and its variance (J²)."""

    __slots__ = ("begin", "end", "joules", "pieces", "variance")

    def __init__(self, pieces: Sequence[Piece], joules: float, variance: float) -> None:
        self.pieces = pieces
        self.begin, self.end = pieces[0].begin, pieces[-1].end
        self.joules = joules
        self.variance = variance


class Terms(NamedTuple):
    """Precomputed terms of pieces, for their covariance with other pieces."""

    expected: float  # prior mean in joules, without measurements of these pieces
    lengths: dict[int, float]  # seconds by level
    weights: list[float]  # covariance of each level with the energy of the pieces
    slow: float  # joules of the slow ripple, as a standard deviation
    # By number: begin, end, variance of the deviation, and variance of the fast ripple per second
    segments: dict[int, tuple[float, float, float, float]]
    first: int  # number of the first segment; `last` is that of the last
    last: int

    def levels(self, other: Terms) -> float:
        """Return the covariance of the energies due to uncertain levels, in joules squared."""
        weights = other.weights
        return sum([length * weights[at] for at, length in self.lengths.items()])

    def covariance(self, other: Terms) -> float:
        """Return the covariance of the energies, in joules squared."""
        total = self.levels(other)
        total += self.slow * other.slow  # the same for all that is near enough to be compared
        segments = other.segments
        if self.last < other.first or other.last < self.first:
            return total
        for segment, (begin, end, deviation, fast) in self.segments.items():
            shared = segments.get(segment)
            if shared is not None:
                one, two = end - begin, shared[1] - shared[0]
                total += deviation * one * two
                since, until, *_ = shared
                if min(end, until) - max(begin, since) > -_SMOOTH:
                    total += fast * (
                        _spread_over(end - since)
                        - _spread_over(end - until)
                        - _spread_over(begin - since)
                        + _spread_over(begin - until)
                    )
        return total


def _spread_over(seconds: float) -> float:
    """Return the second integral of the fast ripple's correlation, a triangle of unit area.

    Its differences are covariances of energies. They must be those of some ripple: otherwise what
    short intervals add up to contradicts a long one, and energies given both are any number.
    """
    seconds = abs(seconds)
    if seconds >= _SMOOTH:
        return seconds / 2 - _SMOOTH / 6
    share = seconds / _SMOOTH
    return seconds * share * (1 / 2 - share / 6)


class Ripple:
    """The variance of a ripple per name, shrunk toward that of all names while data is scarce."""

    def __init__(self, start: float) -> None:
        self.start = start
        self._sums: dict[Names, tuple[float, float]] = {}
        self._all = (0.0, 0.0)

    def add(self, names: Names, variance: float, weight: float = 1.0) -> None:
        """Add an estimate of the variance, which may be negative, with a weight of up to 1."""
        keep = 1 - weight / _MEMORY
        # One outlier must not outweigh everything learned before.
        variance = weight * min(variance, 100 * max(self.variance(names), self.start))
        total, count = self._sums.get(names, (0.0, 0.0))
        self._sums[names] = total * keep + variance, count * keep + weight
        self._all = self._all[0] * keep + variance, self._all[1] * keep + weight

    def variance(self, names: Names) -> float:
        """Return the variance for a name, in watts squared."""
        common = (self._all[0] + self.start) / (self._all[1] + 1)
        total, count = self._sums.get(names, (0.0, 0.0))
        return max((total + _SHARED * common) / (count + _SHARED), 0.0)

    def forget(self, names: Names) -> None:
        """Drop a name."""
        self._sums.pop(names, None)


class Levels:
    """Levels and how they vary, with their joint covariance; `max_power` of the GPU in watts."""

    def __init__(self, max_power: float) -> None:
        self._max_power = max_power
        self._index: dict[Names, int] = {}
        self._mean: list[float] = []
        self._covariance: list[list[float]] = []
        self._deviation: list[float] = []
        self._seen: list[float] = []
        #: Cached results of `_learned_noise`; `None` where they must be recomputed.
        self._noise: list[tuple[float, float, float] | None] = []
        self._used: dict[Names, float] = {}
        self._last: Names | None = None
        self.fast = Ripple((0.02 * max_power) ** 2)
        self.slow = Ripple((0.02 * max_power) ** 2)

    def snapshot(self) -> Levels:
        """Return a copy of the current levels; ripples are shared."""
        copy = Levels.__new__(Levels)
        copy.__dict__.update(self.__dict__)
        copy._index = self._index.copy()
        copy._mean = self._mean.copy()
        copy._covariance = [row.copy() for row in self._covariance]
        copy._deviation = self._deviation.copy()
        copy._seen = self._seen.copy()
        copy._noise = self._noise.copy()
        return copy

    def level(self, names: Names) -> tuple[float, float] | None:
        """Return the watts drawn while these windows are open and their variance, if known."""
        at = self._index.get(names)
        if at is None:
            return None
        return self._mean[at], self._covariance[at][at] + self._deviation[at]

    def ripple(self, names: Names, length: float) -> float:
        """Return the variance of the energy over `length` s in a segment of known mean power."""
        self._make_known({names})
        at = self._index[names]
        slow, _, fast = self._noise[at] or self._learned_noise(at, names)
        return (slow * length) ** 2 + fast * length

    def terms(self, pieces: Sequence[Piece]) -> Terms:
        """Precompute the terms for covariances with other pieces."""
        self.add_names(pieces)
        lengths: dict[int, float] = {}
        segments = {}
        expected = slow = 0.0
        for segment, names, begin, end in pieces:
            at = self._index[names]
            noise = self._noise[at] or self._learned_noise(at, names)
            length = end - begin
            expected += self._mean[at] * length
            lengths[at] = lengths.get(at, 0.0) + length
            slow += length * noise[0]
            segments[segment] = (begin, end, noise[1], noise[2])
        weights = [
            sum([row[at] * part for at, part in lengths.items()]) for row in self._covariance
        ]
        return Terms(expected, lengths, weights, slow, segments, min(segments), max(segments))

    def _learned_noise(self, at: int, names: Names) -> tuple[float, float, float]:
        """Return the slow ripple's standard deviation, and two variances.

        These are of deviations, and of the fast ripple's joules per second in which they are drawn.
        """
        mean = self._mean[at]
        slow = max(self.slow.variance(names), (_MIN_SLOW * mean) ** 2)
        fast = _WHITE * max(_HIDDEN * self.fast.variance(names), (_MIN_FAST * mean) ** 2)
        # Variation that may be slow ripple is attributed to it, as that continues across edges.
        deviation = max(self._deviation[at] - slow, (_MIN_DEVIATION * mean) ** 2)
        noise = self._noise[at] = math.sqrt(slow), deviation, fast
        return noise

    def _make_known(self, wanted: Collection[Names]) -> None:
        """Add names, in place of those that were not used for longest.

        None of the names that are wanted at once is dropped: indices of the others would change,
        and energies of one would count as another's.
        """
        new = [names for names in dict.fromkeys(wanted) if names not in self._index]
        if not new:
            return
        excess = len(self._index) + len(new) - _MAX_LEVELS
        if excess > 0:
            kept = set(wanted)
            free = [known for known in self._index if known not in kept]
            free.sort(key=lambda known: self._used.get(known, -math.inf))
            for known in free[:excess]:
                self._drop(known)
        for names in new:
            self._add(names)

    def _add(self, names: Names) -> None:
        """Add a name, whose level starts at that of the last one."""
        last = self._index.get(self._last) if self._last is not None else None
        at = self._index[names] = len(self._mean)
        self._mean.append(0.3 * self._max_power if last is None else self._mean[last])
        for row in self._covariance:
            row.append(0.0)
        self._covariance.append([0.0] * at + [(_NEW_LEVEL * self._max_power) ** 2])
        self._deviation.append((_NEW_DEVIATION * self._max_power) ** 2)
        self._seen.append(0.0)
        self._noise.append(None)

    def _drop(self, names: Names) -> None:
        at = self._index.pop(names)
        del self._noise[at]
        for numbers in (self._mean, self._deviation, self._seen):
            del numbers[at]
        del self._covariance[at]
        for row in self._covariance:
            del row[at]
        self._index = {known: i - (i > at) for known, i in self._index.items()}
        self.fast.forget(names)
        self.slow.forget(names)

    def index_of(self, names: Names) -> int:
        """Return the index of a known name."""
        return self._index[names]

    def add_names(self, pieces: Sequence[Piece]) -> None:
        """Give every name its index.

        Indices change with names that are added later: give all pieces whose terms are compared.
        """
        self._make_known([piece.names for piece in pieces])

    def distinguish(self, share: float = _NEW_LEVEL) -> None:
        """Expect segments of one kind to differ by at least this share of the power limit."""
        least = (share * self._max_power) ** 2
        self._deviation = [max(deviation, least) for deviation in self._deviation]
        self._noise = [None] * len(self._noise)

    def shrink(self, places: Iterable[int]) -> None:
        """Shrink levels that differ by no more than their uncertainty toward a common one."""
        known = [(at, self._mean[at], 1 / max(self._covariance[at][at], 1e-6)) for at in places]
        if len(known) < 2:
            return
        common = sum(mean * weight for _, mean, weight in known) / sum(each[2] for each in known)
        apart = sum((mean - common) ** 2 * weight for _, mean, weight in known)
        share = max(0.0, 1 - _SIGNIFICANT * (len(known) - 1) / max(apart, 1e-9))
        variance = (1 - share) * sum(self._covariance[at][at] for at, *_ in known) / len(known)
        for at, mean, _ in known:
            self._mean[at] = common + share * (mean - common)
            row = self._covariance[at]
            for to, *_ in known:
                row[to] = share * row[to] + variance

    def learn(self, measured: Integral) -> None:
        """Learn levels, and how much segments differ, from an integral."""
        pieces = measured.pieces
        self.add_names(pieces)
        for piece in pieces:
            self._used[piece.names] = piece.end
        terms = self.terms(pieces)
        variance = terms.covariance(terms) + measured.variance
        surprise = measured.joules - terms.expected
        self._learn_deviations(measured, surprise, variance, terms.levels(terms))
        self._last = pieces[-1].names
        if surprise * surprise > _SURPRISE**2 * variance:
            # Power has changed, as after a change of a knob.
            for at in terms.lengths:
                self._covariance[at][at] += surprise**2 / (measured.end - measured.begin) ** 2
        terms = self.terms(pieces)
        variance = terms.covariance(terms) + measured.variance
        weights = terms.weights
        for at, weight in enumerate(weights):
            gain = weight / variance
            self._mean[at] += gain * surprise
            row = self._covariance[at]
            for to, other in enumerate(weights):
                row[to] -= gain * other
        whole = measured.end - measured.begin
        slow = (terms.slow / whole) ** 2
        for at, length in terms.lengths.items():
            varies = _FOLLOW * (self._deviation[at] + slow)
            moved = max((_DRIFT * self._mean[at]) ** 2, varies)
            self._covariance[at][at] += moved * length / whole

    def _learn_deviations(
        self, measured: Integral, surprise: float, variance: float, unknown: float
    ) -> None:
        """Learn deviations from how far a squared surprise exceeds its explained variance."""
        whole = measured.end - measured.begin
        square = min(surprise * surprise, _OUTLIER * variance)
        lengths: dict[int, tuple[float, float]] = {}
        for piece in measured.pieces:
            at, length = self._index[piece.names], piece.end - piece.begin
            total, squares = lengths.get(at, (0.0, 0.0))
            lengths[at] = total + length, squares + length * length
        for at, (total, squares) in lengths.items():
            if total < whole / 4:
                continue  # too small a part to learn from
            deviation = self._deviation[at]
            found = deviation + (square - variance) / squares
            self._seen[at] += total / whole
            rate = max(1 / (self._seen[at] + 1), 0.04) * total / whole
            if square < 4 * variance:
                # While levels are poorly known, a surprise says nothing about deviations.
                rate *= 1 - min(unknown / variance, 1.0)
            least = (_MIN_DEVIATION * abs(self._mean[at]) + 0.02) ** 2
            self._deviation[at] = max(deviation + rate * (found - deviation), least)
            self._noise[at] = None

    def learn_slow(self, names: Names, step: float, width: float, noise: float) -> None:
        """Learn the slow ripple from the step of mean power (W) between two intervals of `width` s.

        `noise` is the variance of half the step due to uncertain ends of intervals.
        """
        noise += _WHITE / width * self.fast.variance(names)
        unit = _step_variance(width)
        expected = unit * max(self.slow.variance(names), self.slow.start)
        weight = expected / (expected + noise)
        self.slow.add(names, (step * step / 2 - noise) / unit, weight)
        self._noise = [None] * len(self._noise)

    def learn_fast(self, names: Names, off: float, width: float) -> None:
        """Learn the fast ripple from how far a mean over `width` s is off that over longer."""
        self.fast.add(names, off * off * max(width / _WHITE, 1.0))
        self._noise = [None] * len(self._noise)


def _step_variance(width: float) -> float:
    """Return the variance of half the step between adjacent means of a unit slow ripple."""
    decay = math.exp(-width / _SLOW)
    within = 2 * (width / _SLOW - 1 + decay)  # variance of the mean over an interval,
    across = (1 - decay) ** 2  # and its covariance with the next, both over (width / _SLOW)²
    return (within - across) * (_SLOW / width) ** 2


class Posterior(NamedTuple):
    """An energy, given the measurements."""

    mean: float  # in joules
    variance: float  # in joules squared
    shared: float  # the part of the variance due to uncertain levels, which other windows share


def conditioned(
    levels: Levels, measured: Sequence[Integral], targets: Sequence[Sequence[Piece]]
) -> list[Posterior]:
    """Return the energies of targets, given measured integrals and a copy of the levels before."""
    together = [one.pieces for one in measured]
    everything = [piece for pieces in (*together, *targets) for piece in pieces]
    levels.add_names(everything)
    levels.shrink({levels.index_of(piece.names) for piece in everything})
    terms = [levels.terms(one.pieces) for one in measured]
    factor: list[list[float]] = []  # Cholesky
    scaled: list[float] = []
    for i, one in enumerate(measured):
        size = terms[i]
        row: list[float] = []
        for j in range(i):
            below = factor[j]
            row.append((size.covariance(terms[j]) - _dot(row, below)) / below[j])
        own = size.covariance(size) + one.variance
        # It is never known better than it was measured; only rounding says so.
        row.append(math.sqrt(max(own - _dot(row, row), one.variance, 1e-12)))
        factor.append(row)
        scaled.append((one.joules - size.expected - _dot(row, scaled)) / row[i])
    found = []
    for target in targets:
        if not target:
            found.append(Posterior(0.0, 0.0, 0.0))
            continue
        size = levels.terms(target)
        weights: list[float] = []
        for i, other in enumerate(terms):
            weights.append((size.covariance(other) - _dot(weights, factor[i])) / factor[i][i])
        mean = size.expected + _dot(weights, scaled)
        whole = size.covariance(size)
        left = max(whole - _dot(weights, weights), 0.0)
        found.append(Posterior(mean, left, size.levels(size) * left / max(whole, 1e-12)))
    return found


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total

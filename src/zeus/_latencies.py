"""Distributions of latencies: counts in bins, from single requests or a server's histogram.

Bins are 1 % wide, so a percentile is known to half of that however many requests are counted, and
distributions of intervals, replicas and servers add up. Histograms of others have a few wide
buckets; their counts are spread over the bins that a bucket covers, evenly in the logarithm, or
such that they add up to the histogram's sum: of a single request that is its latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

_WIDTH = math.log(1.01)
_SHORTEST = 1e-6  # seconds; what is shorter counts as that
_HALVINGS = 20  # of a bucket, to find where in it requests are


class Latencies:
    """How long requests took, as counts in bins that are 1 % wide.

    Args:
        counts: Number of requests by bin, as `counts` returns them.
    """

    __slots__ = ("_counts", "_total")

    def __init__(self, counts: Mapping[int, float] | None = None) -> None:
        self._counts: dict[int, float] = dict(counts or {})
        self._total = math.fsum(self._counts.values())

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Latencies:
        """Return the distribution of single latencies."""
        made = cls()
        for each in seconds:
            made.add(each)
        return made

    @classmethod
    def from_buckets(
        cls, bounds: Sequence[float], counts: Sequence[float], sum_seconds: float | None = None
    ) -> Latencies:
        """Return the distribution of a histogram.

        Args:
            bounds: Upper bounds of the buckets in seconds, increasing; the last may be infinite,
                which counts as twice the one before.
            counts: Number of requests in each bucket alone, not cumulative.
            sum_seconds: What the requests took together; unknown if `None`, or if requests in
                these buckets cannot take it, as when a histogram was read while it changed.
        """
        covered = []
        low, least, most = _SHORTEST, 0.0, 0.0
        for bound, count in zip(bounds, counts, strict=True):
            high = bound if math.isfinite(bound) else 2 * low
            if count > 0 and high > 0:
                shortest = max(low, high / 4 if low == _SHORTEST else low)
                covered.append((math.log(shortest), math.log(max(high, shortest)), count))
                least += 0.0 if low == _SHORTEST else count * low
                most += count * bound
            low = max(low, high)
        middle, width = 0.5, 1.0
        if sum_seconds is not None and covered and least <= sum_seconds <= most:
            # Where only one request was counted, it took just that long; many fill their buckets.
            width = max(0.0, 1 - 1 / math.fsum(count for _, _, count in covered))
            middle = _middle(covered, width, sum_seconds)
        made = cls()
        for shortest, longest, count in covered:
            begin, end = _narrowed(shortest, longest, middle, width)
            first, last = round(begin / _WIDTH), round(end / _WIDTH)
            share = count / (last - first + 1)
            for index in range(first, last + 1):
                made._count(index, share)
        return made

    def add(self, seconds: float, count: float = 1.0) -> None:
        """Count a request, or several alike."""
        self._count(_bin(seconds), count)

    def _count(self, index: int, count: float) -> None:
        self._counts[index] = self._counts.get(index, 0.0) + count
        self._total += count

    @property
    def total(self) -> float:
        """Number of requests."""
        return self._total

    def counts(self) -> dict[int, float]:
        """Return the number of requests by bin."""
        return dict(self._counts)

    def coarser(self, bins: int) -> Latencies:
        """Return the distribution with `bins` neighboring bins joined, an odd number."""
        joined: dict[int, float] = {}
        for index, count in self._counts.items():
            middle = bins * round(index / bins)
            joined[middle] = joined.get(middle, 0.0) + count
        return Latencies(joined)

    def __add__(self, other: Latencies) -> Latencies:
        joined = Latencies(self._counts)
        joined += other
        return joined

    def __iadd__(self, other: Latencies) -> Self:
        for index, count in other._counts.items():
            self._count(index, count)
        return self

    def percentile(self, percent: float) -> float | None:
        """Return the latency in seconds that `percent` % of requests do not exceed.

        Returns:
            `None` if there was no request.
        """
        if self._total <= 0:
            return None
        wanted = self._total * percent / 100
        reached = 0.0
        for index in sorted(self._counts):
            reached += self._counts[index]
            if reached >= wanted * (1 - 1e-12):
                return _seconds(index)
        return _seconds(max(self._counts))

    @property
    def sum(self) -> float:
        """Seconds of all requests together, to half the width of a bin."""
        return math.fsum(_seconds(index) * count for index, count in self._counts.items())

    def share_above(self, seconds: float) -> float:
        """Return the share of requests that took longer, 0 to 1; 0 if there was none."""
        if self._total <= 0:
            return 0.0
        limit = _bin(seconds)
        above = math.fsum(count for index, count in self._counts.items() if index > limit)
        return above / self._total

    def cumulative(self, bounds: Sequence[float]) -> list[float]:
        """Return how many requests took at most each of some times, which increase."""
        found, below = [], 0.0
        bins = sorted(self._counts.items(), reverse=True)
        for bound in bounds:
            limit = _bin(bound)
            while bins and bins[-1][0] <= limit:
                below += bins.pop()[1]
            found.append(below)
        return found


def _bin(seconds: float) -> int:
    return round(math.log(seconds if seconds > _SHORTEST else _SHORTEST) / _WIDTH)


def _seconds(index: int) -> float:
    return math.exp(index * _WIDTH)


def _narrowed(low: float, high: float, middle: float, width: float) -> tuple[float, float]:
    """Return the part of a bucket, in logarithms, that lies about a point, 0 to 1, within it."""
    half = width * min(middle, 1 - middle)
    return low + (middle - half) * (high - low), low + (middle + half) * (high - low)


def _middle(covered: Sequence[tuple[float, float, float]], width: float, wanted: float) -> float:
    """Return the point about which buckets add up to some seconds, or as close as they can."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle, found = (low + high) / 2, 0.0
        for shortest, longest, count in covered:
            begin, end = _narrowed(shortest, longest, middle, width)
            # The mean of what is spread evenly in the logarithm.
            spread = math.expm1(end - begin) / (end - begin) if end > begin else 1.0
            found += count * math.exp(begin) * spread
        low, high = (middle, high) if found < wanted else (low, middle)
    return (low + high) / 2

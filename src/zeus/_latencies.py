"""Distributions of latencies: counts in bins, from single requests or a server's histogram.

Bins are 1 % wide, so a percentile is known to half of that however many requests are counted, and
distributions of intervals, replicas and servers add up. Histograms of others have a few wide
buckets; their counts are spread evenly (in the logarithm) over the bins that a bucket covers, which
is what is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

_WIDTH = math.log(1.01)
_SHORTEST = 1e-6  # seconds; what is shorter counts as that


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
    def from_buckets(cls, bounds: Sequence[float], counts: Sequence[float]) -> Latencies:
        """Return the distribution of a histogram.

        Args:
            bounds: Upper bounds of the buckets in seconds, increasing; the last may be infinite,
                which counts as twice the one before.
            counts: Number of requests in each bucket alone, not cumulative.
        """
        made = cls()
        low = _SHORTEST
        for bound, count in zip(bounds, counts, strict=True):
            high = bound if math.isfinite(bound) else 2 * low
            if count > 0 and high > 0:
                first, last = _bin(max(low, high / 4 if low == _SHORTEST else low)), _bin(high)
                share = count / (last - first + 1)
                for index in range(first, last + 1):
                    made._count(index, share)
            low = max(low, high)
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

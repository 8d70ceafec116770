"""Exact K-means in one dimension.

In one dimension clusters are intervals, so dynamic programming finds the optimum: the best `k`
clusters of a prefix of the sorted values are the best `k - 1` of a shorter prefix and one more.
There is no random initialization and nothing to repeat.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Floats, Ints


def kmeans(values: Floats, clusters: int) -> Ints:
    """Return the cluster of each value, numbered from the lowest.

    The sum of squared distances to the cluster means is minimal.

    Args:
        values: Values, of which at least as many are different as there are clusters.
        clusters: Number of clusters.
    """
    distinct, place, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) < clusters:
        raise ValueError(
            f"`values` must have at least {clusters} different ones, but has {len(distinct)}"
        )
    spread = _Spread(distinct, count)
    size = len(distinct)
    ends = np.arange(size + 1)
    best = spread.of(np.zeros(size + 1, dtype=np.int64), ends)
    splits: list[Ints] = []
    for _ in range(1, clusters):
        best, split = _next(best, spread, len(splits) + 1)
        splits.append(split)
    cluster = np.zeros(size, dtype=np.int64)
    end = size
    for number in range(clusters - 1, 0, -1):
        end = int(splits[number - 1][end])
        cluster[end:] = np.maximum(cluster[end:], number)
    found: Ints = cluster[place]
    return found


class _Spread:
    """Sum of squared distances to the mean, for any interval of sorted values."""

    def __init__(self, values: Floats, count: Ints) -> None:
        # Centered, or the squares lose the digits that matter.
        centred = values - np.average(values, weights=count)
        self._count = _sums(count.astype(np.float64))
        self._sum = _sums(count * centred)
        self._squares = _sums(count * centred**2)

    def of(self, start: Ints, end: Ints) -> Floats:
        count = np.maximum(self._count[end] - self._count[start], 1.0)
        total = self._sum[end] - self._sum[start]
        spread: Floats = self._squares[end] - self._squares[start] - total**2 / count
        return np.maximum(spread, 0.0)


def _sums(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))


def _next(best: Floats, spread: _Spread, clusters: int) -> tuple[Floats, Ints]:
    """Add one cluster: return the minimum spread of each prefix, and where its last cluster begins.

    The longer the prefix, the later its last cluster begins. So the middle one is solved first and
    bounds the others, and each round solves all that lie halfway between solved ones.

    Args:
        best: Minimum spread of each prefix, with one cluster less.
        spread: Spread of any interval.
        clusters: Number of clusters of `best`.
    """
    size = len(best) - 1
    found = np.full(size + 1, np.inf)
    split = np.zeros(size + 1, dtype=np.int64)
    # Every cluster has a value, so fewer values than clusters have no solution.
    low, high = np.array([clusters + 1]), np.array([size])
    least, most = np.array([clusters]), np.array([size - 1])
    while len(low):
        middle = (low + high) // 2
        until = np.minimum(most, middle - 1)
        lengths = until - least + 1
        begins = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        candidate = np.arange(int(lengths.sum())) - np.repeat(begins - least, lengths)
        end = np.repeat(middle, lengths)
        total = best[candidate] + spread.of(candidate, end)
        minimum = np.minimum.reduceat(total, begins)
        hits = np.flatnonzero(total == np.repeat(minimum, lengths))
        chosen = candidate[hits[np.searchsorted(hits, begins)]]
        found[middle], split[middle] = minimum, chosen
        low, high, least, most = (
            np.concatenate((low, middle + 1)),
            np.concatenate((middle - 1, high)),
            np.concatenate((least, chosen)),
            np.concatenate((chosen, most)),
        )
        open_ = low <= high
        low, high, least, most = low[open_], high[open_], least[open_], most[open_]
    return found, split

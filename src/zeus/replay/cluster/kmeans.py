"""K-means on numbers, solved exactly.

In one dimension clusters are intervals, so the best ones can be found step by step: the best `k`
clusters of the first numbers end with one cluster behind the best `k - 1` of fewer. There is no
starting point to draw and nothing to repeat.
"""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.lanes import Floats, Ints


def kmeans(values: Floats, clusters: int) -> Ints:
    """Cluster of each value, numbered from the lowest, with the least sum of squared distances.

    Args:
        values: With at least as many different ones as there are clusters.
        clusters: How many.
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
    """Sum of squared distances to the mean, of any stretch of sorted values."""

    def __init__(self, values: Floats, count: Ints) -> None:
        # Around the middle, or the squares lose the digits that matter.
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
    """One cluster more: the least spread of the first values, and where the last cluster begins.

    The longer the stretch, the later its last cluster begins. So the middle one is solved first
    and bounds the others, and each round solves all that lie halfway between solved ones.

    Args:
        best: Least spread of each number of first values, with one cluster less.
        spread: Of stretches.
        clusters: How many clusters `best` has.
    """
    size = len(best) - 1
    found = np.full(size + 1, np.inf)
    split = np.zeros(size + 1, dtype=np.int64)
    # Every cluster has a value: fewer values than clusters have no solution.
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

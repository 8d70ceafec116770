"""K-means in one dimension: never worse than anybody's."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.replay.cluster._kmeans import kmeans


def spread(values, cluster):
    return sum(((values[cluster == k] - values[cluster == k].mean()) ** 2).sum()
               for k in np.unique(cluster))  # fmt: skip


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=9), st.integers(1, 4))
def test_it_is_the_best_of_all_ways_to_cut(numbers, clusters):
    values = np.array(numbers, dtype=np.float64)
    if len(set(numbers)) < clusters:
        with pytest.raises(ValueError, match="different ones"):
            kmeans(values, clusters)
        return
    found = kmeans(values, clusters)
    ordered, count = np.sort(values), len(values)
    best = min(
        sum(((part - part.mean()) ** 2).sum() for part in np.split(ordered, cut) if len(part))
        for cut in combinations(range(1, count), clusters - 1)
    )
    assert spread(values, found) == pytest.approx(best, abs=1e-9)
    # Numbered from the lowest, none empty, equal values together.
    assert sorted(set(found)) == list(range(clusters))
    assert (np.diff(found[np.argsort(values, kind="stable")]) >= 0).all()
    assert all(len(set(found[values == value])) == 1 for value in values)


def test_it_is_no_worse_than_a_library_on_long_tails():
    values = np.exp(np.random.default_rng(1).normal(7, 2, 3000))
    cluster = pytest.importorskip("sklearn.cluster")
    other = cluster.KMeans(6, n_init=3, random_state=0).fit(values[:, None])
    assert spread(values, kmeans(values, 6)) <= other.inertia_ * (1 + 1e-9)

"""Distributions of latencies."""

from __future__ import annotations

import random

import pytest

from zeus._latencies import Latencies


def test_percentiles_are_within_half_a_bin():
    generator = random.Random(3)
    seconds = sorted(generator.lognormvariate(-1, 1) for _ in range(10_000))
    found = Latencies.of(seconds)
    for percent in (1, 50, 90, 99, 99.9):
        exact = seconds[round(percent / 100 * len(seconds)) - 1]
        assert found.percentile(percent) == pytest.approx(exact, rel=0.0051)


def test_distributions_add_up():
    generator = random.Random(4)
    parts = [[generator.expovariate(2) for _ in range(100)] for _ in range(5)]
    joined = sum((Latencies.of(part) for part in parts), Latencies())
    together = Latencies.of(second for part in parts for second in part)
    assert joined.counts() == together.counts()
    assert joined.total == 500


def test_share_above_counts_what_took_longer():
    found = Latencies.of([0.1] * 98 + [2.0] * 2)
    assert found.share_above(1.0) == pytest.approx(0.02)
    assert found.share_above(3.0) == 0
    assert found.percentile(99) == pytest.approx(2.0, rel=0.0051)
    assert found.percentile(98) == pytest.approx(0.1, rel=0.0051)


def test_nothing_counted_has_no_percentile():
    assert Latencies().percentile(99) is None
    assert Latencies().share_above(1.0) == 0.0


def test_buckets_are_spread_within_their_bounds():
    found = Latencies.from_buckets([0.1, 1.0, 10.0, float("inf")], [50, 40, 10, 0])
    assert found.total == pytest.approx(100)
    assert found.percentile(50) == pytest.approx(0.1, rel=0.02)
    assert 0.1 < (found.percentile(70) or 0.0) < 1.0
    assert found.share_above(1.0) == pytest.approx(0.1, abs=0.003)
    assert found.percentile(100) == pytest.approx(10.0, rel=0.01)


def test_requests_beyond_the_last_bound_are_counted_as_beyond():
    found = Latencies.from_buckets([1.0, float("inf")], [0, 4])
    assert found.share_above(1.0) == pytest.approx(1.0, abs=0.02)


def test_a_single_request_took_what_its_histogram_adds_up_to():
    found = Latencies.from_buckets([0.1, 0.25, 0.5, float("inf")], [0, 1, 0, 0], 0.17)
    assert found.total == 1
    assert found.percentile(1) == found.percentile(100) == pytest.approx(0.17, rel=0.0051)


@pytest.mark.parametrize("seed", range(4))
def test_requests_in_buckets_add_up_to_the_sum(seed):
    generator = random.Random(seed)
    bounds = [0.01, 0.1, 0.25, 0.5, 1.0, 10.0, float("inf")]
    seconds = [min(9.0, generator.lognormvariate(-1, 1)) for _ in range(2 + 10 * seed)]
    cumulative = [sum(each <= bound for each in seconds) for bound in bounds]
    counts = [count - below for count, below in zip(cumulative, [0, *cumulative], strict=False)]
    found = Latencies.from_buckets(bounds, counts, sum(seconds))
    assert found.sum == pytest.approx(sum(seconds), rel=0.01)
    assert found.total == pytest.approx(len(seconds))
    for bound in bounds[:-1]:  # as exact as the histogram
        above = sum(each > 1.02 * bound for each in seconds)
        assert found.share_above(1.02 * bound) <= (above + 1) / len(seconds) + 0.05
        assert found.cumulative([1.01 * bound])[0] >= sum(each <= bound for each in seconds) - 1e-9


@pytest.mark.parametrize("total", [-1.0, 0.0, 0.05, 0.9, 1e9])
def test_a_sum_that_cannot_be_is_not_believed(total):
    bounds, counts = [0.1, 0.25, 0.5], [0, 2, 0]
    found = Latencies.from_buckets(bounds, counts, total)
    assert found.counts() == Latencies.from_buckets(bounds, counts).counts()

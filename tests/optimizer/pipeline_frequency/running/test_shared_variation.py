"""Which part of the variation belongs to microbatches."""

from __future__ import annotations

import random
import statistics

import pytest

from zeus.optimizer.pipeline_frequency.running._shared_variation import SharedVariation


def learned(share: float, seed: int, microbatches: int = 200, variation: float = 0.05) -> float:
    """Of a forward and a backward of each microbatch."""
    draws, found = random.Random(seed), SharedVariation()
    for _ in range(microbatches):
        common = share**0.5 * draws.gauss(0, variation)
        found.add([common + (1 - share) ** 0.5 * draws.gauss(0, variation) for _ in range(2)])
    return found.share


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.8, 1.0])
def test_the_share_is_found(share):
    found = [learned(share, seed) for seed in range(30)]
    # Below 0 is cut off, so that where nothing is shared some is found.
    assert statistics.mean(found) == pytest.approx(share, abs=0.05)
    assert max(abs(each - share) for each in found) < 0.25


def test_little_is_no_evidence():
    found = SharedVariation()
    for _ in range(19):
        found.add([0.05, 0.05])
        assert found.share == 0.0
    found.add([0.05, 0.05])
    assert found.share == pytest.approx(1.0)


def test_opposite_deviations_share_nothing():
    found = SharedVariation()
    for _ in range(50):
        found.add([0.05, -0.05])
    assert found.share == 0.0


def test_a_single_instruction_has_no_pair():
    found = SharedVariation()
    for _ in range(50):
        found.add([0.05])
        found.add([])
    assert found.share == 0.0


def test_work_that_does_not_vary_shares_nothing():
    found = SharedVariation()
    for _ in range(50):
        found.add([0.0, 0.0])
    assert found.share == 0.0


def test_what_was_long_ago_counts_little():
    draws, found = random.Random(5), SharedVariation()
    for _ in range(3_000):
        deviation = draws.gauss(0, 0.05)
        found.add([deviation, deviation])
    assert found.share > 0.95
    for _ in range(10_000):
        found.add([draws.gauss(0, 0.05), draws.gauss(0, 0.05)])
    assert found.share < 0.1

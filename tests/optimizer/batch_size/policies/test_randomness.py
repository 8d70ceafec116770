"""Random numbers by counting: repeatable, independent, and distributed as they should be."""

from __future__ import annotations

import numpy as np

from zeus.optimizer.batch_size.policies._randomness import normal, uniform


def test_a_number_depends_only_on_its_seed_and_counters():
    many = uniform(np.arange(50)[:, None], 7, np.arange(20))
    assert many.shape == (50, 20)
    assert uniform(13, 7, 4)[0] == many[13, 4]
    assert uniform(13, 8, 4)[0] != many[13, 4]
    assert uniform(4, 7, 13)[0] != many[13, 4]


def test_uniform_numbers_fill_their_range_evenly():
    numbers = uniform(3, np.arange(40_000))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, 20, (0, 1))[0]
    # Chi-squared with 19 degrees of freedom: 43.8 in one of a thousand.
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8


def test_normal_numbers_have_their_moments():
    numbers = normal(np.arange(200)[:, None], 1, np.arange(200)).ravel()
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.std() - 1) < 0.02
    assert abs((numbers**4).mean() - 3) < 0.15


def test_neighbouring_seeds_and_counters_are_unrelated():
    grid = uniform(np.arange(300)[:, None], np.arange(300))
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.015
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.015

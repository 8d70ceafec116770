"""Readings of Figure 6: what chance gives, and whether it explains the published ends."""

from __future__ import annotations

import numpy as np
import pytest
from tests.replay.test_search import table

from paper.lab import Runs
from paper.readings import PUBLISHED, Reading, ends_of


def runs(energy, time, epochs=(4.0, 4.0)):
    """Jobs whose last recurrences take these fractions of the default's energy and time."""
    of = table(epochs=np.array([epochs, (9.0, 9.0)]))
    joules, seconds = of.default_expectation()
    shape = len(energy), 7
    nothing = np.zeros(shape)
    return Runs(
        of,
        cost=nothing,
        energy=np.broadcast_to(np.array(energy)[:, None] * joules, shape),
        time=np.broadcast_to(np.array(time)[:, None] * seconds, shape),
        trials=nothing,
        arm=nothing,
        power=nothing,
    )


def test_jobs_that_are_all_alike_have_certain_ends():
    found = ends_of([runs([0.8], [1.1]), runs([0.3], [0.4])], 3, drawn_default=True)
    assert found.low == pytest.approx([-0.2, -0.7, 0.1, -0.6])
    assert found.high == pytest.approx(found.low)


def test_ends_of_single_jobs_are_further_apart():
    workloads = [runs(np.linspace(0.6, 0.8, 21), np.linspace(0.9, 1.1, 21)) for _ in range(6)]
    one, ten = (ends_of(workloads, jobs, drawn_default=False) for jobs in (1, 10))
    middle = [(low + high) / 2 for low, high in zip(one.low, one.high, strict=True)]
    assert middle[0] > -0.3 + 0.05  # above the mean: the unluckiest of six
    assert middle[1] < -0.3 - 0.05
    for at in range(4):
        assert ten.high[at] - ten.low[at] < one.high[at] - one.low[at]


def test_a_drawn_default_adds_its_own_chance():
    workloads = [runs([0.8], [1.1], epochs=(2.0, 6.0)) for _ in range(6)]
    expected, drawn = (ends_of(workloads, 1, drawn_default=each) for each in (False, True))
    assert expected.low == pytest.approx(expected.high)
    assert drawn.low[0] < drawn.high[0]
    assert drawn.high[0] > -0.2


def test_a_reading_explains_all_ends_or_not():
    around = [end - 0.01 for end in PUBLISHED], [end + 0.01 for end in PUBLISHED]
    assert Reading(*around).likely
    around[1][2] = PUBLISHED[2] - 0.001
    assert not Reading(*around).likely

"""Student's factors are those of the distribution."""

from __future__ import annotations

import pytest

from zeus._student import student_factor

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("freedom", [*range(1, 40), 100, 1000, 10**6])
def test_factors_are_quantiles_of_the_distribution(freedom):
    assert student_factor(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)

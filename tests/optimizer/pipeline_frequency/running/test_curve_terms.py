"""The terms that time and power over the clock are sums of."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from zeus.optimizer.pipeline_frequency.running import _curve_terms as curve_terms
from zeus.optimizer.pipeline_frequency.running._curve_terms import (
    BENDS,
    KNOTS,
    TERMS,
    power_terms,
    precisions,
    row,
    time_terms,
)

SHARES = [1.0, 0.97, 0.9, 0.8, 0.62, 0.5, 0.3]


def value(terms: list[float], factors: list[float]) -> float:
    return math.fsum(term * factor for term, factor in zip(terms, factors, strict=True))


@pytest.mark.parametrize("share", SHARES)
def test_computing_and_waiting_for_memory_are_a_line_without_bends(share):
    """0.8 of the time goes with 1 / clock."""
    line = [2.0, 2.0 * 0.8] + [0.0] * len(KNOTS)
    assert value(time_terms(share), line) == pytest.approx(2.0 * (0.8 / share + 0.2))
    assert value(power_terms(share), [300.0, 180.0] + [0.0] * len(KNOTS)) == pytest.approx(
        120.0 + 180.0 * share
    )


def test_the_first_term_is_the_value_at_the_highest_clock():
    assert time_terms(1.0) == power_terms(1.0) == [1.0] + [0.0] * (TERMS - 1)


def test_a_bend_changes_only_what_is_below_its_knot():
    for number, knot in enumerate(KNOTS):
        for share in SHARES:
            for terms in (time_terms(share), power_terms(share)):
                assert len(terms) == TERMS
                assert (terms[2 + number] > 0) == (share < knot)


def test_knots_are_between_the_clocks_that_plans_use():
    assert list(KNOTS) == sorted(set(KNOTS), reverse=True)
    assert KNOTS[0] < 1
    assert KNOTS[-1] > 0


def test_a_curve_that_may_bend_more_has_less_precise_bends_and_the_same_line():
    found = [precisions(0.05, bend) for bend in sorted(BENDS)]
    for stiff, soft in pairwise(found):
        assert stiff[:2] == soft[:2]
        assert all(a > b for a, b in zip(stiff[2:], soft[2:], strict=True))
    assert {len(each) for each in found} == {TERMS}


def test_precisions_go_with_the_scale():
    """In milliseconds as in seconds: the same relative freedom."""
    for one, other in zip(precisions(0.05, 0.1), precisions(50.0, 0.1), strict=True):
        assert one == pytest.approx(1e6 * other)


def test_a_row_has_the_terms_that_are_not_zero():
    found = row(time_terms(0.87), first=20, by=3.0)
    assert set(found) == {20, 21, 22, 23}  # the line, and the knots at 0.95 and 0.9
    assert found[20] == 3.0
    assert found[23] == pytest.approx(3.0 * (curve_terms.KNOTS[1] - 0.87))

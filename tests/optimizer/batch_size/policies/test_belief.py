"""The curves that are believed in, against what can be worked out in other ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from zeus.optimizer.batch_size.policies._belief import (
    Belief,
    fitted,
    likely_gain,
    lower_bound_shift,
    matern,
    nearest,
    relative,
    tail_probability,
)

POSITION = np.array([[-2.0, -1.0, 0.0, 0.5, 1.5]])
KERNEL = matern(POSITION, 0.5, 2.0, 0.1, 0.05)
reals = st.floats(-30, 30)


@given(reals)
def test_tails_are_those_of_the_normal_distribution(x):
    expected = 0.5 * math.erfc(x / math.sqrt(2))
    assert tail_probability(np.array([x]))[0] == pytest.approx(expected, rel=1e-6, abs=1e-300)


@given(st.floats(-3, 3), st.floats(0.01, 2))
def test_a_likely_gain_is_the_mean_of_what_is_below_zero(deficit, spread):
    grid = np.linspace(-9, 9, 20_001)
    weight = np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    expected = trapezoid(np.maximum(-(deficit + spread * grid), 0) * weight, grid)
    gain = likely_gain(np.array([deficit]), np.array([spread]))[0]
    assert gain == pytest.approx(expected, abs=1e-5)


def test_a_certain_gain_needs_no_spread():
    gains = likely_gain(np.array([-0.2, 0.3]), np.zeros(2))
    assert gains == pytest.approx([0.2, 0.0])
    assert (likely_gain(np.array([50.0, 1e9]), np.array([0.1, 1e-300])) == 0).all()


def test_observations_one_by_one_and_at_once_lead_to_the_same():
    one = Belief(np.zeros((1, 5)), KERNEL.copy())
    seen = {1: 0.3, 3: -0.2, 4: 0.5}
    for arm, value in seen.items():
        one.observe(slice(None), np.array([arm]), np.array([value]), 0.04)
    values, precision = np.zeros((1, 5)), np.zeros((1, 5))
    for arm, value in seen.items():
        values[0, arm], precision[0, arm] = value, 1 / 0.04
    both = fitted(np.zeros((1, 5)), KERNEL, values, precision)
    assert both.mean == pytest.approx(one.mean)
    assert both.covariance == pytest.approx(one.covariance)


def test_without_observations_the_prior_stays():
    belief = fitted(np.ones((1, 5)), KERNEL, np.zeros((1, 5)), np.zeros((1, 5)))
    assert belief.mean == pytest.approx(np.ones((1, 5)))
    assert belief.covariance == pytest.approx(KERNEL)


def test_an_observation_tells_most_about_the_nearest():
    belief = Belief(np.zeros((1, 5)), KERNEL.copy())
    belief.observe(slice(None), np.array([2]), np.array([1.0]), 1e-6)
    mean = belief.mean[0]
    assert mean[2] == pytest.approx(1.0, abs=1e-4)
    assert mean[2] > mean[3] > mean[1] > mean[0] > 0
    variance = np.diagonal(belief.covariance[0])
    assert variance.argmin() == 2


@given(st.floats(-20, 20))
def test_a_bound_only_raises(mean):
    shift = lower_bound_shift(np.array([mean]), np.array([0.2]), np.zeros(1), np.array([0.1]))[0]
    assert 0 <= shift < 30
    assert np.isfinite(shift)
    if mean > 5:  # it was to be expected
        assert shift < 1e-6
    if mean < -5:  # far below: the belief moves by the share that is its own
        assert shift == pytest.approx(-mean * 2 / 3, rel=0.1)


def test_differences_to_a_reference():
    variance, own, apart = relative(KERNEL, (np.array([0]),), np.array([2]))
    kernel = KERNEL[0]
    assert variance[0] == pytest.approx(np.diagonal(kernel))
    assert own[0, 4] == pytest.approx(kernel[4, 4] - kernel[2, 4])
    assert apart[0, 4] == pytest.approx(kernel[4, 4] + kernel[2, 2] - 2 * kernel[2, 4])
    assert apart[0, 2] == own[0, 2] == 0


def test_the_nearest_marked_arm():
    marks = np.array([[False, True, False, False, True]])
    assert nearest(POSITION, marks)[0].tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert np.isinf(nearest(POSITION, marks & False)).all()

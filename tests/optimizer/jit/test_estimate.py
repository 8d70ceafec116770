"""How well a step is known: uncertainties that hold, and steps that suffice."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.present import present

from zeus.optimizer.jit._estimate import Noise, SettingSamples
from zeus.optimizer.jit._segment import SegmentResult

STEP_TIME, STEP_ENERGY = 0.02, 4.0


def noisy_part(rng, steps, noise, off=0.0):
    """A window over steps that vary; its energy is also off by what measuring leaves open."""
    time = sum(STEP_TIME * (1 + rng.gauss(0, noise)) for _ in range(steps))
    energy = STEP_ENERGY / STEP_TIME * time * (1 + rng.gauss(0, noise / math.sqrt(steps)))
    return SegmentResult(steps, time, energy + rng.gauss(0, off / 1.96), off, energy / time)


def test_a_slice_is_the_sum_of_its_parts():
    samples = SettingSamples(
        [SegmentResult(2, 1.0, 100.0, 3.0, 90.0), SegmentResult(3, 2.0, 150.0, 4.0, 95.0)]
    )
    assert (samples.steps, samples.time, samples.energy) == (5, 3.0, 250.0)
    assert samples.energy_uncertainty == 5.0
    assert samples.highest_power == 95.0


def test_a_point_is_one_step():
    samples = SettingSamples([SegmentResult(2, 1.0, 100.0, 3.0), SegmentResult(3, 1.5, 150.0, 4.0)])
    point = Noise.of([samples]).point(250, samples)
    assert (point.knob, point.time, point.energy, point.repeats) == (250, 0.5, 50.0, 2)
    assert point.time_uncertainty == 0.0
    assert point.energy_uncertainty == pytest.approx(1.0)


def test_what_nothing_tells_is_unknown():
    # One window tells nothing about how much steps vary: that is not 0.
    samples = SettingSamples([SegmentResult(10, 1.0, 100.0, 3.0)])
    noise = Noise.of([samples])
    point = noise.point(250, samples)
    assert noise.time.per_step is None
    assert noise.time.of_mean(10) is None
    assert point.time_uncertainty is None
    assert point.energy_uncertainty == pytest.approx(0.3)


def test_one_setting_tells_the_noise_of_another():
    rng = random.Random(2)
    told = SettingSamples([noisy_part(rng, 10, 0.05) for _ in range(8)])
    once = SettingSamples([noisy_part(rng, 10, 0.05)])
    noise = Noise.of([told, once])
    point = noise.point(225, once)
    assert point.time_uncertainty == pytest.approx(1.96 * 0.05 / math.sqrt(10) * 0.02, rel=0.5)


@pytest.mark.parametrize("off", [0.0, 2.0])
@pytest.mark.parametrize("steps", [1, 5, 40])
def test_uncertainties_hold_in_nineteen_of_twenty_cases(steps, off):
    rng = random.Random(f"{steps} {off}")
    within_time = within_energy = 0
    cases = 400
    for _ in range(cases):
        stays = [
            SettingSamples([noisy_part(rng, steps, 0.03, off) for _ in range(count)])
            for count in (4, 2, 2)
        ]
        point = Noise.of(stays).point(200, stays[1])
        within_time += abs(point.time - STEP_TIME) <= present(point.time_uncertainty)
        within_energy += abs(point.energy - STEP_ENERGY) <= present(point.energy_uncertainty)
    assert within_time / cases >= 0.92
    assert within_energy / cases >= 0.92


def test_uncertainties_are_not_far_too_wide_either():
    rng = random.Random(4)
    shares = []
    for _ in range(200):
        stays = [
            SettingSamples([noisy_part(rng, 10, 0.03) for _ in range(count)]) for count in (4, 2, 2)
        ]
        point = Noise.of(stays).point(200, stays[1])
        shares.append(present(point.time_uncertainty) / STEP_TIME)
    assert sorted(shares)[100] < 2 * 1.96 * 0.03 / math.sqrt(20)


@given(
    st.floats(0.0, 0.2),
    st.floats(0.0, 5.0),
    st.integers(1, 50),
    st.floats(0.001, 0.05),
    st.integers(0, 2**32),
)
def test_as_many_steps_as_are_asked_for_suffice(noise, off, steps, precision, seed):
    rng = random.Random(seed)
    samples = SettingSamples([noisy_part(rng, steps, noise, off) for _ in range(3)])
    all_noise = Noise.of([samples])
    if all_noise.uncertainty(samples) <= precision:
        return
    wanted = max(all_noise.steps_for(precision, samples), samples.steps + steps)
    # If the rest comes in one more window of the same noise, the doubt is small enough, nearly:
    # both shares are made that small each, and what is left of them adds up.
    more = wanted - samples.steps
    mean = samples.time / samples.steps, samples.energy / samples.steps
    extended = SettingSamples(
        [*samples.parts, SegmentResult(more, more * mean[0], more * mean[1], off, 0)]
    )
    assert all_noise.uncertainty(extended) <= 1.5 * precision


def test_no_energy_is_no_reason_to_divide_by_it():
    samples = SettingSamples([SegmentResult(1, 1.0, 0.0, 0.0), SegmentResult(1, 1.1, 0.0, 0.0)])
    noise = Noise.of([samples])
    assert noise.uncertainty(samples) > 0
    assert noise.steps_for(0.01, samples) > 2
    assert noise.point(1, samples).energy == 0

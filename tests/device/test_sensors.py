"""The model of sensors itself: refreshes in order, and errors that can be had again."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device._sensors import Sensor, normal, scatter


@given(
    st.floats(1e-3, 10),
    st.floats(0, 0.999),
    st.floats(0, 0.999),
    st.integers(0, 200),
    st.integers(-(10**7), 10**7),
)
def test_refreshes_stay_in_order_and_the_last_one_is_found(
    period: float, phase: float, late: float, salt: int, number: int
) -> None:
    sensor = Sensor(period=period, phase=phase, jitter=late * period)
    instants = [sensor.refresh(number + i, salt) for i in range(5)]
    assert all(one < next_one for one, next_one in pairwise(instants))
    for i, instant in enumerate(instants[:-1]):
        assert sensor.last_refresh(instant, salt) == number + i
        assert sensor.last_refresh((instant + instants[i + 1]) / 2, salt) == number + i


def test_jitter_and_phase_are_spread_over_all_they_may_be() -> None:
    sensor = Sensor(period=1.0, jitter=0.5, phase=0.0)
    late = [sensor.refresh(number, 8) - number for number in range(2000)]
    assert 0 <= min(late) < 0.01
    assert 0.49 < max(late) < 0.5
    phases = [scatter(0, 4 * number) for number in range(2000)]
    assert fmean(phases) == pytest.approx(0.5, abs=0.02)


def test_noise_is_normal_and_the_same_every_time() -> None:
    sensor = Sensor(period=0.1, noise=0.02)
    first, again = (
        [sensor.power(lambda t: 200 * t, 0.1 * number, 4) for number in range(2000)] for _ in "ab"
    )
    assert first == again
    assert fmean(first) == pytest.approx(200, rel=2e-3)
    assert pstdev(first) == pytest.approx(4, rel=0.1)
    assert pstdev(normal(number, 4) for number in range(2000)) == pytest.approx(1, rel=0.1)


def test_lag_and_window_are_of_what_was_drawn_before() -> None:
    def ramp(instant: float) -> float:
        return instant**2 / 2  # as many watts as seconds

    assert Sensor().power(ramp, 10.0) == pytest.approx(10, abs=1e-4)
    assert Sensor(lag=2).power(ramp, 10.0) == pytest.approx(8, abs=1e-4)
    assert Sensor(window=4).power(ramp, 10.0) == pytest.approx(8)
    assert Sensor(period=3, phase=0, window=2, gain=2).power(ramp, 10.0) == pytest.approx(16)
    assert Sensor(period=3, phase=0, lag=1, gain=2).energy(ramp, 10.0) == pytest.approx(64)


def test_a_part_time_counter_takes_what_it_sees_for_the_whole() -> None:
    sensor = Sensor(period=1, phase=0, part_time=0.25)
    assert sensor.increment(lambda t: max(0.0, t - 9.5) * 100, 10) == pytest.approx(100)
    assert sensor.increment(lambda t: min(t, 9.7) * 100, 10) == pytest.approx(0)
    whole = Sensor(period=1, phase=0, part_time=5)
    assert whole.increment(lambda t: min(t, 9.7) * 100, 10) == pytest.approx(70)


@pytest.mark.parametrize(
    "wrong",
    [
        {"phase": 1.0},
        {"part_time": 0.1},
        {"period": 0.1, "jitter": 0.1},
        {"gain": 0.0},
        {"lag": -1.0},
    ],
)
def test_what_a_sensor_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        Sensor(**wrong)

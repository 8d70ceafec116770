"""Timestamps of drivers in our own time."""

from __future__ import annotations

import random

import pytest
from tests.device.amd_clients import Ask

from simulated_drivers import AmdGpuSpec
from zeus.device._driver_time import DriverTime
from zeus.device._sensors import Sensor, Sensors
from zeus.errors import CapabilityError, Reason


def test_the_offset_is_the_smallest_that_was_seen() -> None:
    mapped, generator = DriverTime(), random.Random(4)
    apart, errors = 12345.678, []
    for number in range(500):
        refresh = 100.0 + number * 0.001
        late = generator.uniform(0.00005, 0.003)  # until it is read
        instant = mapped.instant(number * 0.3, round((refresh - apart) * 1e9), refresh + late)
        errors.append(instant - refresh)
        assert 0 < errors[-1] <= late + 1e-6
    assert max(errors[100:]) < 0.0003


def test_an_offset_that_has_changed_is_learned_again() -> None:
    mapped = DriverTime()
    for number in range(1000):
        apart = 5.0 + 0.005 * min(
            max(0, number - 300), 100
        )  # the driver's clock is slow for a while
        now = 100.0 + number * 0.01
        instant = mapped.instant(float(number), round((now - apart) * 1e9), now)
    assert instant == pytest.approx(now, abs=1e-6)


def test_timestamps_that_do_not_go_with_the_counter_are_refused() -> None:
    mapped = DriverTime()

    def reason(joules: float, timestamp: int, now: float) -> Reason:
        with pytest.raises(CapabilityError, match="timestamps of the energy counter") as refused:
            mapped.instant(joules, timestamp, now)
        return refused.value.reason

    assert reason(1.0, 0, 100.0) is Reason.UNSUPPORTED
    assert reason(1.0, 2**64 - 1, 100.0) is Reason.UNSUPPORTED
    assert mapped.instant(1.0, 50 * 10**9, 100.0) == 100.0
    assert mapped.instant(1.0, 50 * 10**9, 100.1) == 100.0  # not refreshed since
    assert reason(2.0, 50 * 10**9, 100.2) is Reason.IMPLAUSIBLE
    assert mapped.instant(3.0, 51 * 10**9, 101.0) == 101.0
    assert reason(3.5, 49 * 10**9, 102.0) is Reason.IMPLAUSIBLE
    assert mapped.instant(4.0, 50 * 10**9, 103.0) == 103.0  # and learned again


@pytest.mark.real_time
def test_amd_counters_tell_when_they_were_refreshed(simulate, ask: Ask) -> None:
    readings = ask(
        simulate(
            AmdGpuSpec(
                watts=200.0, sensors=Sensors(Sensor(period=0.02), Sensor()), counter_offset=50.0
            )
        ),
        """
readings = []
while len({tick for _, _, tick in readings}) < 20:
    before = time.monotonic()
    joules, instant = driver.timed_energy()
    tick = simulation.last_tick(0, before)
    if tick == simulation.last_tick(0, time.monotonic()):
        readings.append([joules - simulation.counter(0, before), instant, tick])
answer(readings)
""",
    )
    assert all(abs(error) < 1e-3 for error, _, _ in readings)
    # The library's clock is ours; what is left is how soon a tick was read after it fell.
    assert all(0 <= instant - tick < 0.02 for _, instant, tick in readings)
    late = [instant - tick for _, instant, tick in readings[len(readings) // 2 :]]
    assert max(late) - min(late) < 0.01


def test_an_amd_counter_that_is_missing_has_no_timestamp(simulate, ask: Ask) -> None:
    said = ask(
        simulate(AmdGpuSpec(sensors=Sensors(None, Sensor()))),
        "answer([outcome(driver.timed_energy)[0], [type(x).__name__ for x in driver.sample()]])",
    )
    assert said == ["unsupported", ["CapabilityError", "float"]]

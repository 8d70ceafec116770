"""Sensors of simulated GPUs: each reading is what its sensor makes of what was really drawn."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import replace

import pytest
from tests.device.clients import Clients

from zeus.clock import MonotonicClock, VirtualClock
from zeus.device._sensors import AVERAGE, COUNTER, POWER, PRESETS, Sensor, Sensors
from zeus.device._simulated import (
    DEFAULT_SENSORS,
    SENSORS_VARIABLE,
    SimulatedGpuDriver,
    build,
    parse_sensors,
)
from zeus.device._simulated_history import MAX_POINTS
from zeus.device._simulated_models import MODELS
from zeus.device._simulated_state import IDLE
from zeus.errors import CapabilityError, Reason, SimulationError
from zeus.testing import SimulatedNode

AWKWARD = Sensors(
    Sensor(period=0.05, phase=0.25, lag=0.03, jitter=0.02, gain=1.04),
    Sensor(period=0.07, window=0.03, lag=0.04, jitter=0.06, noise=0.01, gain=0.97),
    Sensor(window=0.4, lag=0.2),
)


class Truth:
    """What a GPU drew, noted at each change of its load."""

    def __init__(self, driver: SimulatedGpuDriver) -> None:
        self._driver = driver
        self._times: list[float] = []
        self._joules: list[float] = []
        self.note()
        self._watts_before = self._watts

    def set_load(self, activity: float) -> None:
        self._driver.set_load(activity)
        self.note()

    def note(self) -> None:
        state = self._driver._state()
        self._times.append(state.time)
        self._joules.append(state.energy)
        self._watts = self._driver._power(state)

    def joules_at(self, instant: float) -> float:
        times, joules = self._times, self._joules
        at = bisect_right(times, instant)
        if at == 0:
            return joules[0] - self._watts_before * (times[0] - instant)
        if at == len(times):
            return joules[-1] + self._watts * (instant - times[-1])
        share = (instant - times[at - 1]) / (times[at] - times[at - 1])
        return joules[at - 1] + share * (joules[at] - joules[at - 1])

    def expected(self, question: str, now: float) -> float:
        """What a sensor shows that knows the whole past."""
        sensors, salt = self._driver.sensors, self._driver._salt
        if question == "energy":
            assert sensors.counter is not None
            return max(0.0, sensors.counter.energy(self.joules_at, now, salt + COUNTER))
        sensor, own = (
            (sensors.power, POWER) if question == "instant_power" else (sensors.average, AVERAGE)
        )
        assert sensor is not None
        return sensor.power(self.joules_at, now, salt + own)


def questions(driver: SimulatedGpuDriver) -> list[str]:
    names = ["instant_power"]
    if driver.sensors.counter is not None:
        names.append("energy")
    if driver.sensors.average is not None:
        names.append("average_power")
    return names


def virtual(
    spec: str, sensors: Sensors | str | None
) -> tuple[SimulatedGpuDriver, VirtualClock, Truth]:
    clock = VirtualClock(1000.0)
    driver = build(spec, clock, None, sensors)[-1]
    return driver, clock, Truth(driver)


# --- In virtual time ------------------------------------------------------------------------------


@pytest.mark.parametrize("sensors", [*sorted(PRESETS), "part", "live-power", AWKWARD])
@pytest.mark.parametrize("pause", [0.003, 0.05, 2.0])
def test_readings_are_what_the_sensor_makes_of_the_whole_past(
    sensors: Sensors | str, pause: float
) -> None:
    driver, clock, truth = virtual("v100,h100", sensors)
    generator = random.Random(7)
    for _ in range(400):
        truth.set_load(generator.choice([IDLE, generator.random(), 1.0]))
        for _ in range(3):
            clock.sleep(pause * generator.random())
            for question in questions(driver):
                shown = getattr(driver, question)()
                # Loads that change every few milliseconds fill up the history: it gets coarser
                # where it is older than any but the longest mean.
                coarse = 5.0 if question == "average_power" and pause < 0.01 else 0.002
                # Without a window, power now is what it is after a change, and before it in the
                # truth, which knows energy only.
                live = driver.sensors.power.window == 0 and question == "instant_power"
                if not live:
                    expected = truth.expected(question, clock.now())
                    assert shown == pytest.approx(expected, abs=coarse), question


@pytest.mark.parametrize("sensors", ["live", "live-power"])
def test_live_power_is_that_of_this_very_instant(sensors: str) -> None:
    driver, clock, truth = virtual("a100", sensors)
    for activity in (0.3, 1.0, IDLE, 0.0, 0.3):
        truth.set_load(activity)
        assert driver.instant_power() == round(driver._power(driver._state()), 3)
        clock.sleep(0.013)
        assert driver.instant_power() == round(driver._power(driver._state()), 3)
        if sensors == "live":
            assert driver.energy() == pytest.approx(driver.exact_energy(), abs=1e-3)
    assert driver.meter_period == 0.0


@pytest.mark.parametrize("key", [key for key, sensors in PRESETS.items() if sensors.power.period])
def test_a_latched_meter_reads_what_it_had_at_its_last_refresh(key: str) -> None:
    driver, clock, truth = virtual("v100", key)
    power, salt = driver.sensors.power, driver._salt + POWER
    truth.set_load(1.0)
    clock.sleep(5.0)
    number = power.last_refresh(clock.now(), salt) + 1
    clock.sleep(power.refresh(number, salt) - clock.now() + power.period / 100)
    full = driver.instant_power()
    assert full == pytest.approx(driver.model.maximum_limit)
    truth.set_load(IDLE)
    clock.sleep(power.period * 0.9)
    assert driver.instant_power() == full  # not refreshed since
    clock.sleep(power.period + power.lag + power.window)
    assert driver.instant_power() == pytest.approx(driver.model.idle_power)
    assert driver.meter_period is None  # nobody tells it of a real one


def test_sensors_of_one_node_are_not_in_step() -> None:
    drivers = build("a100x4", VirtualClock(), None, "part")
    phases = [
        sensor.phase
        for driver in drivers
        for sensor in (driver.sensors.counter, driver.sensors.power)
        if sensor is not None
    ]
    assert len(set(phases)) == 8


def test_a_part_time_counter_takes_what_it_sees_for_the_whole() -> None:
    counter = Sensor(period=0.1, phase=0.0, part_time=0.025)
    driver, clock, truth = virtual("a100", Sensors(counter, Sensor()))
    clock.sleep(0.05)
    low, high = driver.model.static_power, driver.model.maximum_limit
    truth.set_load(0.0)
    clock.sleep(0.05)
    begun, before = driver.energy(), driver.exact_energy()
    for _ in range(50):  # busy only while it does not look
        truth.set_load(1.0)
        clock.sleep(0.05)
        truth.set_load(0.0)
        clock.sleep(0.05)
    assert driver.energy() - begun == pytest.approx(5.0 * low, abs=high * 0.1)
    assert driver.exact_energy() - before == pytest.approx(2.5 * (low + high))
    begun = driver.energy()
    truth.set_load(1.0)
    clock.sleep(86400.0)  # steady, so it misses nothing
    assert driver.energy() - begun == pytest.approx(86400.0 * high, rel=1e-5)


@pytest.mark.parametrize("sensors", ["part", "live-power", AWKWARD])
def test_more_changes_than_there_is_room_for_leave_energy_exact(sensors: Sensors | str) -> None:
    driver, clock, truth = virtual("h100", sensors)
    generator = random.Random(11)
    watched = ["energy", "instant_power"] if sensors == "part" else ["energy"]
    # A sensor that is late looks at a past in which segments have been merged.
    tolerance = 1.0 if sensors == AWKWARD else 0.002
    for number in range(20 * MAX_POINTS):
        truth.set_load(generator.random())
        clock.sleep(0.0004 * generator.random())
        if number % 3 == 0:
            for question in watched:
                expected = truth.expected(question, clock.now())
                assert getattr(driver, question)() == pytest.approx(expected, abs=tolerance)
        assert driver.exact_energy() == pytest.approx(truth.joules_at(clock.now()), abs=1e-6)
    assert len(driver._state().history.times) <= MAX_POINTS
    truth.set_load(IDLE)
    clock.sleep(2.0)
    assert driver.energy() == pytest.approx(truth.expected("energy", clock.now()), abs=0.002)


def test_a_mean_over_a_second_stays_right_under_many_changes() -> None:
    driver, clock, truth = virtual("h100", "part")
    generator = random.Random(3)
    errors = []
    for number in range(6000):  # milliseconds, in phases of 0.7 s that differ
        busy = 0.9 if number // 700 % 2 else 0.2
        truth.set_load(busy + generator.uniform(-0.1, 0.1))
        clock.sleep(0.001)
        expected = truth.expected("average_power", clock.now())
        errors.append(abs(driver.average_power() - expected) / expected)
    assert max(errors) < 0.02


# --- Shared, in real time -------------------------------------------------------------------------


def fits(truth: Truth, question: str, shown: float, before: float, after: float) -> bool:
    """Whether a reading between two instants is one that the sensor showed in that time."""
    tolerance = 0.002
    driver = truth._driver
    sensors = {"energy": driver.sensors.counter, "instant_power": driver.sensors.power}
    sensor = sensors.get(question, driver.sensors.average)
    assert sensor is not None
    instants = [before, after]
    if sensor.period:
        salt = driver._salt + {"energy": COUNTER, "instant_power": POWER}.get(question, AVERAGE)
        numbers = range(sensor.last_refresh(before, salt), sensor.last_refresh(after, salt) + 1)
        instants = [max(before, sensor.refresh(number, salt) + 1e-9) for number in numbers]
        return any(
            math.isclose(shown, truth.expected(question, instant), abs_tol=tolerance)
            for instant in instants
        )
    low, high = sorted(truth.expected(question, instant) for instant in instants)
    return low - tolerance <= shown <= high + tolerance


@pytest.mark.real_time
@pytest.mark.parametrize("key", sorted(set(PRESETS) - {"live"}))
@pytest.mark.thorough(keep=3)
def test_a_shared_node_has_the_same_sensors(key: str) -> None:
    driver = build("h100", MonotonicClock(), None, key)[0]
    truth, generator = Truth(driver), random.Random(5)
    readings = []
    begun = driver.clock.now()
    while driver.clock.now() < begun + 1.2:
        truth.set_load(generator.choice([IDLE, generator.random()]))
        driver.clock.sleep(0.02 * generator.random())
        for question in questions(driver):
            before = driver.clock.now()
            shown = getattr(driver, question)()
            after = driver.clock.now()
            readings.append((question, shown, before, after))
            # The truth is asked at once: later it knows of changes after the reading, too.
            assert fits(truth, question, shown, before, after), (question, shown)
    assert len({shown for _, shown, _, _ in readings}) > 10


@pytest.mark.real_time
def test_processes_read_the_same(clients: Clients) -> None:
    """A process that only reads, while another one changes the load."""
    client = clients.start(
        """
driver = node.current_node().drivers[0]
say(driver.identity.key)
while heard():
    readings = []
    for question in ("energy", "instant_power", "average_power"):
        before = time.monotonic()
        shown = getattr(driver, question)()
        readings.append([question, shown, before, time.monotonic()])
    say(readings)
""",
        ZEUS_SIMULATE="h100",
        ZEUS_SIMULATE_SENSORS="part",
    )
    driver = build("h100", MonotonicClock(), None, "part")[0]
    assert client.hear() == driver.identity.key
    truth, generator = Truth(driver), random.Random(9)
    for _ in range(60):
        truth.set_load(generator.random())
        driver.clock.sleep(0.04 * generator.random())
        client.tell(1)
        for question, shown, before, after in client.hear():
            assert fits(truth, question, shown, before, after), (question, shown)
    client.tell(0)
    assert client.end() == 0


# --- What can be chosen ---------------------------------------------------------------------------


def test_sensors_follow_from_the_part_unless_others_are_chosen() -> None:
    def chosen(sensors: Sensors | str | None) -> Sensors:
        driver = SimulatedNode("a100", sensors=sensors).drivers[0]
        assert isinstance(driver, SimulatedGpuDriver)
        found = driver.sensors
        # The phases are the GPU's own.
        assert found.power.phase is not None
        return replace(
            found,
            counter=found.counter and replace(found.counter, phase=None),
            power=replace(found.power, phase=None),
            average=found.average and replace(found.average, phase=None),
        )

    assert chosen("part") == PRESETS["a100"] == MODELS["a100"].sensors
    assert chosen("v100") == PRESETS["v100"]
    assert chosen("live") == PRESETS["live"]
    assert chosen(Sensors(None, Sensor(window=0.5))) == Sensors(None, Sensor(window=0.5))
    assert chosen("live-power") == replace(PRESETS["a100"], power=Sensor())
    assert chosen(None) == chosen(DEFAULT_SENSORS) == PRESETS["a100"]


@pytest.mark.parametrize("sensors", ["part", AWKWARD])
def test_a_gpu_that_begins_loaded_is_shown_loaded_at_once(sensors: Sensors | str) -> None:
    clock = VirtualClock(1000.0)
    driver = build("h100", clock, 1.0, sensors)[0]
    for _ in range(50):
        for meter, shown in (
            (driver.sensors.power, driver.instant_power()),
            (driver.sensors.average, driver.average_power()),
        ):
            assert meter is not None
            assert shown == pytest.approx(meter.gain * 700.0, rel=5 * meter.noise + 1e-5)
        clock.sleep(0.031)
    assert driver.sensors.counter is not None
    assert driver.energy() <= driver.sensors.counter.gain * driver.exact_energy()


@pytest.mark.parametrize("key", MODELS)
def test_models_and_presets_agree(key: str) -> None:
    sensors = PRESETS[key]
    assert MODELS[key].sensors is sensors
    for name in ("part", "live-power"):
        driver = build(key, VirtualClock(), None, name)[0]
        assert driver.counter_period == (sensors.counter.period if sensors.counter else None)
        assert sorted(questions(driver)) == sorted(
            question
            for question, there in (
                ("instant_power", True),
                ("energy", sensors.counter is not None),
                ("average_power", sensors.average is not None),
            )
            if there
        )


def test_the_variable_chooses_for_every_program(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    plain = build("v100", clock, None)[0]
    assert plain.sensors.power.period == PRESETS["v100"].power.period
    monkeypatch.setenv(SENSORS_VARIABLE, " Live-Power ")
    driver = build("v100", clock, None)[0]
    assert driver.sensors.power.period == 0
    assert driver.identity.key != plain.identity.key  # its state is another one's
    assert build("v100", clock, None, "a100")[0].sensors.power.period == 0.1
    monkeypatch.setenv(SENSORS_VARIABLE, DEFAULT_SENSORS)
    assert build("v100", clock, None)[0].identity.key == plain.identity.key


@pytest.mark.parametrize(("text", "name"), [(None, None), (" ", None), ("LIVE", "live")])
def test_names(text: str | None, name: str | None) -> None:
    assert parse_sensors(text) == name


@pytest.mark.parametrize("wrong", ["k80", "part,live", "0.1"])
def test_a_wrong_name_is_quoted_with_the_rule(wrong: str) -> None:
    with pytest.raises(SimulationError, match=f"{SENSORS_VARIABLE} must be one of part, ") as error:
        SimulatedNode("v100", sensors=wrong)
    assert repr(wrong) in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [{"phase": 1.5}, {"part_time": 0.01}, {"period": -1.0}, {"period": 0.1, "jitter": 0.1}],
)
def test_sensors_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        Sensor(**wrong)


# --- Timestamps, and readings in one call ---------------------------------------------------------


def test_amd_counters_come_with_the_instant_of_their_refresh() -> None:
    driver, clock, truth = virtual("mi300x", "part")
    generator = random.Random(2)
    for _ in range(50):
        truth.set_load(generator.random())
        clock.sleep(0.01 * generator.random())
        joules, instant = driver.timed_energy()
        assert joules == driver.energy()
        assert joules == pytest.approx(max(0.0, truth.joules_at(instant)), abs=0.002)
        assert clock.now() - 0.001 <= instant <= clock.now()
    others = build("v100", clock, None)[0]
    with pytest.raises(CapabilityError, match="timestamps") as missing:
        others.timed_energy()
    assert missing.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("key", ["p100", "a100", "mi300x"])
def test_a_sample_is_counter_and_power(key: str) -> None:
    driver, clock, truth = virtual(key, "part")
    truth.set_load(1.0)
    clock.sleep(1.0)
    joules, watts = driver.sample()
    assert watts == driver.instant_power()
    if driver.sensors.counter is None:
        assert isinstance(joules, CapabilityError)
        assert joules.reason is Reason.UNSUPPORTED
    else:
        assert joules == driver.energy()
    with pytest.raises(CapabilityError) as missing:
        driver.power_samples(0.0)
    assert missing.value.reason is Reason.UNSUPPORTED

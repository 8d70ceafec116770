"""The sensors of the simulated NVML driver, through the unmodified binding, against their model."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import pytest
from drivers.tests.nvml_clients import (
    AVERAGE_FIELD,
    ENERGY_FIELD,
    INSTANT_FIELD,
    Simulate,
    error,
)
from drivers.tests.sensor_model import Drawn, counted, same_refresh, unrest

from simulated_drivers import AmdGpuSpec, GpuSpec, NvmlReturn, SimulatedNvml, parts
from simulated_drivers import _sensors as sensing
from simulated_drivers._nvml import MAX_SEGMENTS
from zeus.device._sensors import LIVE, PRESETS, Sensor, Sensors

ODD = Sensors(
    Sensor(period=0.05, jitter=0.04, lag=0.013, gain=1.05),
    Sensor(period=0.03, window=0.007, jitter=0.02, lag=0.011, noise=0.02, gain=0.95),
    Sensor(period=0.07, window=0.3, noise=0.1),
)
PART_TIME = Sensors(
    Sensor(period=0.04, jitter=0.02, part_time=0.01, gain=1.1), Sensor(period=0.02, window=0.1)
)
SENSORS = {name: s for name, s in PRESETS.items() if not s.timestamps and s is not LIVE}
SENSORS |= {"odd": ODD, "part-time": PART_TIME}

# Reads energy, instantaneous and average power of every GPU in one call each, where it has them.
READ_ALL = f"""
handles = start()
fields = [{ENERGY_FIELD}, {INSTANT_FIELD}, {AVERAGE_FIELD}]

def read(handle):
    before = time.monotonic()
    values = N.nvmlDeviceGetFieldValues(handle, fields)
    shown = [v.value.ullVal if v.valueType == 3 else v.value.uiVal for v in values]
    return before, time.monotonic(), [s if v.nvmlReturn == 0 else None
                                      for s, v in zip(shown, values)]
"""


@pytest.fixture
def readings(simulate: Simulate) -> tuple[Drawn, dict[str, list[Any]]]:
    """What was drawn, and (before, after, values) of GPUs with all kinds of sensors."""
    sim, clients = simulate(*(GpuSpec(sensors=sensors) for sensors in SENSORS.values()))
    points = unrest(40)
    for gpu in range(len(SENSORS)):
        sim.schedule(gpu, points)
    found = clients.run(
        READ_ALL
        + """
found = [[] for _ in handles]
for _ in range(300):
    for gpu, handle in enumerate(handles):
        found[gpu].append(read(handle))
    time.sleep(0.002)
answer(found)
"""
    )
    return Drawn(points), dict(zip(SENSORS, found, strict=True))


def test_readings_are_those_of_the_model(readings: Any) -> None:
    drawn, found = readings
    for index, (name, sensors) in enumerate(SENSORS.items()):
        for place, sensor, field in (
            ("instant", sensors.power, 1),
            ("average", sensors.average, 2),
        ):
            if sensor is None:
                assert all(values[field] is None for _, _, values in found[name])
                continue
            salt = sensing.salt(index, place)
            shown = set()
            for before, after, values in found[name]:
                number = same_refresh(sensor, before, after, salt)
                if number is not None:
                    expected = sensor.power(drawn, before, salt, drawn.watts)
                    assert values[field] == pytest.approx(1000 * expected, abs=0.6), (name, place)
                    shown.add(number)
            assert len(shown) >= 4, (name, place)


def test_counters_are_those_of_the_model(readings: Any) -> None:
    drawn, found = readings
    for index, (name, sensors) in enumerate(SENSORS.items()):
        counter, salt = sensors.counter, sensing.salt(index, "counter")
        if counter is None:
            assert all(values[0] is None for _, _, values in found[name])
            continue
        shown: dict[int, int] = {}
        for before, after, values in found[name]:
            number = same_refresh(counter, before, after, salt)
            if number is not None:
                assert shown.setdefault(number, values[0]) == values[0], name
        assert len(shown) >= 4, name
        first = min(shown)
        for number, millijoules in shown.items():
            expected = 1000 * counted(counter, drawn, first, number, salt)
            assert millijoules - shown[first] == pytest.approx(expected, abs=1.1), name


def test_energy_and_power_of_one_call_are_of_one_instant(simulate: Simulate) -> None:
    both = Sensor(period=0.02, phase=0.3)
    sim, clients = simulate(GpuSpec(sensors=Sensors(both, both), counter_offset=0.0))
    # A power that rises by one watt a period, so that it tells which refresh it is of.
    first = both.last_refresh(time.monotonic(), 0)
    points = [(both.refresh(first + i, 0) - 0.01, 10.0 + i) for i in range(MAX_SEGMENTS - 1)]
    sim.schedule(0, points)
    found = clients.run(
        READ_ALL
        + """
found, deadline = set(), time.monotonic() + 60
while len({power for _, power in found}) < 10 and time.monotonic() < deadline:
    found.add(tuple(read(handles[0])[2][:2]))
answer(list(found))
"""
    )
    assert len(found) >= 10
    for energy, power in found:
        assert energy == sim.counter(0, both.refresh(first + round(power / 1000) - 10, 0) + 1e-6)


def test_every_sensor_has_a_phase_of_its_own(simulate: Simulate) -> None:
    sim, clients = simulate(*[GpuSpec(sensors="h100")] * 4)
    phases = [
        Sensor(period=1).refresh(0, sensing.salt(gpu, place))
        for gpu in range(4)
        for place in ("counter", "instant", "average")
    ]
    gaps = [b - a for a, b in zip(sorted(phases), sorted(phases)[1:], strict=False)]
    assert min(gaps) > 1e-3
    for gpu in range(4):
        sim.schedule(gpu, unrest(180, shortest=0.02))
    edges = clients.run(
        READ_ALL
        + """
edges, previous = [[[], []] for _ in handles], {}
while min(len(some) for pair in edges for some in pair) < 3:
    for gpu, handle in enumerate(handles):
        before, after, values = read(handle)
        for place in (0, 1):
            if previous.get((gpu, place), (before, values[place]))[1] != values[place]:
                edges[gpu][place].append((previous[gpu, place][0], after))
            previous[gpu, place] = before, values[place]
answer(edges)
"""
    )
    for gpu, pair in enumerate(edges):
        for place, seen in zip(("counter", "instant"), pair, strict=True):
            salt = sensing.salt(gpu, place)
            for before, after in seen:
                assert same_refresh(Sensor(period=0.1), before, after, salt) is None


# --- A part-time counter --------------------------------------------------------------------------

# Sees the last quarter of each period only.
QUARTER = Sensor(period=0.1, phase=0.0, part_time=0.025)


def test_a_part_time_counter_misses_what_it_does_not_see(simulate: Simulate) -> None:
    blind, whole = Sensors(QUARTER, Sensor()), Sensors(Sensor(period=0.1, phase=0.0), Sensor())
    sim, clients = simulate(*(GpuSpec(watts=0.0, sensors=s) for s in (blind, whole)))
    now = time.monotonic()
    start = QUARTER.last_refresh(now, 0) + 1
    points = []
    for number in range(start, start + 10):
        points += [(number / 10, 0.0), (number / 10 + 0.08, 500.0)]
    points.append(((start + 10) / 10, 0.0))
    for gpu in range(2):
        sim.schedule(gpu, points)
    time.sleep(points[-1][0] + 0.15 - now)
    shown = clients.run("answer([N.nvmlDeviceGetTotalEnergyConsumption(h) for h in start()])")
    assert sim.energy(0, now, now + 10) == pytest.approx(100.0)
    assert shown == pytest.approx([1_000_000 + 400_000, 1_000_000 + 100_000], abs=1.1)


def test_a_part_time_counter_is_the_same_in_every_process(simulate: Simulate) -> None:
    """Also for who has counted all along, and once what was drawn has made room."""
    counter = Sensor(period=0.01, jitter=0.005, part_time=0.002)
    spec = GpuSpec(sensors=Sensors(counter, Sensor()))
    sim, clients = simulate(spec)
    read = """
h = start()[0]
def read():
    before = time.monotonic()
    return before, N.nvmlDeviceGetTotalEnergyConsumption(h), time.monotonic()
"""
    old = clients.start(
        read
        + "read(); answer('ready'); found = []\n"
        + "while not found or found[-1][1] < 2**40: found.append(read()); time.sleep(0.001)\n"
        + "answer(found[:-1])"
    )
    assert old.stdout is not None
    old.stdout.readline()
    # The controller drops segments when these do not fit, again and again.
    for step in range(3 * MAX_SEGMENTS):
        sim.set_power(0, 100 + 13 * (step % 17))
    assert sim._gpu(0).power.dropped_segments > MAX_SEGMENTS
    known = sim._gpu(0).power.counted.refresh
    new = clients.run(read + "answer([read() for _ in range(50)])")
    sim.set_counter_offset(0, 2.0**40)
    seen = [s for s in clients.finish(old) if counter.last_refresh(s[0], 0) >= known] + new
    assert len(seen) > len(new)
    sim.set_counter_offset(0, spec.counter_offset)
    compared = 0
    for before, value, after in seen:
        if same_refresh(counter, before, after, 0) is not None:
            assert value == sim.counter(0, before)
            compared += 1
    assert compared > 20
    with pytest.raises(ValueError, match="dropped"):
        sim.counter(0, counter.refresh(known - 1, 0))


def test_a_part_time_counter_while_clients_change_what_is_drawn(simulate: Simulate) -> None:
    """The library drops what was drawn long ago, too."""
    counter = Sensor(period=0.01, jitter=0.005, part_time=0.002)
    sensors = Sensors(counter, Sensor())
    spec = parts.spec("a100", {"activity": 1.0}, sensors=sensors, needs_root=False)
    sim, clients = simulate(spec)
    code = """
h = start()[0]
for i in range({changes}):
    N.nvmlDeviceSetPowerManagementLimit(h, 150000 + 1000 * (i % 200))
found = []
for _ in range(50):
    before = time.monotonic()
    value = N.nvmlDeviceGetTotalEnergyConsumption(h)
    found.append((before, value, time.monotonic()))
answer(found)
"""
    seen = clients.run(code.format(changes=MAX_SEGMENTS + 1500))
    assert sim._gpu(0).power.dropped_segments > 0
    assert sim._gpu(0).power.counted.joules > 0
    seen += clients.run(code.format(changes=0))
    same = [s for s in seen if same_refresh(counter, s[0], s[2], 0) is not None]
    assert len(same) > 20
    assert [value for _, value, _ in same] == [sim.counter(0, before) for before, _, _ in same]


def test_the_past_of_a_part_time_counter_can_be_changed(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=100.0, sensors=Sensors(QUARTER, Sensor())))
    began = time.monotonic()
    client = clients.start(
        """
h = start()[0]
answer("ready")
while N.nvmlDeviceGetPowerUsage(h) != 0:
    N.nvmlDeviceGetTotalEnergyConsumption(h)
answer(N.nvmlDeviceGetTotalEnergyConsumption(h))
"""
    )
    assert client.stdout is not None
    client.stdout.readline()
    time.sleep(0.3)
    sim.schedule(0, [(began - 1, 0.0)])
    assert clients.finish(client) == 1_000_000


# --- Gain -----------------------------------------------------------------------------------------


def test_a_counter_with_a_gain_counts_the_energy_times_it(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(sensors=Sensors(Sensor(gain=1.05), Sensor(gain=0.9))))
    base = time.monotonic() + 100
    sim.schedule(0, [(base, 200.0)])
    assert sim.energy(0, base, base + 10) == pytest.approx(2000.0)
    assert sim.counted_energy(0, base, base + 10) == pytest.approx(2100.0)
    shown = sim.counter(0, base + 10) - sim.counter(0, base)
    assert shown == pytest.approx(2_100_000, abs=1.1)
    assert sim.instant_reading(0, base + 1) == pytest.approx(180.0, abs=1e-3)


# --- Dated samples --------------------------------------------------------------------------------

READ_SAMPLES = """
h = start()[0]

def samples(seen, kind=N.NVML_TOTAL_POWER_SAMPLES):
    found = outcome(N.nvmlDeviceGetSamples, h, kind, seen)
    return found if isinstance(found, str) else [(s.timeStamp, s.sampleValue.uiVal)
                                                 for s in found[1]]
"""


def test_samples_are_the_refreshes_of_the_power_sensor(simulate: Simulate) -> None:
    sensor = Sensor(period=0.02, window=0.01, jitter=0.01, noise=0.01)
    sim, clients = simulate(GpuSpec(sensors=Sensors(None, sensor), power_samples=16))
    points = unrest(40)
    sim.schedule(0, points)
    offset = median(time.time() - time.monotonic() for _ in range(9))
    first, more, again, wrong = clients.run(
        READ_SAMPLES
        + """
first = samples(0)
more, deadline = [], time.monotonic() + 60
while len(more) < 8 and time.monotonic() < deadline:
    new = samples((more or first)[-1][0])
    more += [] if isinstance(new, str) else new
# What has been seen does not come again, and what comes again is the same.
answer([first, more, samples(more[-3][0])[:2], samples(0, 3)])
"""
    )
    assert len(first) == 16
    assert again == more[-2:]
    assert wrong == error(NvmlReturn.NOT_SUPPORTED)
    salt, drawn = sensing.salt(0, "instant"), Drawn(points)
    dates = [timestamp / 1e6 - offset for timestamp, _ in first + more]
    last = sensor.last_refresh(dates[0] + 1e-3, salt)
    for number, (date, (_, shown)) in enumerate(zip(dates, first + more, strict=True), last):
        # The two clocks are compared twice, here and by the controller.
        assert date == pytest.approx(sensor.refresh(number, salt), abs=0.01)
        expected = sensor.power(drawn, sensor.refresh(number, salt), salt, drawn.watts)
        assert shown == pytest.approx(1000 * expected, abs=0.6)


def test_no_new_samples_and_no_samples_at_all(simulate: Simulate) -> None:
    slow = Sensors(None, Sensor(period=1e6))
    code = READ_SAMPLES + "answer([samples(0), samples(2**62)])"
    _, clients = simulate(GpuSpec(sensors=slow, power_samples=1))
    found, none = clients.run(code)
    assert len(found) == 1
    assert none == error(NvmlReturn.NOT_FOUND)
    _, clients = simulate(GpuSpec(sensors=slow))
    assert clients.run(code) == [error(NvmlReturn.NOT_SUPPORTED)] * 2
    with pytest.raises(ValueError, match="power_samples"):
        GpuSpec(sensors="live-power", power_samples=1)


# --- Specifications -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["p100", "v100", "rtx6000", "a40", "a100", "h100"])
def test_parts_with_the_sensors_that_are_published_of_them(key: str) -> None:
    spec = parts.spec(key)
    assert spec.sensors == GpuSpec(name=spec.name).sensors == PRESETS[key]
    newer = spec.compute_capability > (8, 0)
    assert spec.power_usage_is == ("average" if newer else "instant")
    live = parts.spec(key, sensors="live-power").sensors
    assert live.counter == PRESETS[key].counter
    assert live.power == Sensor()


def test_products_without_published_sensors_have_those_of_a_relative() -> None:
    def of(name: str) -> Sensors:
        return GpuSpec(name=name).sensors

    assert GpuSpec().sensors == of("NVIDIA Graphics Device") == PRESETS["a100"]
    assert of("NVIDIA GeForce RTX 3090") == PRESETS["rtx"]
    assert of("Quadro RTX 6000") == PRESETS["rtx6000"]
    assert AmdGpuSpec().sensors == AmdGpuSpec(name="").sensors == PRESETS["mi300x"]
    assert AmdGpuSpec(name="AMD Instinct MI250X").sensors == PRESETS["mi250x"]


def test_what_sensors_cannot_be(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="sensors must be one of"):
        GpuSpec(sensors="abacus")
    with pytest.raises(ValueError, match="average"):
        GpuSpec(sensors="a100", power_usage_is="average")
    with SimulatedNvml.create(tmp_path / "state", [GpuSpec(sensors="p100")]) as sim:
        assert sim.instant_reading(0, time.monotonic()) == pytest.approx(60.0)

"""The simulated NVML driver: energy and power, through the unmodified binding."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from drivers.tests.nvml_clients import (
    AVERAGE_FIELD,
    ENERGY_FIELD,
    INSTANT_FIELD,
    LIMIT_FIELDS,
    Simulate,
    error,
    frozen,
)

from simulated_drivers import GpuSpec, NvmlReturn
from simulated_drivers._nvml import MAX_SEGMENTS
from zeus.device._sensors import Sensor, Sensors

# --- Energy ---------------------------------------------------------------------------------------


READ_COUNTERS = """
handles = start()
answer("ready")
samples, seen = [], [set() for _ in handles]
deadline = time.monotonic() + 120
while min(map(len, seen)) < 12 and time.monotonic() < deadline:
    for gpu, handle in enumerate(handles):
        before = time.monotonic()
        value = N.nvmlDeviceGetTotalEnergyConsumption(handle)
        samples.append((gpu, before, value, time.monotonic()))
        seen[gpu].add(value)
    time.sleep(0.0005)
answer(samples)
"""


def test_the_counter_shows_the_exact_energy_at_the_last_tick(simulate: Simulate) -> None:
    sim, clients = simulate(
        GpuSpec(sensors=Sensors(Sensor(period=0.02), Sensor())),
        GpuSpec(sensors=Sensors(Sensor(period=0.05, phase=0.26, jitter=0.04, gain=1.25), Sensor())),
        GpuSpec(sensors="live", counter_offset=123456.789),
    )
    client = clients.start(READ_COUNTERS)
    assert client.stdout is not None
    client.stdout.readline()
    for step in range(1000):  # fewer than the segments there is room for
        for gpu in range(3):
            sim.set_power(gpu, 50 + 37 * (step % 9) + gpu)
        time.sleep(0.003)
        if client.poll() is not None:
            break
    samples = clients.finish(client)
    for gpu, before, value, after in samples:
        assert sim.counter(gpu, before) <= value <= sim.counter(gpu, after)
    unambiguous = [s for s in samples if sim.counter(s[0], s[1]) == sim.counter(s[0], s[3])]
    assert len({value for gpu, _, value, _ in unambiguous if gpu == 0}) > 5
    assert len({value for gpu, _, value, _ in unambiguous if gpu == 1}) > 2


def test_energy_is_the_integral_of_the_schedule(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(watts=10.0))
    base = time.monotonic() + 100
    sim.schedule(0, [(base, 100.0), (base + 1, 300.0), (base + 3, 0.0)])
    assert sim.energy(0, base, base + 4) == pytest.approx(700.0, abs=1e-6)
    assert sim.energy(0, base + 0.5, base + 1.5) == pytest.approx(200.0, abs=1e-6)
    assert sim.energy(0, base - 2, base) == pytest.approx(20.0, abs=1e-6)
    assert [sim.power(0, base + t) for t in (-1, 0, 0.9, 2, 3)] == [10, 100, 100, 300, 0]


def test_new_segments_replace_what_was_scheduled_after_them(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(watts=10.0))
    base = time.monotonic() + 100
    sim.schedule(0, [(base, 100.0), (base + 10, 200.0)])
    sim.schedule(0, [(base + 5, 50.0)])
    assert sim.energy(0, base, base + 20) == pytest.approx(500 + 750, abs=1e-6)
    sim.set_power(0, 20.0)
    assert sim.energy(0, base, base + 20) == pytest.approx(400, abs=1e-6)


def test_power_may_be_set_for_an_instant_to_come(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(watts=10.0))
    before = time.monotonic()
    instant = sim.set_power(0, 300.0, after=100.0)
    assert before + 100 <= instant <= time.monotonic() + 100
    assert sim.energy(0, instant - 1, instant + 1) == pytest.approx(310)


def test_a_wave_is_on_for_its_share_of_every_period(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(watts=10.0))
    start = sim.set_wave(0, 100.0, 300.0, period=0.2, duty=0.25)
    assert [sim.power(0, start + t) for t in (-0.1, 0, 0.049, 0.051, 0.199, 0.201, 20.26)] == [
        10, 300, 300, 100, 100, 300, 100,
    ]  # fmt: skip
    assert sim.energy(0, start - 1, start) == pytest.approx(10)
    assert sim.energy(0, start, start + 60) == pytest.approx(60 * 150)
    assert sim.energy(0, start + 20.04, start + 20.21) == pytest.approx(17 + 200 * (0.01 + 0.01))
    end = sim.set_power(0, 50.0)
    whole, rest = divmod(end - start, 0.2)
    drawn = 100 * (end - start) + 200 * (whole * 0.05 + min(rest, 0.05))
    assert sim.energy(0, start, end + 1) == pytest.approx(drawn + 50)


def test_the_library_draws_the_wave_that_the_controller_knows(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(sensors="live", counter_offset=0.0))
    sim.set_wave(0, 60.0, 400.0, period=0.0137, duty=0.3)
    samples = clients.run(
        "h = start()[0]; samples = []\n"
        "for _ in range(200):\n"
        "    before, watts = time.monotonic(), N.nvmlDeviceGetPowerUsage(h)\n"
        "    between, joules = time.monotonic(), N.nvmlDeviceGetTotalEnergyConsumption(h)\n"
        "    samples.append((before, watts, between, joules, time.monotonic()))\n"
        "    time.sleep(0.001)\n"
        "answer(samples)"
    )
    assert {watts for _, watts, *_ in samples} == {60_000, 400_000}
    for before, watts, between, joules, after in samples:
        ends = {1000 * sim.power(0, before), 1000 * sim.power(0, between)}
        assert watts in ends or between - before > 0.3 * 0.0137
        assert sim.counter(0, between) <= joules <= sim.counter(0, after)


def test_the_past_before_the_simulation_has_the_first_power(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(watts=10.0))
    now = time.monotonic()
    assert sim.energy(0, now - 50, now) == pytest.approx(500)


def test_old_segments_make_room_for_new_ones(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=10.0, sensors="live", counter_offset=0.0))
    start = time.monotonic() - 2000
    sim.schedule(0, [(start + i / 10, float(i % 7)) for i in range(MAX_SEGMENTS - 10)])
    sim.schedule(0, [(start + 1000 + i / 10, float(i % 5)) for i in range(1000)])
    with pytest.raises(ValueError, match="at most"):
        sim.schedule(0, [(time.monotonic() + i, 1.0) for i in range(MAX_SEGMENTS + 1)])
    for watts in range(20):
        sim.set_power(0, float(watts))
    base = time.monotonic() + 1000
    sim.schedule(0, [(base + i, 1.0) for i in range(MAX_SEGMENTS - 500)])
    assert sim.energy(0, base, base + 5000) == pytest.approx(5000)
    with pytest.raises(ValueError, match="dropped"):
        sim.energy(0, start, base)
    before, value, after = clients.run(
        "h = start()[0]; t = time.monotonic()\n"
        "answer([t, N.nvmlDeviceGetTotalEnergyConsumption(h), time.monotonic()])"
    )
    assert sim.counter(0, before) <= value <= sim.counter(0, after)


# --- Power ----------------------------------------------------------------------------------------


def test_power_usage_is_instant_or_an_average(simulate: Simulate) -> None:
    spec = GpuSpec(watts=50.0, sensors=Sensors(None, Sensor(), Sensor(window=1.0)))
    sim, clients = simulate(spec, replace(spec, power_usage_is="average"), spec)
    now = time.monotonic()
    for gpu in range(3):
        sim.schedule(gpu, [(now - 0.1, 250.0), (now + 600, 0.0)])
    instant, before, average, after, field = clients.run(
        "h = start()\n"
        "instant, before = N.nvmlDeviceGetPowerUsage(h[0]), time.monotonic()\n"
        "average, after = N.nvmlDeviceGetPowerUsage(h[1]), time.monotonic()\n"
        f"fields = N.nvmlDeviceGetFieldValues(h[2], [{INSTANT_FIELD}, {AVERAGE_FIELD}])\n"
        "answer([instant, before, average, after, [f.value.uiVal for f in fields]])"
    )
    assert instant == 250_000
    assert 1000 * sim.energy(1, before - 1, before) - 1 <= average
    assert average <= 1000 * sim.energy(1, after - 1, after) + 1
    assert field[0] == 250_000
    assert average - 1 <= field[1] <= 250_000


def test_a_slow_power_sensor_repeats_its_last_sample(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(sensors=Sensors(None, Sensor(period=0.05, phase=0.0))))
    base = time.monotonic()
    sim.schedule(0, [(base + i * 0.013, 100.0 + i) for i in range(300)])
    samples = clients.run(
        "h = start()[0]; samples = []\n"
        "for _ in range(100):\n"
        "    before, value = time.monotonic(), N.nvmlDeviceGetPowerUsage(h)\n"
        "    samples.append((before, value, time.monotonic())); time.sleep(0.001)\n"
        "answer(samples)"
    )

    for before, value, after in samples:
        refreshes = range(int(before // 0.05), int(after // 0.05) + 1)
        assert value in {round(1000 * sim.power(0, number * 0.05)) for number in refreshes}


def test_sensor_noise_is_reproducible(simulate: Simulate) -> None:
    sensors = Sensors(None, Sensor(period=1e6, noise=0.02))
    _, clients = simulate(GpuSpec(watts=200.0, sensors=sensors))
    first, second = (clients.run("answer(N.nvmlDeviceGetPowerUsage(start()[0]))") for _ in "ab")
    assert first == second != 200_000
    assert 180_000 <= first <= 220_000


READ_FIELDS = """
values = N.nvmlDeviceGetFieldValues(start()[0], {fields})
answer([[v.nvmlReturn, v.valueType, v.value.uiVal if v.valueType == 1 else v.value.ullVal]
        for v in values])
"""


def test_fields_carry_their_own_result_and_type(simulate: Simulate) -> None:
    sim, clients = simulate(
        frozen(GpuSpec(watts=200.0, memory_power_fraction=0.25, module_power_extra=50.0))
    )
    fields = [(INSTANT_FIELD, scope) for scope in (0, 1, 2)]
    fields += [(field, 0) for field in LIMIT_FIELDS.values()]
    answers = clients.run(READ_FIELDS.format(fields=[*fields, ENERGY_FIELD, 4242]))
    assert answers[:3] == [[0, 1, 200_000], [0, 1, 250_000], [0, 1, 50_000]]
    assert [a[2] for a in answers[3:8]] == [100_000, 400_000, 400_000, 400_000, 400_000]
    assert answers[8] == [0, 3, sim.counter(0, time.monotonic())]
    assert answers[9][0] == NvmlReturn.NOT_SUPPORTED


def test_unsupported_fields_and_functions(simulate: Simulate) -> None:
    _, clients = simulate(
        GpuSpec(
            unsupported=["nvmlDeviceGetTotalEnergyConsumption"],
            unsupported_fields=[AVERAGE_FIELD],
            persistence_supported=False,
        )
    )
    fields = [(INSTANT_FIELD, 0), (INSTANT_FIELD, 1), (INSTANT_FIELD, 2), (AVERAGE_FIELD, 0)]
    answers = clients.run(READ_FIELDS.format(fields=[*fields, ENERGY_FIELD]))
    unsupported = NvmlReturn.NOT_SUPPORTED
    assert [a[0] for a in answers] == [0, unsupported, unsupported, unsupported, unsupported]
    outcomes = clients.run(
        "h = start()[0]\n"
        "answer([outcome(N.nvmlDeviceGetTotalEnergyConsumption, h),\n"
        "        outcome(N.nvmlDeviceGetPersistenceMode, h),\n"
        "        outcome(N.nvmlDeviceSetPersistenceMode, h, 1),\n"
        "        outcome(N.nvmlDeviceGetFanSpeed, h)])"
    )
    assert outcomes == [error(unsupported)] * 4


def test_temperature_follows_power(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec())
    sim.set_power(0, 250.0)
    assert clients.run(
        "h = start()[0]\n"
        # Older bindings lack the second of these.
        "newer = getattr(N, 'nvmlDeviceGetTemperatureV', N.nvmlDeviceGetTemperature)\n"
        "answer([N.nvmlDeviceGetTemperature(h, 0), newer(h, 0)])"
    ) == [60, 60]

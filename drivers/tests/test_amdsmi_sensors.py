"""The sensors of the simulated AMD SMI library, through the unmodified binding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from drivers.tests.sensor_model import Drawn, counted, same_refresh, unrest

from simulated_drivers import AmdGpuSpec, SimulatedAmdSmi
from simulated_drivers import _sensors as sensing
from zeus.device._sensors import PRESETS, Sensor, Sensors

SENSORS = {name: sensors for name, sensors in PRESETS.items() if sensors.timestamps}
SENSORS["odd"] = Sensors(
    Sensor(period=0.02, jitter=0.01, lag=0.005, gain=0.97),
    Sensor(period=0.02, window=0.01, noise=0.02),
    Sensor(period=0.05, window=0.4, lag=0.1, gain=1.1),
)
SENSORS["part-time"] = Sensors(Sensor(period=0.02, part_time=0.005), Sensor(period=0.02))

READ_ALL = """
import json, time
import amdsmi
amdsmi.amdsmi_init()
handles = amdsmi.amdsmi_get_processor_handles()
found = [[] for _ in handles]
for _ in range(500):
    for gpu, handle in enumerate(handles):
        times = [time.monotonic()]
        energy = amdsmi.amdsmi_get_energy_count(handle)
        times.append(time.monotonic())
        power = amdsmi.amdsmi_get_power_info(handle)
        times.append(time.monotonic())
        found[gpu].append([times, energy["energy_accumulator"], energy["counter_resolution"],
                           energy["timestamp"], power["current_socket_power"],
                           power["average_socket_power"]])
    time.sleep(0.002)
print(json.dumps(found))
"""


@pytest.mark.real_time
def test_readings_are_those_of_the_model(tmp_path: Path, amdsmi_library: Path) -> None:
    specs = [AmdGpuSpec(sensors=s, average_power=True) for s in SENSORS.values()]
    with SimulatedAmdSmi.create(tmp_path / "state", specs) as sim:
        points = unrest(40)
        for gpu in range(len(specs)):
            sim.schedule(gpu, points)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROCM_")}
        environment |= {"ROCM_PATH": str(tmp_path), **sim.environment(amdsmi_library)}
        done = subprocess.run(
            [sys.executable, "-c", READ_ALL],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    drawn = Drawn(points)
    for index, (name, readings) in enumerate(zip(SENSORS, json.loads(done.stdout), strict=True)):
        sensors = SENSORS[name]
        _check_counter(sensors.counter, sensing.salt(index, "counter"), drawn, readings)
        salt = sensing.salt(index, "instant")
        _check_power(sensors.power, salt, drawn, readings, 4)
        if sensors.average is not None:
            _check_power(sensors.average, sensing.salt(index, "average"), drawn, readings, 5)
        else:  # the filtered power is all there is
            _check_power(sensors.power, salt, drawn, readings, 5)


def _check_counter(counter: Sensor | None, salt: int, drawn: Drawn, readings: list) -> None:
    assert counter is not None
    shown: dict[int, float] = {}
    for (before, after, _), count, resolution, timestamp, *_ in readings:
        # Every reading says of which refresh it is, however long the call took.
        number = counter.last_refresh(timestamp / 1e9 + 1e-6, salt)
        assert counter.refresh(number, salt) == pytest.approx(timestamp / 1e9, abs=1e-7)
        assert counter.last_refresh(before, salt) <= number <= counter.last_refresh(after, salt)
        assert resolution == pytest.approx(15.3)
        shown.setdefault(number, count * resolution / 1e6)
    assert len(shown) >= 4
    first = min(shown)
    for number, joules in shown.items():
        expected = counted(counter, drawn, first, number, salt)
        assert joules - shown[first] == pytest.approx(expected, abs=20e-6)


def _check_power(sensor: Sensor, salt: int, drawn: Drawn, readings: list, place: int) -> None:
    compared = 0
    for reading in readings:
        _, before, after = reading[0]
        if same_refresh(sensor, before, after, salt) is not None:
            assert reading[place] == pytest.approx(
                sensor.power(drawn, before, salt, drawn.watts), abs=0.51
            )
            compared += 1
    assert compared > 20

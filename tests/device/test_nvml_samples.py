"""Counter and power of NVIDIA GPUs in one call, and the samples that the driver dates itself."""

from __future__ import annotations

import pytest
from tests.device.nvml_rig import (
    IMPLAUSIBLE,
    INSTANT_FIELD,
    LOST,
    NEW,
    NO_FIELDS,
    OLD,
    UNSUPPORTED,
    MakeRig,
)

from simulated_drivers import GpuSpec
from zeus.device._sensors import Sensor, Sensors

ENERGY_FIELD = 83
COUNTER, FIELDS = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues"

SAMPLES = """
def sampled(driver):
    return [[str(reading.reason), reading.detail] if isinstance(reading, CapabilityError)
            else reading for reading in driver.sample()]
"""


def test_counter_and_power_are_read_in_one_call(rig: MakeRig) -> None:
    sensors = Sensors(Sensor(period=0.02), Sensor())
    machine = rig(GpuSpec(watts=250.0, sensors=sensors, counter_offset=1000.5))
    told = machine.ask(
        SAMPLES
        + f"""
driver = get_gpus()[0].driver
driver.sample()
before = [simulation.calls(name) for name in ("{COUNTER}", "{FIELDS}")]
readings = []
for _ in range(50):
    begun = time.monotonic()
    joules, watts = sampled(driver)
    if simulation.last_tick(0, begun) == simulation.last_tick(0, time.monotonic()):
        readings.append([joules, watts, simulation.counter(0, begun) / 1000])
    time.sleep(0.002)
after = [simulation.calls(name) for name in ("{COUNTER}", "{FIELDS}")]
say([readings, after[0] - before[0], after[1] - before[1]])
"""
    )
    readings, counter_calls, field_calls = told
    assert len(readings) > 5
    for joules, watts, true in readings:
        assert joules == pytest.approx(true, abs=1e-9)
        assert watts == 250.0
    assert (counter_calls, field_calls) == (0, 50)


def test_what_is_no_field_is_read_by_itself(rig: MakeRig) -> None:
    machine = rig(
        GpuSpec(watts=100.0),
        GpuSpec(watts=100.0, unsupported_fields=[ENERGY_FIELD]),
        GpuSpec(watts=100.0, compute_capability=OLD, unsupported_fields=NO_FIELDS),
        GpuSpec(watts=100.0, compute_capability=OLD, unsupported=[FIELDS]),
        GpuSpec(watts=100.0, compute_capability=NEW, unsupported_fields=[INSTANT_FIELD]),
        GpuSpec(watts=100.0, unsupported=[COUNTER]),
    )
    told = machine.ask(
        SAMPLES + "say([[sampled(gpu.driver), sampled(gpu.driver), outcome(gpu.driver.energy),"
        " outcome(gpu.driver.instant_power)] for gpu in get_gpus()])"
    )
    for number, (first, second, _, _) in enumerate(told):
        for joules, watts in (first, second):
            assert (joules[0] == UNSUPPORTED) if number == 5 else joules >= 0.0
            assert (watts[0] == UNSUPPORTED) if number == 4 else watts == 100.0
    for first, _, energy, power in told:  # as each for itself says
        for reading, alone in zip(first, (energy, power), strict=True):
            assert isinstance(reading, list) == isinstance(alone, list)
            assert not isinstance(reading, list) or reading == alone[:2]


def test_each_reading_of_a_sample_fails_for_itself_and_comes_back(rig: MakeRig) -> None:
    told = rig(GpuSpec(watts=100.0)).ask(
        SAMPLES
        + f"""
driver = get_gpus()[0].driver
found = []
for fault in ("lost", "none", "sentinel", "none"):
    simulation.clear_faults(0)
    if fault == "lost":
        simulation.lose(0)
    elif fault == "sentinel":
        simulation.fault(0, "{FIELDS}", "sentinel")
    found.append(sampled(driver))
say(found)
"""
    )
    lost, well, wrong, again = told
    assert [reading[0] for reading in lost] == [LOST, LOST]
    assert [reading[0] for reading in wrong] == [IMPLAUSIBLE, IMPLAUSIBLE]
    for joules, watts in (well, again):
        assert joules >= 0.0
        assert watts == 100.0


def test_dated_samples_are_there_or_unsupported(rig: MakeRig) -> None:
    told = rig(GpuSpec(watts=100.0)).ask(
        "now = time.monotonic()\n"
        "say([now, outcome(get_gpus()[0].driver.power_samples, now - 10.0), time.monotonic()])"
    )
    now, samples, later = told
    if samples and isinstance(samples[0], str):
        assert samples[0] == UNSUPPORTED
        return
    instants = [instant for instant, _ in samples]
    assert instants == sorted(instants)
    assert all(now - 10.0 < instant < later + 1.0 for instant in instants)


# A driver that has samples, in place of the binding's function.
DATED = """
import pynvml


def stand_in(ages, watts=150.0, kind=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, error=None):
    def get_samples(handle, sampling, since):
        assert sampling == pynvml.NVML_TOTAL_POWER_SAMPLES
        if error is not None:
            raise pynvml.NVMLError(error)
        samples = []
        for age in ages:
            sample = pynvml.c_nvmlSample_t()
            sample.timeStamp = 0 if age is None else round((time.time() - age) * 1e6)
            sample.sampleValue.uiVal = round(watts * 1000)
            if age is None or sample.timeStamp > since:
                samples.append(sample)
        return kind, samples
    pynvml.nvmlDeviceGetSamples = get_samples

driver = get_gpus()[0].driver
def asked(back):
    now = time.monotonic()
    found = outcome(driver.power_samples, now - back)
    told = found and isinstance(found[0], str)
    return found[0] if told else [[now - instant, watts] for instant, watts in found]
"""


@pytest.mark.real_time
def test_dated_samples_are_mapped_to_our_clock(rig: MakeRig) -> None:
    several, few, none = rig(GpuSpec()).ask(
        DATED
        + """
stand_in([None, None, 3.0, 2.0, 1.0])
several, few = asked(10.0), asked(1.5)
stand_in([], error=pynvml.NVML_ERROR_NOT_FOUND)
say([several, few, asked(10.0)])
"""
    )
    assert [age for age, _ in several] == pytest.approx([3.0, 2.0, 1.0], abs=0.5)
    assert {watts for _, watts in several} == {150.0}
    assert [age for age, _ in few] == pytest.approx([1.0], abs=0.5)
    assert none == []


def test_dates_that_cannot_be_are_refused(rig: MakeRig) -> None:
    told = rig(GpuSpec()).ask(
        DATED
        + """
said = []
for arguments in ({"ages": [1.0, 2.0]}, {"ages": [1.0, -3600.0]}, {"ages": [1.0], "kind": 0},
                  {"ages": [], "error": pynvml.NVML_ERROR_NOT_SUPPORTED}):
    stand_in(**arguments)
    said.append(asked(10.0))
say(said)
"""
    )
    assert told == [IMPLAUSIBLE, IMPLAUSIBLE, IMPLAUSIBLE, UNSUPPORTED]

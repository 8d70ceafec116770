"""The simulated NVML driver, seen through the unmodified binding and through other tools.

Every client runs in a process of its own, because the loader reads LD_LIBRARY_PATH only once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.drivers import build as building
from tests.drivers.nvml_state import (
    MAX_SEGMENTS,
    ClockSettings,
    GpuSpec,
    NvmlReturn,
    SimulatedNvml,
)

pytestmark = pytest.mark.real_time

# What every client starts with. `outcome` turns an error of the binding into its number.
PRELUDE = """
import json, os, sys, threading, time
import pynvml as N

def outcome(function, *arguments):
    try:
        return function(*arguments)
    except N.NVMLError as error:
        return f"error {error.value}"

def answer(value):
    print(json.dumps(value), flush=True)

def start():
    N.nvmlInit()
    return [N.nvmlDeviceGetHandleByIndex(i) for i in range(N.nvmlDeviceGetCount())]
"""

ENERGY_FIELD, AVERAGE_FIELD, INSTANT_FIELD = 83, 185, 186
LIMIT_FIELDS = {"min": 187, "max": 188, "default": 189, "current": 190, "requested": 192}


def error(code: NvmlReturn) -> str:
    return f"error {code.value}"


def frozen(spec: GpuSpec) -> GpuSpec:
    """The same GPU with an energy counter that ticked just now and not again for long."""
    return replace(spec, tick_period=1e6, tick_phase=time.monotonic())


class Clients:
    """Starts processes that use one simulated driver."""

    def __init__(self, sim: SimulatedNvml, library: Path) -> None:
        self.environment = os.environ | sim.environment(library)

    def start(self, code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRELUDE + code]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, client: subprocess.Popen[str]) -> Any:
        out, err = client.communicate(timeout=30)
        assert client.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def run(self, code: str) -> Any:
        return self.finish(self.start(code))

    def module(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


Simulate = Callable[..., tuple[SimulatedNvml, Clients]]


@pytest.fixture
def simulate(tmp_path: Path, nvml_library: Path) -> Iterator[Simulate]:
    created: list[SimulatedNvml] = []

    def create(*gpus: GpuSpec, **options: Any) -> tuple[SimulatedNvml, Clients]:
        sim = SimulatedNvml.create(tmp_path / f"nvml-{len(created)}", gpus, **options)
        created.append(sim)
        return sim, Clients(sim, nvml_library)

    yield create
    for sim in created:
        sim.close()


def wait_for_call(sim: SimulatedNvml, function: str) -> None:
    deadline = time.monotonic() + 20
    while sim.calls(function) == 0:
        assert time.monotonic() < deadline, f"{function} was never called"
        time.sleep(0.002)


# Energy


READ_COUNTERS = """
handles = start()
answer("ready")
samples = []
end = time.monotonic() + 0.6
while time.monotonic() < end:
    for gpu, handle in enumerate(handles):
        before = time.monotonic()
        value = N.nvmlDeviceGetTotalEnergyConsumption(handle)
        samples.append((gpu, before, value, time.monotonic()))
    time.sleep(0.0005)
answer(samples)
"""


def test_the_counter_shows_the_exact_energy_at_the_last_tick(simulate: Simulate) -> None:
    sim, clients = simulate(
        GpuSpec(tick_period=0.02),
        GpuSpec(tick_period=0.05, tick_phase=0.013, tick_jitter=0.04, counter_gain=1.25),
        GpuSpec(tick_period=0.0, counter_offset=123456.789),
    )
    client = clients.start(READ_COUNTERS)
    assert client.stdout is not None
    client.stdout.readline()
    for step in range(150):
        for gpu in range(3):
            sim.set_power(gpu, 50 + 37 * (step % 9) + gpu)
        time.sleep(0.003)
    samples = clients.finish(client)
    assert len(samples) > 100
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


def test_the_past_before_the_simulation_has_the_first_power(simulate: Simulate) -> None:
    sim, _ = simulate(GpuSpec(watts=10.0))
    now = time.monotonic()
    assert sim.energy(0, now - 50, now) == pytest.approx(500)


def test_old_segments_make_room_for_new_ones(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=10.0, tick_period=0.0, counter_offset=0.0))
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


# Power


def test_power_usage_is_instant_or_an_average(simulate: Simulate) -> None:
    sim, clients = simulate(
        GpuSpec(watts=50.0), GpuSpec(watts=50.0, power_usage_is="average"), GpuSpec(watts=50.0)
    )
    now = time.monotonic()
    for gpu in range(3):
        sim.schedule(gpu, [(now - 0.1, 250.0), (now + 60, 0.0)])
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
    sim, clients = simulate(GpuSpec(power_period=0.05, power_phase=0.0))
    base = time.monotonic()
    sim.schedule(0, [(base + i * 0.013, 100.0 + i) for i in range(300)])
    samples = clients.run(
        "h = start()[0]; samples = []\n"
        "for _ in range(100):\n"
        "    before, value = time.monotonic(), N.nvmlDeviceGetPowerUsage(h)\n"
        "    samples.append((before, value, time.monotonic())); time.sleep(0.001)\n"
        "answer(samples)"
    )

    def expected(instant: float) -> int:
        return round(1000 * sim.power(0, instant // 0.05 * 0.05))

    assert all(value in (expected(before), expected(after)) for before, value, after in samples)


def test_sensor_noise_is_bounded_and_reproducible(simulate: Simulate) -> None:
    _, clients = simulate(GpuSpec(watts=200.0, power_noise=0.02, power_period=1e6))
    first, second = (clients.run("answer(N.nvmlDeviceGetPowerUsage(start()[0]))") for _ in "ab")
    assert first == second != 200_000
    assert 196_000 <= first <= 204_000


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


# Settings


def test_settings_are_shared_between_processes(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(needs_root=False), GpuSpec(needs_root=False))
    clients.run(
        "a, b = start()\n"
        "N.nvmlDeviceSetPowerManagementLimit(a, 250_000)\n"
        "N.nvmlDeviceSetPowerManagementLimit_v2(b, N.NVML_POWER_SCOPE_GPU, 150_000)\n"
        "N.nvmlDeviceSetPersistenceMode(a, 1)\n"
        "N.nvmlDeviceSetGpuLockedClocks(a, 600, 900)\n"
        "N.nvmlDeviceSetMemoryLockedClocks(a, 1215, 1215)\n"
        "N.nvmlDeviceSetApplicationsClocks(b, 1215, 1200)\n"
        "answer(None)"
    )
    assert [sim.power_limit(0), sim.power_limit(1)] == [250.0, 150.0]
    assert [sim.persistence(0), sim.persistence(1)] == [True, False]
    assert sim.clocks(0) == ClockSettings((600, 900), (1215, 1215), 1215, 1410)
    assert sim.clocks(1) == ClockSettings(None, None, 1215, 1200)
    assert clients.run(
        "a, b = start()\n"
        "answer([N.nvmlDeviceGetPowerManagementLimit(a), N.nvmlDeviceGetEnforcedPowerLimit(b),\n"
        "        N.nvmlDeviceGetPersistenceMode(a), N.nvmlDeviceGetClockInfo(a, 0),\n"
        "        N.nvmlDeviceGetClock(b, 0, 0), N.nvmlDeviceGetApplicationsClock(b, 0)])"
    ) == [250_000, 150_000, 1, 900, 1200, 1200]
    clients.run(
        "a, b = start()\n"
        "N.nvmlDeviceResetGpuLockedClocks(a); N.nvmlDeviceResetMemoryLockedClocks(a)\n"
        "N.nvmlDeviceResetApplicationsClocks(b)\n"
        "answer(None)"
    )
    assert sim.clocks(0) == sim.clocks(1) == ClockSettings(None, None, 1215, 1410)


def test_what_the_driver_refuses_changes_nothing(simulate: Simulate) -> None:
    sim, clients = simulate(
        GpuSpec(needs_root=False, min_power_limit=100, max_power_limit=300, default_power_limit=280)
    )
    invalid = error(NvmlReturn.INVALID_ARGUMENT)
    assert clients.run(
        "h = start()[0]\n"
        "answer([N.nvmlDeviceGetPowerManagementLimitConstraints(h),\n"
        "        N.nvmlDeviceGetPowerManagementDefaultLimit(h),\n"
        "        outcome(N.nvmlDeviceSetPowerManagementLimit, h, 99_999),\n"
        "        outcome(N.nvmlDeviceSetPowerManagementLimit, h, 300_001),\n"
        "        outcome(N.nvmlDeviceSetGpuLockedClocks, h, 900, 600),\n"
        "        outcome(N.nvmlDeviceSetApplicationsClocks, h, 1215, 1201)])"
    ) == [[100_000, 300_000], 280_000, invalid, invalid, invalid, invalid]
    assert sim.power_limit(0) == 280.0


ATTEMPT_CONTROL = """
answer([outcome(N.nvmlDeviceSetPowerManagementLimit, h, 200_000),
        outcome(N.nvmlDeviceSetPersistenceMode, h, 1),
        outcome(N.nvmlDeviceSetGpuLockedClocks, h, 600, 900)])
"""


def test_control_is_refused_on_demand(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(needs_root=False))
    sim.deny_control()
    refused = [error(NvmlReturn.NO_PERMISSION)] * 3
    assert clients.run("h = start()[0]" + ATTEMPT_CONTROL) == refused
    sim.deny_control(False)
    assert clients.run("h = start()[0]" + ATTEMPT_CONTROL) == [None] * 3
    assert sim.power_limit(0) == 200.0


def test_control_may_need_root(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(needs_root=True))
    become_nobody = "h = start()[0]\nif os.geteuid() == 0: os.seteuid(65534)\n"
    refused = [error(NvmlReturn.NO_PERMISSION)] * 3
    assert clients.run(become_nobody + ATTEMPT_CONTROL) == refused
    assert sim.power_limit(0) == 400.0


def test_clocks_are_listed(simulate: Simulate) -> None:
    _, clients = simulate(GpuSpec(memory_clocks=[810, 1593], graphics_clocks=[900, 1980, 1200]))
    assert clients.run(
        "h = start()[0]\n"
        "answer([N.nvmlDeviceGetSupportedMemoryClocks(h),\n"
        "        N.nvmlDeviceGetSupportedGraphicsClocks(h, 1593),\n"
        "        outcome(N.nvmlDeviceGetSupportedGraphicsClocks, h, 1),\n"
        "        N.nvmlDeviceGetMaxClockInfo(h, 0), N.nvmlDeviceGetMaxClockInfo(h, 2)])"
    ) == [[1593, 810], [1980, 1200, 900], error(NvmlReturn.NOT_FOUND), 1980, 1593]


# Faults


READ_BOTH = """
handles = start()
answer([outcome(N.nvmlDeviceGetPowerUsage, h) for h in handles]
       + [outcome(N.nvmlDeviceGetTotalEnergyConsumption, h) for h in handles])
"""


def test_a_lost_gpu_still_has_a_handle_but_answers_nothing(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=100.0), frozen(GpuSpec(watts=100.0)))
    sim.lose(0)
    lost = error(NvmlReturn.GPU_IS_LOST)
    counter = sim.counter(1, time.monotonic())
    assert clients.run(READ_BOTH) == [lost, 100_000, lost, counter]
    sim.clear_faults(0)
    assert clients.run(READ_BOTH)[0] == 100_000


def test_a_gpu_may_be_lost_from_the_start(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(lost_at_init=True), GpuSpec())
    look_up = (
        "N.nvmlInit()\n"
        "found = [outcome(N.nvmlDeviceGetHandleByIndex, i) for i in range(2)]\n"
        "answer([x if isinstance(x, str) else 'handle' for x in found])"
    )
    assert clients.run(look_up) == [error(NvmlReturn.GPU_IS_LOST), "handle"]
    sim.set_lost_at_init(0, False)
    assert clients.run(look_up) == ["handle", "handle"]


def test_errors_strike_one_function_for_a_while(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=100.0))
    sim.fault(0, "nvmlDeviceGetPowerUsage", "error", code=NvmlReturn.TIMEOUT, skip=1, times=2)
    assert clients.run(
        "h = start()[0]\n"
        "answer([outcome(N.nvmlDeviceGetPowerUsage, h) for _ in range(4)]\n"
        "       + [N.nvmlDeviceGetName(h)])"
    ) == [100_000, "error 10", "error 10", 100_000, GpuSpec().name]
    assert sim.calls("nvmlDeviceGetPowerUsage") == 4


def test_the_driver_itself_may_fail(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec())
    sim.fault(None, "nvmlInitWithFlags", "error", code=NvmlReturn.LIB_RM_VERSION_MISMATCH)
    assert clients.run("answer(outcome(N.nvmlInit))") == "error 18"
    sim.clear_faults(None)
    assert clients.run("answer([outcome(N.nvmlInit), outcome(N.nvmlShutdown)])") == [None, None]


def test_a_hanging_call_ends_with_its_process_or_with_the_fault(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=100.0))
    sim.fault(0, "nvmlDeviceGetPowerUsage", "hang")
    code = "h = start()[0]; answer(N.nvmlDeviceGetPowerUsage(h))"
    doomed, patient = clients.start(code), clients.start(code)
    wait_for_call(sim, "nvmlDeviceGetPowerUsage")
    with pytest.raises(subprocess.TimeoutExpired):
        doomed.wait(timeout=0.3)
    doomed.kill()
    doomed.communicate(timeout=20)
    assert doomed.returncode != 0
    assert patient.poll() is None
    sim.clear_faults(0)
    assert clients.finish(patient) == 100_000


def test_a_hang_blocks_only_the_thread_that_called(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=100.0), GpuSpec(watts=150.0))
    sim.fault(0, "*", "hang")
    assert clients.run(
        "h = start()\n"
        "t = threading.Thread(target=N.nvmlDeviceGetPowerUsage, args=(h[0],), daemon=True)\n"
        "t.start()\n"
        "value = N.nvmlDeviceGetPowerUsage(h[1])\n"
        "t.join(0.1); answer([value, t.is_alive()]); os._exit(0)"
    ) == [150_000, True]


def test_delays_slow_a_call_down(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(watts=100.0))
    timed = (
        "h = start()[0]; t = time.monotonic()\n"
        "value = N.nvmlDeviceGetPowerUsage(h); answer([value, time.monotonic() - t])"
    )
    sim.fault(0, "nvmlDeviceGetPowerUsage", "delay", seconds=0.05)
    value, took = clients.run(timed)
    assert value == 100_000
    assert took >= 0.05
    sim.clear_faults(0)
    sim.set_driver_latency(20e-6)
    assert clients.run(timed)[1] >= 20e-6


def test_sentinels_are_garbage_of_the_right_width(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec())
    sim.fault(0, "*", "sentinel")
    assert clients.run(
        "h = start()[0]\n"
        f"fields = N.nvmlDeviceGetFieldValues(h, [{INSTANT_FIELD}, {ENERGY_FIELD}])\n"
        "answer([N.nvmlDeviceGetPowerUsage(h), N.nvmlDeviceGetTotalEnergyConsumption(h),\n"
        "        N.nvmlDeviceGetMemoryInfo(h).used, N.nvmlDeviceGetUtilizationRates(h).gpu,\n"
        "        fields[0].value.uiVal, fields[1].value.ullVal, N.nvmlDeviceGetName(h)])"
    ) == [
        2**32 - 1, 2**64 - 1, 2**64 - 1, 2**32 - 1, 2**32 - 1, 2**64 - 1, GpuSpec().name,
    ]  # fmt: skip


def test_calls_are_counted_over_all_processes(simulate: Simulate) -> None:
    sim, clients = simulate(GpuSpec(), GpuSpec())
    code = (
        "handles = start()\n"
        "def work():\n"
        "    for _ in range(500):\n"
        "        N.nvmlDeviceGetPowerUsage(handles[0])\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "answer(None)"
    )
    running = [clients.start(code) for _ in range(2)]
    for client in running:
        clients.finish(client)
    assert sim.calls("nvmlDeviceGetPowerUsage") == 4000
    assert sim.calls("nvmlDeviceGetHandleByIndex_v2") == 4
    assert sim.calls("nvmlDeviceGetTotalEnergyConsumption") == 0
    with pytest.raises(ValueError, match="nvmlNoSuchThing"):
        sim.calls("nvmlNoSuchThing")


# Identity


def test_handles_are_found_by_whatever_names_a_gpu(simulate: Simulate) -> None:
    uuids = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000"]
    _, clients = simulate(
        GpuSpec(uuid=uuids[0], pci_bus=0x3B), GpuSpec(uuid=uuids[1], pci_bus=0xAF, serial="S-42")
    )
    missing = error(NvmlReturn.NOT_FOUND)
    assert clients.run(
        "h = start()\n"
        "def index(look_up, key):\n"
        "    found = outcome(look_up, key)\n"
        "    return found if isinstance(found, str) else N.nvmlDeviceGetIndex(found)\n"
        "by_bus, by_uuid = N.nvmlDeviceGetHandleByPciBusId, N.nvmlDeviceGetHandleByUUID\n"
        f"answer([index(by_uuid, {uuids[1]!r}), index(by_uuid, 'GPU-nobody'),\n"
        "        index(by_bus, '0000:af:00.0'), index(by_bus, '00000000:3B:00.0'),\n"
        "        index(by_bus, '0000:01:00.0'), index(N.nvmlDeviceGetHandleBySerial, 'S-42'),\n"
        "        outcome(N.nvmlDeviceGetHandleByIndex, 2),\n"
        "        [N.nvmlDeviceGetUUID(x) for x in h], N.nvmlDeviceGetPciInfo(h[1]).busId,\n"
        "        N.nvmlDeviceGetPciInfo(h[1]).busIdLegacy])"
    ) == [
        1, missing, 1, 0, missing, 1, "error 2", uuids, "00000000:AF:00.0", "0000:AF:00.0",
    ]  # fmt: skip


def test_mig_devices_belong_to_their_gpu(simulate: Simulate) -> None:
    _, clients = simulate(
        GpuSpec(mig_uuids=["aaaa", "MIG-bbbb"]), GpuSpec(), GpuSpec(mig_supported=False)
    )
    assert clients.run(
        "h = start()\n"
        "migs = [N.nvmlDeviceGetMigDeviceHandleByIndex(h[0], i) for i in range(2)]\n"
        "found = N.nvmlDeviceGetHandleByUUID('MIG-bbbb')\n"
        "parent = N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)\n"
        "answer([\n"
        "    [outcome(N.nvmlDeviceGetMigMode, x) for x in h],\n"
        "    [N.nvmlDeviceGetMaxMigDeviceCount(x) for x in h],\n"
        "    [N.nvmlDeviceGetUUID(m) for m in migs],\n"
        "    N.nvmlDeviceGetIndex(parent), N.nvmlDeviceGetIndex(found),\n"
        "    [N.nvmlDeviceIsMigDeviceHandle(x).value for x in (parent, found)],\n"
        "    N.nvmlDeviceGetGpuInstanceId(found), N.nvmlDeviceGetComputeInstanceId(found),\n"
        "    outcome(N.nvmlDeviceGetMigDeviceHandleByIndex, h[0], 2),\n"
        "    outcome(N.nvmlDeviceGetPowerUsage, found),\n"
        "    outcome(N.nvmlDeviceGetTotalEnergyConsumption, found),\n"
        "    outcome(N.nvmlDeviceGetFieldValues, found, [186]),\n"
        "    outcome(N.nvmlDeviceSetPowerManagementLimit, found, 200_000),\n"
        "    N.nvmlDeviceGetMemoryInfo(found).total == 40 * 2**30])"
    ) == [
        [[1, 1], [0, 0], "error 3"],
        [7, 7, 0],
        ["MIG-aaaa", "MIG-bbbb"],
        0, 1, [0, 1], 2, 0, "error 6", "error 3", "error 3", "error 3", "error 3", True,
    ]  # fmt: skip


def test_the_rest_of_what_a_gpu_tells(simulate: Simulate) -> None:
    pid = os.getpid()
    _, clients = simulate(
        GpuSpec(
            name="NVIDIA H100 80GB HBM3", architecture=9, compute_capability=(9, 0), cores=16896,
            minor_number=5, memory_used=2**30, memory_reserved=2**20, utilization_gpu=88,
            utilization_memory=33, compute_processes=[(pid, 2**29)],
            graphics_processes=[(1, 2**20)], performance_state=2,
        ),
        driver_version="999.1",
        cuda_version=13010,
    )  # fmt: skip
    told = clients.run(
        "h = start()[0]\n"
        "v1, v2 = N.nvmlDeviceGetMemoryInfo(h), N.nvmlDeviceGetMemoryInfo(h, N.nvmlMemory_v2)\n"
        "answer({\n"
        " 'name': N.nvmlDeviceGetName(h), 'arch': N.nvmlDeviceGetArchitecture(h),\n"
        " 'cc': N.nvmlDeviceGetCudaComputeCapability(h), 'cores': N.nvmlDeviceGetNumGpuCores(h),\n"
        " 'minor': N.nvmlDeviceGetMinorNumber(h), 'v1': v1.used, 'v2': [v2.used, v2.reserved],\n"
        " 'sum': [v1.used + v1.free - v1.total, v2.used + v2.reserved + v2.free - v2.total],\n"
        " 'util': N.nvmlDeviceGetUtilizationRates(h).gpu, 'pstate':\n"
        " N.nvmlDeviceGetPerformanceState(h), 'compute':\n"
        " [[p.pid, p.usedGpuMemory] for p in N.nvmlDeviceGetComputeRunningProcesses(h)],\n"
        " 'graphics': [p.pid for p in N.nvmlDeviceGetGraphicsRunningProcesses(h)],\n"
        " 'process': outcome(N.nvmlSystemGetProcessName, os.getpid()),\n"
        " 'nobody': outcome(N.nvmlSystemGetProcessName, 4000000000),\n"
        " 'driver': N.nvmlSystemGetDriverVersion(), 'cuda': N.nvmlSystemGetCudaDriverVersion(),\n"
        " 'absent': outcome(N.nvmlDeviceGetGspFirmwareVersion, h, b''),\n"
        " 'text': str(N.NVMLError(N.NVML_ERROR_GPU_IS_LOST)),\n"
        "})"
    )
    assert told.pop("process").endswith(Path(sys.executable).name)
    assert told.pop("text")
    assert told == {
        "name": "NVIDIA H100 80GB HBM3", "arch": 9, "cc": [9, 0], "cores": 16896, "minor": 5,
        "v1": 2**30 + 2**20, "v2": [2**30, 2**20], "sum": [0, 0], "util": 88, "pstate": 2,
        "compute": [[pid, 2**29]], "graphics": [1], "nobody": "error 6", "driver": "999.1",
        "cuda": 13010, "absent": "error 13",
    }  # fmt: skip


# Loading


def test_without_a_state_file_there_is_no_driver(
    simulate: Simulate, nvml_library: Path, tmp_path: Path
) -> None:
    _, clients = simulate(GpuSpec())
    state = clients.environment.pop("ZEUS_SIMULATED_NVML")
    assert clients.run("answer(outcome(N.nvmlInit))") == "error 9"
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"?" + Path(state).read_bytes()[1:])
    clients.environment["ZEUS_SIMULATED_NVML"] = str(damaged)
    assert clients.run("answer(outcome(N.nvmlInit))") == "error 18"
    with pytest.raises(ValueError, match="no state file"):
        SimulatedNvml(damaged)


def test_calls_need_an_initialized_library(simulate: Simulate) -> None:
    _, clients = simulate(GpuSpec())
    assert clients.run(
        "h = start()[0]; N.nvmlInit(); N.nvmlShutdown()\n"
        "between = outcome(N.nvmlDeviceGetIndex, h); N.nvmlShutdown()\n"
        "after = outcome(N.nvmlDeviceGetIndex, h); N.nvmlInit()\n"
        "answer([between, after, outcome(N.nvmlDeviceGetIndex, h),\n"
        "        outcome(N.nvmlDeviceGetIndex, N.c_nvmlDevice_t())])"
    ) == [0, "error 1", 0, "error 2"]


def test_a_broken_source_shows_what_the_compiler_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml" / "broken.c").write_text("this is not C\n")
    monkeypatch.setattr(building, "_SOURCES", tmp_path)
    with pytest.raises(building.BuildError, match=r"broken\.c:1"):
        building.build("nvml", tmp_path / "out")
    with pytest.raises(building.BuildError, match="no simulated driver"):
        building.build("nothing", tmp_path / "out")


# Other people's tools


@pytest.fixture
def busy_pair(simulate: Simulate) -> tuple[SimulatedNvml, Clients]:
    sim, clients = simulate(
        GpuSpec(name="NVIDIA A100-SXM4-80GB", memory_used=5 * 2**30, fan_percent=41,
                compute_processes=[(os.getpid(), 3 * 2**30)], needs_root=False),
        GpuSpec(name="NVIDIA GeForce RTX 3090", memory_total=24 * 2**30, default_power_limit=350,
                mig_supported=False, ecc_supported=False, utilization_gpu=77),
    )  # fmt: skip
    sim.set_power(0, 321.0)
    sim.set_power(1, 123.0)
    sim.set_power_limit(0, 333.0)
    return sim, clients


def test_gpustat_reads_the_driver(busy_pair: tuple[SimulatedNvml, Clients]) -> None:
    pytest.importorskip("gpustat")
    _, clients = busy_pair
    gpus = json.loads(clients.module("gpustat", "--json"))["gpus"]
    assert [g["name"] for g in gpus] == ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 3090"]
    assert [g["power.draw"] for g in gpus] == [321, 123]
    assert [g["enforced.power.limit"] for g in gpus] == [333, 350]
    assert [g["memory.used"] for g in gpus] == [5120, 0]
    assert [g["memory.total"] for g in gpus] == [81920, 24576]
    assert [g["utilization.gpu"] for g in gpus] == [0, 77]
    assert [g["temperature.gpu"] for g in gpus] == [68, 44]
    assert [p["pid"] for p in gpus[0]["processes"]] == [os.getpid()]


def test_nvitop_reads_the_driver(busy_pair: tuple[SimulatedNvml, Clients]) -> None:
    pytest.importorskip("nvitop")
    _, clients = busy_pair
    seen = clients.run(
        "from nvitop import Device\n"
        "devices = Device.all()\n"
        "answer([[d.name(), d.power_usage(), d.power_limit(), d.memory_used(), d.memory_total(),\n"
        "         d.gpu_utilization(), d.temperature(), list(d.processes())] for d in devices])"
    )
    pid = os.getpid()
    assert seen[0] == [
        "NVIDIA A100-SXM4-80GB", 321_000, 333_000, 5 * 2**30, 80 * 2**30, 0, 68, [pid],
    ]  # fmt: skip
    assert seen[1] == [
        "NVIDIA GeForce RTX 3090", 123_000, 350_000, 0, 24 * 2**30, 77, 44, [],
    ]  # fmt: skip


def test_the_screen_of_nvitop_shows_the_driver(busy_pair: tuple[SimulatedNvml, Clients]) -> None:
    pytest.importorskip("nvitop")
    _, clients = busy_pair
    screen = clients.module("nvitop", "--once", "--ascii")
    assert "A100-SXM4-80GB" in screen
    assert "321W / 333W" in screen
    assert "123W / 350W" in screen
    assert "5120MiB / 80.00GiB" in screen

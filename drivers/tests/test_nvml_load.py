"""A load on the simulated NVML driver: power and speed answer to the knobs that clients turn."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from drivers.tests.nvml_clients import Clients

from simulated_drivers import Operation, SimulatedNvml, parts
from simulated_drivers._nvml import MAX_SEGMENTS
from zeus.device._sensors import Sensor, Sensors
from zeus.device._simulated_models import MODELS

# What every client starts with: the GPU, and a hand on its limit.
HANDS = """
gpu = start()[0]

def limit(watts):
    N.nvmlDeviceSetPowerManagementLimit(gpu, round(watts * 1000))
"""

A100 = MODELS["a100"]
HEAVY = {"activity": 1.0, "compute_bound": 0.5}


class Bench(Clients):
    """One simulated GPU under load, and processes that turn its knobs."""

    def __init__(self, folder: Path, library: Path, **changes: Any) -> None:
        self.load = parts.load(A100, **HEAVY)
        self.sim = SimulatedNvml.create(folder / "state", [parts.spec("a100", HEAVY, **changes)])
        super().__init__(self.sim, library)

    def start(self, code: str) -> subprocess.Popen[str]:
        return super().start(HANDS + code)

    def now(self) -> Operation:
        return Operation(self.sim.power(0, time.monotonic()), self.sim.speed(0))

    def segments(self) -> list[tuple[float, float, float]]:
        power = self.sim._gpu(0).power
        return [(s.start, s.watts, s.joules) for s in power.segments[: power.segment_count]]


@pytest.fixture
def bench(tmp_path: Path, nvml_library: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, nvml_library, sensors="live")
    yield made
    made.sim.close()


def test_power_and_speed_are_those_of_the_physics_at_every_whole_watt(bench: Bench) -> None:
    for watts in range(100, 401):
        bench.sim.set_power_limit(0, watts)
        assert bench.now() == bench.load(watts, A100.highest_clock)


def test_between_whole_watts_the_table_is_close_to_the_physics(bench: Bench) -> None:
    for half in range(100, 400):
        settled = bench.sim.operation(0, half + 0.5)
        expected = bench.load(half + 0.5, A100.highest_clock)
        assert settled == pytest.approx(expected, rel=5e-3)


def test_a_limit_set_by_a_client_changes_power_at_that_very_instant(bench: Bench) -> None:
    limits = [400, 325, 150, 100, 287.5, 250, 400]
    code = f"""
said = []
for watts in {limits}:
    before = time.monotonic()
    limit(watts)
    said.append((before, time.monotonic()))
    time.sleep(0.01)
answer(said)
"""
    joules_before = bench.sim.energy(0, 0.0, time.monotonic())
    said = bench.run(code)
    calls = iter(said)
    changes = bench.segments()[-len(limits) :]
    for (start, watts, _), limit in zip(changes, limits, strict=True):
        before, after = next(calls)
        assert before <= start <= after
        assert watts == bench.sim.operation(0, limit).watts
    # The energy is the sum of what was drawn between the changes, and nothing is lost in between.
    end = said[-1][1]
    starts = [start for start, _, _ in changes] + [end]
    drawn = sum(w * (starts[i + 1] - starts[i]) for i, (_, w, _) in enumerate(changes))
    assert bench.sim.energy(0, starts[0], end) == pytest.approx(drawn, rel=1e-9)
    assert bench.sim.energy(0, 0.0, end) > joules_before


def test_the_counter_integrates_across_changes_of_the_limit(
    tmp_path: Path, nvml_library: Path
) -> None:
    bench = Bench(tmp_path, nvml_library, sensors=Sensors(Sensor(period=0.02), Sensor()))
    readings = bench.run("""
readings = []
for number in range(300):
    if number % 7 == 0:
        limit(100 + 50 * (number % 6))
    before = time.monotonic()
    value = N.nvmlDeviceGetTotalEnergyConsumption(gpu)
    readings.append((before, value, time.monotonic()))
    time.sleep(0.001)
answer(readings)
""")
    for before, value, after in readings:
        assert bench.sim.counter(0, before) <= value <= bench.sim.counter(0, after)
    assert readings[-1][1] > readings[0][1]


def test_the_client_reads_the_power_that_it_has_caused(bench: Bench) -> None:
    readings = bench.run("""
readings = []
for watts in (400, 200, 100):
    limit(watts)
    readings.append((N.nvmlDeviceGetPowerUsage(gpu), N.nvmlDeviceGetEnforcedPowerLimit(gpu)))
answer(readings)
""")
    assert readings[:2] == [[400_000, 400_000], [200_000, 200_000]]
    # Below the clock's floor the limit cannot be kept.
    power, limit = readings[2]
    assert limit == 100_000
    assert power == round(1000 * bench.load(100, A100.highest_clock).watts) > limit


def test_of_limit_and_clock_the_one_that_leaves_less_power_rules(bench: Bench) -> None:
    clock = A100.graphics_clocks()[20]
    locked = bench.load(400, clock)
    assert 200 < locked.watts < 400
    bench.run(f"N.nvmlDeviceSetGpuLockedClocks(gpu, 210, {clock})")
    assert bench.now() == locked
    bench.sim.set_power_limit(0, 200)
    assert bench.now() == bench.load(200, A100.highest_clock)
    assert bench.now() == pytest.approx(bench.load(200, clock))
    bench.run("N.nvmlDeviceResetGpuLockedClocks(gpu)\nlimit(400)")
    assert bench.now() == bench.load(400, A100.highest_clock)
    bench.run(f"N.nvmlDeviceSetApplicationsClocks(gpu, {A100.memory_clock}, {clock})")
    assert bench.now() == locked
    bench.run("N.nvmlDeviceResetApplicationsClocks(gpu)")
    assert bench.now() == bench.load(400, A100.highest_clock)


def test_a_lock_of_the_memory_clock_leaves_power_alone(bench: Bench) -> None:
    bench.run(f"N.nvmlDeviceSetMemoryLockedClocks(gpu, {A100.memory_clock}, {A100.memory_clock})")
    assert bench.now() == bench.load(400, A100.highest_clock)


def test_what_is_refused_changes_neither_power_nor_speed(bench: Bench) -> None:
    before = bench.now()
    refused = bench.run("answer([outcome(limit, 99), outcome(limit, 401)])")
    assert refused == ["error 2", "error 2"]
    bench.sim.deny_control()
    assert bench.run("answer(outcome(limit, 200))") == "error 4"
    assert bench.now() == before
    assert len(bench.segments()) == 2  # before there was a load, and since


def test_scheduled_power_ends_the_load_and_does_not_answer(bench: Bench) -> None:
    bench.run("limit(200)")
    assert bench.sim.speed(0) < 1
    bench.sim.set_power(0, 333.0)
    bench.run("limit(150)")
    assert bench.now() == (333.0, 1.0)
    with pytest.raises(ValueError, match="no load"):
        bench.sim.operation(0, 200)
    bench.sim.set_load(0, bench.load)
    assert bench.now() == bench.load(150, A100.highest_clock)


def test_writers_in_several_processes_leave_a_consistent_history(bench: Bench) -> None:
    code = """
for number in range(1500):
    limit({low} + number % 200)
"""
    clients = [bench.start(code.format(low=low)) for low in (100, 200)]
    for number in range(500):
        bench.sim.set_power_limit(0, 100 + number % 300)
    for client in clients:
        bench.finish(client)
    history = bench.segments()
    assert len(history) > 1000
    for (start, watts, joules), (next_start, _, next_joules) in pairwise(history):
        assert next_start >= start
        assert next_joules == joules + watts * (next_start - start)


def test_old_history_makes_room_when_clients_turn_knobs_for_ever(bench: Bench) -> None:
    readings = bench.run(f"""
readings = []
for number in range({MAX_SEGMENTS} + 1500):
    limit(100 + number % 300)
    if number % 100 == 0:
        readings.append(N.nvmlDeviceGetTotalEnergyConsumption(gpu))
answer(readings)
""")
    assert readings == sorted(readings)
    first, last = bench.segments()[0], bench.segments()[-1]
    assert len(bench.segments()) <= MAX_SEGMENTS
    assert bench.sim.energy(0, first[0], last[0]) == last[2] - first[2]
    with pytest.raises(ValueError, match="dropped"):
        bench.sim.energy(0, first[0] - 1, last[0])


def test_a_wide_range_of_limits_gets_a_coarser_table(tmp_path: Path) -> None:
    spec = parts.spec("h100", HEAVY, min_power_limit=50, max_power_limit=1450.5)
    load = parts.load(MODELS["h100"], **HEAVY)
    with SimulatedNvml.create(tmp_path / "state", [spec]) as sim:
        for watts in (50, 53, 650, 1449, 1450.5):
            assert sim.operation(0, watts) == pytest.approx(load(watts, 1980), rel=0.02)


def test_waiting_for_the_host_takes_its_share_at_static_power() -> None:
    busy = parts.load(A100, **HEAVY)(250, A100.highest_clock)
    half = parts.load(A100, **HEAVY, host_share=0.5)(250, A100.highest_clock)
    kernels = 0.5 / busy.speed
    assert 1 / half.speed == pytest.approx(0.5 + kernels)
    joules = 0.5 * A100.static_power + kernels * busy.watts
    assert half.watts == pytest.approx(joules * half.speed)


def test_a_part_of_another_vendor_is_refused() -> None:
    with pytest.raises(ValueError, match="mi300x is AMD's"):
        parts.spec("mi300x")

"""The simulated NVML driver: GPUs, calls and drivers that fail, hang or tell nonsense."""

from __future__ import annotations

import subprocess
import time

import pytest
from drivers.tests.nvml_clients import (
    ENERGY_FIELD,
    INSTANT_FIELD,
    Simulate,
    error,
    frozen,
    wait_for_call,
)

from simulated_drivers import GpuSpec, NvmlReturn

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
    doomed.communicate(timeout=300)
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

"""Usage by process through the vendors' bindings, beside the simulated truth."""

from __future__ import annotations

import pytest
from tests.device.amd_clients import Ask
from tests.device.nvml_rig import LOST, UNSUPPORTED, MakeRig

from simulated_drivers import AmdGpuSpec, GpuSpec, NvmlReturn

UTILIZATION = "nvmlDeviceGetProcessUtilization"

# Waits for samples of processes 11 and 12, and returns the shares beside the true ones.
READ = """
def read(driver, simulation):
    since = time.monotonic()
    used = driver.process_usage(since)
    deadline = since + 120
    while len(used.shares) < 2 or used.end < since + 0.3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        used = driver.process_usage(since)
    seconds = simulation.process_seconds
    true = {pid: (seconds(0, pid, used.end) - seconds(0, pid, used.begin))
            / (used.end - used.begin) for pid in used.shares}
    return [[used.begin - since, time.monotonic() - used.end], used.shares, true]
"""


def compare(told: list) -> None:
    (begin, age), shares, true = told
    assert begin <= 1e-6
    assert age >= -1e-3
    assert shares.keys() == true.keys() == {"11", "12"}
    for pid, share in shares.items():
        assert share == pytest.approx(true[pid], abs=0.0101)  # whole percent, and their timestamps


def test_nvidia(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    machine.simulation.set_process_usage(0, {11: 0.62, 12: 0.3})
    compare(machine.ask(READ + "say(read(get_gpus()[0].driver, simulation))"))


def test_nvidia_without_samples_knows_nothing_later(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    machine.simulation.set_process_usage(0, {11: 0.0})
    told = machine.ask("used = get_gpus()[0].process_usage(5.0)\nsay([used.begin, used.end])")
    assert told == [5.0, 5.0]


def test_nvidia_in_slices_or_lost(rig: MakeRig) -> None:
    machine = rig(GpuSpec(mig_uuids=["MIG-1"]), GpuSpec(), GpuSpec(unsupported=[UTILIZATION]))
    machine.simulation.fault(1, UTILIZATION, "error", code=NvmlReturn.GPU_IS_LOST)
    told = machine.ask("say([outcome(gpu.driver.process_usage, 0.0) for gpu in get_gpus()])")
    assert [each[0] for each in told] == [UNSUPPORTED, LOST, UNSUPPORTED]


def test_nvidia_entries_of_garbage_are_left_out(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    machine.simulation.set_process_usage(0, {11: 0.5})
    machine.simulation.fault(0, UTILIZATION, "sentinel")
    told = machine.ask(
        "used = get_gpus()[0].process_usage(time.monotonic() - 5)\nsay(dict(used.shares))"
    )
    assert told == {}


def test_amd(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(processes=[(11, 2**30, "a"), (12, 2**30, "b")]))
    simulation.set_process_usage(0, {11: 0.62, 12: 0.3})
    script = READ + "driver.process_usage(0.0)\nanswer(read(driver, simulation))"
    (begin, age), shares, true = ask(simulation, script)
    assert begin <= 0
    assert age >= 0
    for pid, share in shares.items():  # the library's reading is a moment before ours
        assert share == pytest.approx(true[pid], rel=0.03)


def test_amd_parts_without_engine_time(simulate, ask: Ask) -> None:
    gpu = AmdGpuSpec(processes=[(11, 2**30, "a")], gfx_activity=60)
    told = ask(simulate(gpu), "answer(outcome(driver.process_usage, 0.0))")
    assert told[0] == UNSUPPORTED
    assert "engine time" in told[1]
    idle = AmdGpuSpec(processes=[(11, 2**30, "a")])
    assert ask(simulate(idle), "answer(dict(driver.process_usage(0.0).shares))") == {}

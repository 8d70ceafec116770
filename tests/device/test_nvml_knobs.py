"""The NVIDIA back end: power limits and clocks, and how they come back."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from tests.device.nvml_rig import (
    HANGS,
    REFUSED,
    UNSUPPORTED,
    MakeRig,
    reasons,
)

from simulated_drivers import GpuSpec, NvmlReturn
from zeus.device._records import recorded_gpus

# --- Knobs ----------------------------------------------------------------------------------------


def test_a_power_limit_is_held_to_the_milliwatt_and_put_back(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    simulation = machine.simulation
    simulation.set_power_limit(0, 187.5)
    client = machine.start(
        """
with get_gpus()[0].hold(power_limit=212.345) as hold:
    say(get_gpus()[0].power_limit()); heard()
    hold.change(power_limit=150); say(0); heard()
"""
    )
    assert client.hear() == 212.345
    assert simulation.power_limit(0) == 212.345
    assert machine.ask("say(get_gpus()[0].power_limit())") == 212.345  # from another process
    client.tell()
    client.hear()
    assert simulation.power_limit(0) == 150.0
    client.tell()
    assert client.end() == 0
    assert simulation.power_limit(0) == 187.5
    assert not recorded_gpus()


def test_clock_locks_are_held_nested_and_reset(rig: MakeRig) -> None:
    machine = rig(GpuSpec(memory_clocks=[1593, 1215]))
    seen = machine.ask(
        """
def locks():
    clocks = simulation.clocks(0)
    return [clocks.locked_graphics, clocks.locked_memory]

gpu, = get_gpus()
seen = []
with gpu.hold(graphics_clock=(300, 1200), memory_clock=1215):
    seen.append(locks())
    with gpu.hold(graphics_clock=600):
        seen += [locks(), gpu.current_clocks().graphics]
    seen.append(locks())
say([*seen, locks()])
"""
    )
    both = [[300, 1200], [1215, 1215]]
    assert seen == [both, [[600, 600], [1215, 1215]], 600, both, [None, None]]


def test_values_out_of_range_name_the_range(rig: MakeRig) -> None:
    machine = rig(GpuSpec(name="A100"))
    wrong = [{"power_limit": 99}, {"power_limit": 401}, {"graphics_clock": 100}]
    answers = machine.ask(f"say([outcome(get_gpus()[0].hold, **knobs) for knobs in {wrong}])")
    assert [kind for kind, _ in answers] == ["knob"] * 3
    assert "100 W <= power_limit <= 400 W must hold for A100, but got 99 W" in answers[0][1]
    assert "got 401 W" in answers[1][1]
    assert "(100, 100) MHz" in answers[2][1]
    assert machine.simulation.calls("nvmlDeviceSetPowerManagementLimit") == 0


def test_refused_control_says_what_grants_it_and_leaves_no_record(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    machine.simulation.deny_control()
    answers = machine.ask(
        """
gpu, = get_gpus()
say([outcome(gpu.hold(**knobs).acquire) for knobs in (
        {"power_limit": 200}, {"graphics_clock": 900}, {"memory_clock": 1215})]
    + [outcome(gpu.driver.set_persistence, True), outcome(gpu.driver.lock_graphics_clock, None)])
"""
    )
    assert reasons(answers) == [REFUSED] * 5
    assert all("CAP_SYS_ADMIN" in cure for _, _, cure in answers)
    assert machine.simulation.power_limit(0) == 400.0
    assert not recorded_gpus()


def test_what_the_driver_does_not_take_is_a_knob_error(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    machine.simulation.fault(
        0, "nvmlDeviceSetPowerManagementLimit", "error", code=NvmlReturn.INVALID_ARGUMENT
    )
    kind, message = machine.ask("say(outcome(get_gpus()[0].hold(power_limit=200).acquire))")
    assert kind == "knob"
    assert "200000" in message


def test_persistence_is_read_and_set_where_there_is_any(rig: MakeRig) -> None:
    machine = rig(GpuSpec(), GpuSpec(persistence_supported=False))
    answers = machine.ask(
        """
first, second = get_gpus()
before = first.persistence()
first.driver.set_persistence(True)
say([before, first.persistence(), outcome(second.persistence),
     outcome(second.driver.set_persistence, True)])
"""
    )
    assert reasons(answers) == [False, True, UNSUPPORTED, UNSUPPORTED]
    assert machine.simulation.persistence(0)


# --- Processes and ends ---------------------------------------------------------------------------


def test_two_processes_hold_the_same_gpu(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    simulation = machine.simulation
    simulation.set_power_limit(0, 321.5)
    holders = []
    for watts in (300, 200):
        holders.append(
            machine.start(
                f"with get_gpus()[0].hold(power_limit={watts}, graphics_clock={watts * 3}):\n"
                "    say(0); heard()"
            )
        )
        holders[-1].hear()
    holders[0].tell()
    assert holders[0].end() == 0
    assert simulation.power_limit(0) == 200.0
    assert simulation.clocks(0).locked_graphics == (600, 600)
    holders[1].tell()
    assert holders[1].end() == 0
    assert simulation.power_limit(0) == 321.5
    assert simulation.clocks(0).locked_graphics is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_ended_by_a_signal_while_it_reads_puts_back(rig: MakeRig, number: Any) -> None:
    # The handler needs the very thread of the GPU that the interrupted reading is waiting for.
    machine = rig(GpuSpec())
    machine.simulation.set_power_limit(0, 321.5)
    machine.simulation.fault(0, "nvmlDeviceGetPowerUsage", "delay", seconds=0.02)
    client = machine.start(
        """
gpu, = get_gpus()
with gpu.hold(power_limit=200):
    say(0)
    while True:
        outcome(lambda: gpu._ask(gpu.driver._power_usage))
"""
    )
    client.hear()
    time.sleep(0.05)
    client.send(number)
    assert client.end() in (-number, 1, 130)
    assert machine.simulation.power_limit(0) == 321.5
    assert not recorded_gpus()


def test_after_sigkill_the_next_start_puts_back(rig: MakeRig) -> None:
    machine = rig(GpuSpec(), GpuSpec())
    simulation = machine.simulation
    simulation.set_power_limit(1, 321.5)
    client = machine.start(
        "get_gpus()[1].hold(power_limit=200, graphics_clock=900).acquire(); say(0); heard()"
    )
    client.hear()
    client.send(signal.SIGKILL)
    client.end()
    assert simulation.power_limit(1) == 200.0
    # Refused at first, by a process that sees only the other GPU: the record stays.
    simulation.deny_control()
    look = "say([gpu.power_limit() for gpu in get_gpus()])"
    assert machine.ask(look, CUDA_VISIBLE_DEVICES="0") == [400.0]
    assert recorded_gpus()
    simulation.deny_control(False)
    assert machine.ask(look, CUDA_VISIBLE_DEVICES="0") == [400.0]
    assert simulation.power_limit(1) == 321.5
    assert simulation.clocks(1).locked_graphics is None
    assert not recorded_gpus()


@pytest.mark.real_time
def test_a_setter_that_hangs_is_undone_by_the_next_start(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    simulation = machine.simulation
    simulation.set_power_limit(0, 321.5)
    said = machine.ask(
        """
gpu, = get_gpus()
guard.DEFAULT_TIMEOUT = 0.5
simulation.fault(0, "nvmlDeviceSetPowerManagementLimit", "hang")
refused = outcome(gpu.hold(power_limit=200).acquire)
simulation.clear_faults(0)  # the stuck call comes through after all
while simulation.power_limit(0) != 200.0:
    time.sleep(0.005)
say(refused[0])
os._exit(0)
"""
    )
    assert said == HANGS
    assert machine.ask("say(get_gpus()[0].power_limit())") == 321.5
    assert simulation.power_limit(0) == 321.5


def test_a_forked_child_reads_and_holds_on_its_own(rig: MakeRig) -> None:
    machine = rig(GpuSpec(watts=123.0))
    said = machine.ask(
        """
gpu, = get_gpus()
gpu.instant_power()
with gpu.hold(power_limit=300):
    child = os.fork()
    if child == 0:
        own, = get_gpus()
        with own.hold(power_limit=200):
            fine = (own.instant_power(), gpu.instant_power(), own.power_limit())
        os._exit(0 if fine == (123.0, 123.0, 200.0) else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    say([code, gpu.power_limit()])
"""
    )
    assert said == [0, 300.0]
    assert machine.simulation.power_limit(0) == 400.0

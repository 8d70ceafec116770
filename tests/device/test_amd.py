"""The AMD back end over the unmodified `amdsmi` binding and a simulated libamd_smi.so.

Each client is a process of its own, because the loader reads LD_LIBRARY_PATH only once. Clients
answer through a file, so that every test also sees that nothing reached their stdout.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.amdsmi_state import AmdGpuSpec, AmdSmiStatus, SimulatedAmdSmi, mi250x_board

TREE = Path(__file__).parents[2]

# What every client starts with: `outcome` turns an error into the list of what it says.
PRELUDE = """
import json, os, sys, time
from pathlib import Path
from zeus.device import amd
from zeus.device.base import ClockRange, Gpu, GpuDriver
from zeus.device.guard import Guard
from zeus.errors import CapabilityError, KnobError
from tests.drivers.amdsmi_state import SimulatedAmdSmi

def answer(value):
    Path(os.environ["ANSWER"]).write_text(json.dumps(value))

def outcome(question, *arguments):
    try:
        return question(*arguments)
    except CapabilityError as error:
        return [str(error.reason), error.detail, error.cure]
    except KnobError as error:
        return ["knob", str(error)]

def told(problems):
    return [[problem.what, problem.error.reason, problem.error.detail, problem.error.cure]
            for problem in problems]

def discover():
    return amd.discover(Path(os.environ["NODE_ROOT"]))
"""

# For clients of a simulation: all drivers, and the hand on the simulation itself.
WITH_GPUS = """
simulation = SimulatedAmdSmi(Path(os.environ["ZEUS_SIMULATED_AMDSMI"]))
drivers, problems = discover()
driver = drivers[0] if drivers else None
"""

Ask = Callable[..., Any]


@pytest.fixture
def node_root(tmp_path: Path) -> Path:
    """A file system without any AMD GPU."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def run(tmp_path: Path, node_root: Path) -> Ask:
    """Runs a client with more environment variables and returns its answer."""

    def run(script: str, **variables: str) -> Any:
        file = tmp_path / "answer.json"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROCM_")},
            "PYTHONPATH": os.pathsep.join([str(TREE / "src"), str(TREE)]),
            # The last place where the binding looks is /opt/rocm, unless told otherwise.
            "ROCM_PATH": str(tmp_path / "no-rocm"),
            "ZEUS_STATE_DIR": str(tmp_path / "zeus"),
            "NODE_ROOT": str(node_root),
            "ANSWER": str(file),
            **variables,
        }
        command = [sys.executable, "-c", PRELUDE + script]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return json.loads(file.read_text())

    return run


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Callable[..., SimulatedAmdSmi]]:
    """Makes the simulated machine of the test."""
    made: list[SimulatedAmdSmi] = []

    def simulate(*gpus: AmdGpuSpec) -> SimulatedAmdSmi:
        made.append(SimulatedAmdSmi.create(tmp_path / "state", gpus))
        return made[-1]

    yield simulate
    for simulation in made:
        simulation.close()


@pytest.fixture
def ask(run: Ask, amdsmi_library: Path) -> Ask:
    """Runs a client of a simulation."""

    def ask(simulation: SimulatedAmdSmi, script: str) -> Any:
        return run(WITH_GPUS + script, **simulation.environment(amdsmi_library))

    return ask


def same(*watts: float) -> Any:
    return pytest.approx(list(watts))


# --- The simulation and the binding ---------------------------------------------------------------


def test_the_structures_are_those_of_the_binding(run: Ask, simulate, amdsmi_library: Path) -> None:
    names = {
        "bdf": "amdsmi_bdf_t",
        "version": "amdsmi_version_t",
        "enumeration_info": "amdsmi_enumeration_info_t",
        "asic_info": "amdsmi_asic_info_t",
        "board_info": "amdsmi_board_info_t",
        "driver_info": "amdsmi_driver_info_t",
        "kfd_info": "amdsmi_kfd_info_t",
        "power_info": "amdsmi_power_info_t",
        "power_cap_info": "amdsmi_power_cap_info_t",
        "engine_usage": "amdsmi_engine_usage_t",
        "vram_usage": "amdsmi_vram_usage_t",
        "vram_info": "amdsmi_vram_info_t",
        "process_info": "amdsmi_proc_info_t",
        "clock_info": "amdsmi_clk_info_t",
        "frequencies": "amdsmi_frequencies_t",
        "voltage_frequency_data": "amdsmi_od_volt_freq_data_t",
    }
    header = (TREE / "tests/drivers/amdsmi/abi.h").read_text()
    sizes = dict(re.findall(r"sizeof\((?:struct|union) (\w+)\) == (\d+)", header))
    assert sizes.keys() == names.keys()
    script = """
import ctypes
from amdsmi import amdsmi_wrapper
names = json.loads(os.environ["NAMES"])
answer({name: ctypes.sizeof(getattr(amdsmi_wrapper, theirs)) for name, theirs in names.items()})
"""
    environment = simulate(AmdGpuSpec()).environment(amdsmi_library)
    theirs = run(script, NAMES=json.dumps(names), **environment)
    assert theirs == {name: int(size) for name, size in sizes.items()}


def test_the_binding_works_as_it_is(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(name="AMD Instinct MI300X", board_serial="PCB7"))
    found = ask(
        simulation,
        """
import amdsmi
handle, = amdsmi.amdsmi_get_processor_handles()
answer({
    "type": amdsmi.amdsmi_get_processor_type(handle)["processor_type"],
    "socket": amdsmi.amdsmi_get_socket_info(amdsmi.amdsmi_get_socket_handles()[0]),
    "again": amdsmi.amdsmi_get_gpu_device_bdf(
        amdsmi.amdsmi_get_processor_handle_from_bdf("0000:10:00.0")),
    "board": amdsmi.amdsmi_get_gpu_board_info(handle)["product_serial"],
    "driver": amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_name"],
    "vendor": amdsmi.amdsmi_get_gpu_vendor_name(handle),
    "node": amdsmi.amdsmi_get_gpu_kfd_info(handle)["node_id"],
    "managed": amdsmi.amdsmi_is_gpu_power_management_enabled(handle),
    "vram": amdsmi.amdsmi_get_gpu_vram_info(handle)["vram_size"],
    "version": amdsmi.amdsmi_get_lib_version()["major"],
})
""",
    )
    assert found == {
        "type": "AMDSMI_PROCESSOR_TYPE_AMD_GPU",
        "socket": "0000:10:00",
        "again": "0000:10:00.0",
        "board": "PCB7",
        "driver": "amdgpu",
        "vendor": "Advanced Micro Devices, Inc. [AMD/ATI]",
        "node": 1,
        "managed": True,
        "vram": 192 * 1024,
        "version": 26,
    }


# --- Energy and power -----------------------------------------------------------------------------


def test_energy_is_exact_at_every_tick(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(watts=200.0, tick_period=0.02))
    readings = ask(
        simulation,
        """
readings = []
for watts in (200.0, 700.0, 90.5):
    simulation.set_power(0, watts)
    ticks = set()
    while len(ticks) < 4:
        before = time.monotonic()
        joules = driver.energy()
        after = time.monotonic()
        ticks.add(simulation.last_tick(0, after))
        if simulation.last_tick(0, before) == simulation.last_tick(0, after):
            readings.append([joules, simulation.counter(0, before)])
answer(readings)
""",
    )
    one_step = 15.3e-6
    assert len({true for _, true in readings}) > 6
    assert all(0 <= true - joules <= 1.01 * one_step for joules, true in readings)


def test_the_resolution_of_the_counter_is_the_librarys(simulate, ask: Ask) -> None:
    gpus = [AmdGpuSpec(watts=0.0, counter_offset=5e6, counter_resolution=r) for r in (15.259, 1.0)]
    assert ask(simulate(*gpus), "answer([driver.energy() for driver in drivers])") == pytest.approx(
        [5e6, 5e6], abs=2e-5
    )


def test_momentary_and_averaged_power_are_different_fields(simulate, ask: Ask) -> None:
    gpus = [AmdGpuSpec(watts=300.0), AmdGpuSpec(current_power=False, average_power=True)]
    newer, older = ask(
        simulate(*gpus),
        "answer([[outcome(d.instant_power), outcome(d.average_power)] for d in drivers])",
    )
    assert newer[0] == 300.0
    assert newer[1][0] == "unsupported"
    assert older[0][0] == "unsupported"
    assert older[1] == 140.0


def test_power_follows_what_is_drawn(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(watts=100.0, average_power=True, average_window=1e-3))
    powers = ask(
        simulation,
        """
simulation.set_power(0, 512.0)
time.sleep(0.01)
answer([driver.instant_power(), driver.average_power()])
""",
    )
    assert powers == [512.0, 512.0]


# --- What parts do not tell -----------------------------------------------------------------------


def test_a_field_that_is_not_filled_in_is_refused(simulate, ask: Ask) -> None:
    refused = ask(
        simulate(AmdGpuSpec(edge=40)),
        """
questions = {"energy": "amdsmi_get_energy_count", "instant_power": "amdsmi_get_power_info",
             "temperature": "amdsmi_get_temp_metric", "utilization": "amdsmi_get_gpu_activity",
             "current_clocks": "amdsmi_get_clock_info"}
for function in questions.values():
    simulation.fault(0, function, "sentinel")
answer([outcome(getattr(driver, question))[0] for question in questions])
""",
    )
    assert refused == ["unsupported"] * 5


def test_every_unsupported_function_costs_only_itself(simulate, ask: Ask) -> None:
    functions = [
        "amdsmi_get_energy_count",
        "amdsmi_get_power_cap_info",
        "amdsmi_get_gpu_activity",
        "amdsmi_get_gpu_process_list",
        "amdsmi_get_gpu_memory_total",
        "amdsmi_get_gpu_vram_usage",
        "amdsmi_get_clk_freq",
        "amdsmi_get_temp_metric",
    ]
    simulation = simulate(AmdGpuSpec(unsupported=functions))
    refused, power = ask(
        simulation,
        """
questions = ("energy", "power_limit", "power_limits", "utilization", "processes", "memory",
             "supported_clocks", "temperature", "memory_power", "persistence")
answer([{name: outcome(getattr(driver, name))[0] for name in questions}, driver.instant_power()])
""",
    )
    assert set(refused.values()) == {"unsupported"}
    assert power == 140.0


def test_impossible_readings_are_called_implausible(simulate, ask: Ask) -> None:
    gpus = [
        AmdGpuSpec(watts=50_000.0),
        AmdGpuSpec(gfx_activity=250),
        AmdGpuSpec(hotspot=45_000),
    ]
    answers = ask(
        simulate(*gpus),
        """
answer([outcome(drivers[0].instant_power), outcome(drivers[1].utilization),
        outcome(drivers[2].temperature)])
""",
    )
    # The edge sensor is asked where the hottest spot makes no sense, and there is none.
    assert [said[0] for said in answers] == ["implausible value"] * 2 + ["unsupported"]


def test_each_status_has_its_reason(simulate, ask: Ask) -> None:
    reasons = {
        AmdSmiStatus.NOT_SUPPORTED: "unsupported",
        AmdSmiStatus.NO_PERM: "no permission",
        AmdSmiStatus.IO: "device lost",
        AmdSmiStatus.NOT_FOUND: "device lost",
        AmdSmiStatus.TIMEOUT: "driver call hangs",
        AmdSmiStatus.DRIVER_NOT_LOADED: "driver absent",
        AmdSmiStatus.UNEXPECTED_DATA: "implausible value",
        AmdSmiStatus.BUSY: "unsupported",
    }
    answers = ask(
        simulate(AmdGpuSpec()),
        f"""
answers = []
for code in {[int(code) for code in reasons]}:
    simulation.fault(0, "amdsmi_get_energy_count", "error", code=code)
    answers.append(outcome(driver.energy))
answer(answers)
""",
    )
    assert [said for said, _, _ in answers] == list(reasons.values())
    assert all("amdsmi_get_energy_count" in detail for _, detail, _ in answers)
    cured = [code for code, (_, _, cure) in zip(reasons, answers, strict=True) if cure]
    assert cured == [AmdSmiStatus.NO_PERM]
    assert "render,video" in answers[1][2]


# --- What else is read ----------------------------------------------------------------------------


def test_temperature_utilization_memory_and_processes(simulate, ask: Ask) -> None:
    gpu = AmdGpuSpec(
        hotspot=71,
        edge=55,
        gfx_activity=37,
        memory_total=64 * 2**30,
        memory_used=5 * 2**30 + 123,
        processes=[(41, 2**30, "python3"), (42, 0, "")],
    )
    found = ask(
        simulate(gpu, replace(gpu, hotspot=None), replace(gpu, hotspot=None, edge=None)),
        """
memory = driver.memory()
answer({
    "temperatures": [outcome(driver.temperature) for driver in drivers],
    "utilization": driver.utilization(),
    "memory": [memory.used, memory.total],
    "processes": [[p.pid, p.memory, p.name] for p in driver.processes()],
})
""",
    )
    assert found["temperatures"][:2] == [71.0, 55.0]
    assert found["temperatures"][2][0] == "unsupported"
    assert found["utilization"] == 0.37
    assert found["memory"] == [5 * 2**30 + 123, 64 * 2**30]
    assert found["processes"] == [[41, 2**30, "python3"], [42, None, None]]


def test_memory_can_also_be_had_in_mebibytes(simulate, ask: Ask) -> None:
    gpu = AmdGpuSpec(memory_used=7 * 2**20, unsupported=["amdsmi_get_gpu_memory_usage"])
    script = "memory = driver.memory(); answer([memory.used, memory.total])"
    assert ask(simulate(gpu), script) == [7 * 2**20, 192 * 2**30]


# --- The power limit ------------------------------------------------------------------------------


def test_the_power_limit_is_set_and_put_back(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    limits, seen = ask(
        simulation,
        """
limits = driver.power_limits()
gpu = Gpu(0, driver)
seen = [gpu.power_limit()]
simulation.set_power_limit(0, 600.0)
with gpu.hold(power_limit=300.0):
    seen.append(gpu.power_limit())
seen.append(gpu.power_limit())
answer([[limits.minimum, limits.maximum, limits.default], seen])
""",
    )
    assert limits == same(100.0, 750.0, 750.0)
    assert seen == same(750.0, 300.0, 600.0)
    assert simulation.power_limit(0) == 600.0


def test_a_power_limit_out_of_range_names_the_range(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    wrong = [99.0, 750.5, -1.0]
    answers = ask(simulation, f"answer([outcome(driver.set_power_limit, w) for w in {wrong}])")
    for watts, (kind, message) in zip(wrong, answers, strict=True):
        assert kind == "knob"
        assert f"100 W <= power_limit <= 750 W must hold for {AmdGpuSpec.name}" in message
        assert f"got {watts:g} W" in message
    assert simulation.power_limit(0) == 750.0


def test_refused_control_says_what_grants_it(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec())
    simulation.deny_control()
    answers = ask(
        simulation,
        """
answer([outcome(driver.set_power_limit, 300.0),
        outcome(driver.lock_graphics_clock, ClockRange(900, 1300)),
        outcome(driver.lock_graphics_clock, None)])
""",
    )
    assert [said[0] for said in answers] == ["no permission"] * 3
    assert all("root" in said[2] for said in answers)
    assert simulation.power_limit(0) == 750.0
    assert simulation.performance_level(0) == 0


# --- Clocks ---------------------------------------------------------------------------------------

CLOCKS = """
def bounds(clock):
    return clock and [clock.minimum, clock.maximum]

def clocks(driver):
    return [bounds(driver.locked_graphics_clock()), bounds(driver.locked_memory_clock())]
"""


def test_clocks_are_listed_highest_first(simulate, ask: Ask) -> None:
    found = ask(
        simulate(AmdGpuSpec()),
        """
now, offered = driver.current_clocks(), driver.supported_clocks()
answer([[now.graphics, now.memory], offered.graphics, offered.memory])
""",
    )
    assert found == [[2100, 1300], [2100, 1700, 1300, 900, 500], [1300, 1100, 900]]


def test_a_clock_is_locked_read_back_and_unlocked(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    seen = ask(
        simulation,
        CLOCKS
        + """
seen = [clocks(driver)]
for clock in (ClockRange(900, 1700), ClockRange(500, 600), ClockRange(2000, 2100), None):
    driver.lock_graphics_clock(clock)
    seen.append([*clocks(driver), driver.current_clocks().graphics,
                 max(driver.supported_clocks().graphics), simulation.performance_level(0)])
answer(seen)
""",
    )
    assert seen == [
        [None, None],
        [[900, 1700], None, 1700, 2100, 3],
        [[500, 600], None, 600, 2100, 3],
        [[2000, 2100], None, 2100, 2100, 3],
        [None, None, 2100, 2100, 0],
    ]


@pytest.mark.parametrize(("clock", "bounds"), [(1300, (1299, 1300)), (500, (500, 501))])
def test_a_single_clock_gets_the_room_that_the_driver_wants(
    simulate, ask: Ask, clock: int, bounds: tuple[int, int]
) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    ask(simulation, f"driver.lock_graphics_clock(ClockRange({clock}, {clock})); answer(0)")
    assert simulation.graphics_bounds(0) == bounds


def test_unlocking_one_clock_leaves_the_other_locked(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    seen = ask(
        simulation,
        CLOCKS
        + """
driver.lock_memory_clock(ClockRange(900, 1100))
driver.lock_graphics_clock(ClockRange(900, 1300))
seen = [clocks(driver)]
driver.lock_graphics_clock(None)
seen.append(clocks(driver))
driver.lock_memory_clock(None)
answer([*seen, clocks(driver)])
""",
    )
    assert seen == [[[900, 1300], [900, 1100]], [None, [900, 1100]], [None, None]]
    assert simulation.performance_level(0) == 0


def test_unlocking_returns_to_the_level_before(simulate, ask: Ask) -> None:
    high = 2
    simulation = simulate(AmdGpuSpec(needs_root=False))
    simulation.set_performance_level(0, high)
    ask(
        simulation,
        "with Gpu(0, driver).hold(graphics_clock=(900, 1300)): pass\nanswer(0)",
    )
    assert simulation.performance_level(0) == high


def test_a_clock_out_of_range_changes_nothing(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    script = "answer(outcome(driver.lock_graphics_clock, ClockRange(100, 2100)))"
    kind, message = ask(simulation, script)
    assert kind == "knob"
    assert "500 MHz <= lowest <= highest <= 2100 MHz must hold for the graphics clock" in message
    assert simulation.graphics_bounds(0) == (500, 2100)
    assert simulation.performance_level(0) == 0


def test_a_part_without_clock_limits_still_lists_clocks(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False, clock_limits=False))
    lock, graphics, locking = ask(
        simulation,
        """
answer([driver.locked_graphics_clock(), driver.supported_clocks().graphics,
        outcome(driver.lock_graphics_clock, ClockRange(500, 900))])
""",
    )
    assert lock is None
    assert max(graphics) == 2100
    assert locking[0] == "unsupported"


# --- Which GPU is which ---------------------------------------------------------------------------


def test_names_and_order_without_hip_numbers(simulate, ask: Ask) -> None:
    gpus = [
        AmdGpuSpec(pci_bus=0xC1, serial="0BC1", uuid="c1ff74a1-0000-1000-8000-000000000001"),
        AmdGpuSpec(
            pci_bus=0x05, serial="9F05ABCD12345678", unsupported=["amdsmi_get_gpu_device_uuid"]
        ),
        AmdGpuSpec(pci_domain=1, pci_bus=0x01, name=""),
    ]
    found = ask(
        simulate(*gpus),
        """
answer([[d.identity.key, d.identity.pci_address, d.identity.name, d.identity.vendor,
         d.identity.whole_module, d.visible_uuid] for d in drivers])
""",
    )
    plain = "AMD Instinct MI300X"
    second, third = "GPU-9f05abcd12345678", "GPU-0000000000000bc1"
    assert found[0] == ["0000:05:00.0", "0000:05:00.0", plain, "AMD", False, second]
    assert found[1] == [gpus[0].uuid, "0000:c1:00.0", plain, "AMD", False, third]
    assert found[2][1:3] == ["0001:01:00.0", "AMD GPU"]


def test_hip_numbers_decide_the_order_where_they_are_known(simulate, ask: Ask) -> None:
    gpus = [AmdGpuSpec(hip_id=2), AmdGpuSpec(hip_id=0), AmdGpuSpec(hip_id=1)]
    script = "answer([d.identity.pci_address[5:7] for d in drivers])"
    assert ask(simulate(*gpus), script) == ["11", "12", "10"]
    # Numbers that are not numbers of their own decide nothing.
    gpus = [replace(gpu, hip_id=0, pci_bus=9 - i) for i, gpu in enumerate(gpus)]
    assert ask(simulate(*gpus), script) == ["07", "08", "09"]


def test_only_the_first_die_of_a_board_reports_power(simulate, ask: Ask) -> None:
    simulation = simulate(*mi250x_board(needs_root=False, watts=400.0))
    first, second = ask(
        simulation,
        """
answer([[d.identity.whole_module, outcome(d.average_power), outcome(d.energy),
         outcome(d.power_limit), outcome(d.power_limits) if d is drivers[1] else None,
         outcome(d.set_power_limit, 300.0), outcome(d.temperature)] for d in drivers])
""",
    )
    assert first[:2] == [True, 400.0]
    assert first[2] > 1000
    assert first[3] == 560.0
    assert second[0] is True
    assert [said[0] for said in second[1:6]] == ["unsupported"] * 5
    assert second[6] == 45.0
    assert simulation.power_limit(0) == 300.0


def test_a_partition_is_measured_as_the_whole_package(simulate, ask: Ask) -> None:
    gpus = [AmdGpuSpec(partition=mode) for mode in (None, "SPX", "CPX")]
    script = "answer([d.identity.whole_module for d in drivers])"
    assert ask(simulate(*gpus), script) == [False, False, True]


# --- When things break ----------------------------------------------------------------------------


def test_a_lost_gpu_costs_only_itself(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(), AmdGpuSpec(watts=222.0))
    lost, other = ask(
        simulation,
        """
simulation.lose(0)
answer([[outcome(d.energy), outcome(d.instant_power), outcome(d.power_limit)] for d in drivers])
""",
    )
    assert [said[0] for said in lost] == ["device lost"] * 3
    assert other[1] == 222.0


def test_a_gpu_that_is_lost_from_the_start_keeps_its_place(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(), AmdGpuSpec(watts=222.0))
    simulation.lose(0)
    found = ask(
        simulation,
        """
answer([[d.identity.key for d in drivers], [d.visible_uuid for d in drivers],
        outcome(driver.energy), drivers[1].instant_power(), told(problems)])
""",
    )
    keys, uuids, energy, power, problems = found
    assert keys[0] == "0000:10:00.0"
    assert uuids[0] == ""
    assert energy[0] == "device lost"
    assert power == 222.0
    assert [problem[:2] for problem in problems] == [["AMD GPU at 0000:10:00.0", "device lost"]]


def test_a_gpu_without_any_address_is_known_by_its_uuid(simulate, ask: Ask) -> None:
    mute = ["amdsmi_get_gpu_device_bdf"]
    gpus = [
        AmdGpuSpec(unsupported=mute),
        AmdGpuSpec(unsupported=[*mute, "amdsmi_get_gpu_device_uuid"]),
    ]
    first, second = ask(
        simulate(*gpus),
        """
answer([[d.identity.key, d.identity.pci_address, outcome(d.instant_power)] for d in drivers])
""",
    )
    assert first == ["a1ff74a1-0000-1000-80ff-000000000000", None, 140.0]
    assert second[:2] == ["AMD GPU 1", None]
    assert second[2][0] == "device lost"


def test_a_hanging_call_is_given_up_and_taken_up_again(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(), AmdGpuSpec(watts=222.0))
    hanging, again, other, after = ask(
        simulation,
        """
gpus = [Gpu(index, driver) for index, driver in enumerate(drivers)]
gpus[0]._guard = Guard("the GPU", timeout=0.1)
simulation.fault(0, "amdsmi_get_power_info", "hang")
hanging, again = outcome(gpus[0].instant_power), outcome(gpus[0].energy)
other = gpus[1].instant_power()
simulation.clear_faults(0)
while isinstance(after := outcome(gpus[0].instant_power), list):
    time.sleep(0.005)
answer([hanging, again, other, after])
""",
    )
    assert hanging[0] == again[0] == "driver call hangs"
    assert other == 222.0
    assert after == 140.0


def test_a_slow_call_is_waited_for(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec())
    simulation.fault(0, "amdsmi_get_power_info", "delay", seconds=0.05, times=1)
    assert ask(simulation, "answer(Gpu(0, driver).instant_power())") == 140.0


def test_another_user_may_shut_the_library_down(simulate, ask: Ask) -> None:
    found = ask(
        simulate(AmdGpuSpec()),
        """
import amdsmi
amdsmi.amdsmi_shut_down()
answer([driver.instant_power(), driver.identity.name])
""",
    )
    assert found == [140.0, "AMD Instinct MI300X"]


def test_two_processes_see_one_machine(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    ask(
        simulation,
        """
driver.set_power_limit(345.0)
driver.lock_graphics_clock(ClockRange(700, 1500))
simulation.set_power(0, 321.0)
answer(0)
""",
    )
    assert simulation.power_limit(0) == 345.0
    assert simulation.graphics_bounds(0) == (700, 1500)
    found = ask(
        simulation,
        CLOCKS + "answer([driver.power_limit(), clocks(driver)[0], driver.instant_power()])",
    )
    assert found == [345.0, [700, 1500], 321.0]
    assert simulation.calls("amdsmi_set_power_cap") == 1


# --- When there is nothing to talk to -------------------------------------------------------------

FIND = """
drivers, problems = discover()
answer([len(drivers), told(problems)])
"""


def with_gpu(root: Path) -> None:
    (root / "sys/class/kfd").mkdir(parents=True)


def test_without_library_and_gpu_there_is_nothing_to_say(run: Ask) -> None:
    assert run(FIND) == [0, []]


def test_a_gpu_without_library_is_a_problem(run: Ask, node_root: Path) -> None:
    with_gpu(node_root)
    count, [[what, reason, detail, cure]] = run(FIND)
    assert (count, what, reason) == (0, "AMD GPUs", "driver absent")
    assert "libamd_smi.so" in detail
    assert "amd-smi-lib" in cure


def test_a_library_without_binding_is_a_problem(run: Ask, amdsmi_library: Path) -> None:
    hide = """
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "amdsmi":
            raise ModuleNotFoundError("No module named 'amdsmi'")
sys.meta_path.insert(0, Hide())
"""
    count, [[_, reason, _, cure]] = run(hide + FIND, LD_LIBRARY_PATH=str(amdsmi_library))
    assert (count, reason) == (0, "driver absent")
    assert cure == "pip install 'zeus-energy[amd]'"


def test_a_library_that_lacks_symbols_is_a_problem(run: Ask, tmp_path: Path) -> None:
    source, folder = tmp_path / "old.c", tmp_path / "old"
    folder.mkdir()
    source.write_text("int amdsmi_init(void) { return 0; }\n")
    library = folder / "libamd_smi.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    count, [[_, reason, detail, cure]] = run(FIND, LD_LIBRARY_PATH=str(folder))
    assert (count, reason) == (0, "driver absent")
    assert "undefined symbol" in detail
    assert "amdsmi" in cure


def test_the_library_of_a_rocm_folder_comes_first(
    run: Ask, simulate, amdsmi_library: Path, tmp_path: Path
) -> None:
    (tmp_path / "rocm").mkdir()
    (tmp_path / "rocm/lib").symlink_to(amdsmi_library)
    state = str(simulate(AmdGpuSpec(), AmdGpuSpec()).path)
    found = run(FIND, ROCM_HOME=str(tmp_path / "rocm"), ZEUS_SIMULATED_AMDSMI=state)
    assert found == [2, []]


@pytest.mark.parametrize("error", ["KeyError('libamd_smi.so')", "OSError('cannot open')"])
def test_a_binding_that_prints_and_fails_is_kept_quiet(
    run: Ask, tmp_path: Path, amdsmi_library: Path, error: str
) -> None:
    (tmp_path / "odd/amdsmi").mkdir(parents=True)
    (tmp_path / "odd/amdsmi/__init__.py").write_text(f"print('noise')\nraise {error}\n")
    script = f"sys.path.insert(0, {str(tmp_path / 'odd')!r})\n" + FIND
    count, [[_, reason, _, _]] = run(script, LD_LIBRARY_PATH=str(amdsmi_library))
    assert (count, reason) == (0, "driver absent")


def test_only_the_binding_is_kept_quiet(run: Ask) -> None:
    script = """
import io, threading
real, sys.stdout = sys.stdout, io.StringIO()
from zeus.device.amd_binding import quiet_stdout
with quiet_stdout():
    print("noise", flush=True)
    other = threading.Thread(target=print, args=("news",))
    other.start()
    other.join()
heard, sys.stdout = sys.stdout.getvalue(), real
answer(heard)
"""
    assert run(script) == "news\n"


def test_a_driver_that_is_not_loaded_matters_only_with_a_gpu(
    run: Ask, amdsmi_library: Path, node_root: Path
) -> None:
    library = {"LD_LIBRARY_PATH": str(amdsmi_library), "ZEUS_SIMULATED_AMDSMI": "/nowhere"}
    assert run(FIND, **library) == [0, []]
    with_gpu(node_root)
    count, [[_, reason, detail, _]] = run(FIND, **library)
    assert (count, reason) == (0, "driver absent")
    assert "DRIVER_NOT_LOADED" in detail


def test_a_refused_start_is_a_problem_with_a_cure(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec())
    simulation.fault(None, "amdsmi_init", "error", code=AmdSmiStatus.NO_PERM)
    count, [[_, reason, _, cure]] = ask(simulation, "answer([len(drivers), told(problems)])")
    assert (count, reason) == (0, "no permission")
    assert "render,video" in cure


def test_a_machine_without_gpus_is_no_problem(simulate, ask: Ask) -> None:
    assert ask(simulate(), "answer([len(drivers), told(problems)])") == [0, []]


def test_the_module_does_not_import_the_binding(run: Ask) -> None:
    assert run("answer('amdsmi' in sys.modules)") is False

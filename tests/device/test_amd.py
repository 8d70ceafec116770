"""The AMD back end over the unmodified `amdsmi` binding: what is read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.device.amd_clients import Ask
from tests.device.clients import TREE

from simulated_drivers import AmdGpuSpec, AmdSmiStatus
from zeus.device._sensors import Sensor, Sensors

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
    header = (TREE / "drivers/amdsmi/abi.h").read_text()
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
    simulation = simulate(AmdGpuSpec(watts=200.0, sensors=Sensors(Sensor(period=0.02), Sensor())))
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
    sensors = Sensors(Sensor(period=0.1), Sensor(), Sensor(window=1e-3))
    simulation = simulate(AmdGpuSpec(watts=100.0, average_power=True, sensors=sensors))
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

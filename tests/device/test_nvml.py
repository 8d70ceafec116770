"""The NVIDIA back end over the unmodified binding and a simulated driver: what is read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.device.nvml_rig import (
    ABSENT,
    HANGS,
    IMPLAUSIBLE,
    INSTANT_FIELD,
    LOST,
    NEW,
    NO_FIELDS,
    OLD,
    REFUSED,
    UNSUPPORTED,
    MakeRig,
    reasons,
)

from simulated_drivers import GpuSpec, NvmlReturn, build
from zeus.device._base import Capability
from zeus.device._sensors import Sensor, Sensors

# --- Readings -------------------------------------------------------------------------------------


def test_every_reading_is_right_and_in_si_units(rig: MakeRig) -> None:
    pid = os.getpid()
    gpu = GpuSpec(
        name="NVIDIA H100 80GB HBM3", uuid="GPU-11111111-2222", watts=300.0, pci_bus=0x3B,
        compute_capability=(9, 0), memory_power_fraction=0.25, default_power_limit=350.0,
        min_power_limit=200.0, max_power_limit=700.0, utilization_gpu=37, memory_used=5 * 2**30,
        memory_reserved=0, compute_processes=[(pid, 2**30), (4242, 2**64 - 1)],
        graphics_processes=[(4343, 2**20), (pid, 2**64 - 1)], persistence=True,
        graphics_clocks=[1980, 1200, 345], memory_clocks=[2619, 1593],
    )  # fmt: skip
    told = rig(gpu).ask(
        """
gpu, = get_gpus()
limits, clocks, offered = gpu.power_limits(), gpu.current_clocks(), gpu.supported_clocks()
memory, identity = gpu.memory(), gpu.identity
say({
    "identity": [identity.key, identity.name, identity.vendor, identity.pci_address,
                 identity.whole_module, gpu.index],
    "instant": gpu.instant_power(), "average": gpu.average_power(), "memory": gpu.memory_power(),
    "temperature": gpu.temperature(), "utilization": gpu.utilization(),
    "bytes": [memory.used, memory.total],
    "processes": sorted([p.pid, p.memory] for p in gpu.processes()),
    "limit": gpu.power_limit(), "limits": [limits.minimum, limits.maximum, limits.default],
    "clocks": [clocks.graphics, clocks.memory], "offered": [offered.graphics, offered.memory],
    "locks": [gpu.locked_graphics_clock(), gpu.locked_memory_clock()],
    "persistence": gpu.persistence(), "problems": told(get_gpus().problems),
})
"""
    )
    processes: list[list[Any]] = [[pid, 2**30], [4242, None], [4343, 2**20]]
    problems = told.pop("problems")
    assert all(what != "NVIDIA GPUs" for what, *_ in problems)
    assert told == {
        "identity": [
            "GPU-11111111-2222", "NVIDIA H100 80GB HBM3", "NVIDIA", "0000:3b:00.0", False, 0,
        ],
        "instant": 300.0, "average": 300.0, "memory": 75.0,
        "temperature": 66.0, "utilization": 0.37, "bytes": [5 * 2**30, 80 * 2**30],
        # A process in both lists is one process, and what one list tells of it counts.
        "processes": sorted(processes),
        "limit": 350.0, "limits": [200.0, 700.0, 350.0],
        "clocks": [1980, 2619], "offered": [[1980, 1200, 345], [2619, 1593]],
        "locks": [None, None], "persistence": True,
    }  # fmt: skip


def test_energy_is_the_counter_in_joules(rig: MakeRig) -> None:
    sensors = Sensors(Sensor(period=0.02), Sensor())
    readings = rig(GpuSpec(watts=250.0, sensors=sensors, counter_offset=12345.5)).ask(
        """
gpu, = get_gpus()
readings = []
for watts in (250.0, 400.0, 60.0):
    simulation.set_power(0, watts)
    enough = len({shown for _, shown in readings}) + 3
    while len({shown for _, shown in readings}) < enough:
        before = time.monotonic()
        joules = gpu.energy()
        if simulation.last_tick(0, before) == simulation.last_tick(0, time.monotonic()):
            readings.append([joules, simulation.counter(0, before)])
        time.sleep(0.001)
say(readings)
"""
    )
    assert len({shown for _, shown in readings}) > 5
    assert [joules for joules, _ in readings] == pytest.approx(
        [millijoules / 1000 for _, millijoules in readings], abs=1e-9
    )
    assert readings[0][0] > 12345.0


def test_instant_and_average_power_are_told_apart(rig: MakeRig) -> None:
    # The driver's mean is over a second; over a minute it cannot come near while we look.
    sensors = Sensors(Sensor(period=0.1), Sensor(), Sensor(window=60.0))
    old = GpuSpec(sensors=sensors, compute_capability=OLD)
    new = replace(old, compute_capability=NEW, power_usage_is="average")
    specs = {
        "fields": new,
        "old chip, no fields": replace(old, unsupported_fields=NO_FIELDS),
        "new chip, no fields": replace(new, unsupported_fields=NO_FIELDS),
        "no instant field": replace(new, unsupported_fields=[INSTANT_FIELD]),
        "no function": replace(old, unsupported=["nvmlDeviceGetFieldValues"]),
        "nothing": replace(
            old, unsupported_fields=NO_FIELDS, unsupported=["nvmlDeviceGetPowerUsage"]
        ),
    }
    answers = rig(*specs.values()).ask(
        """
gpus = get_gpus()
for gpu in range(len(gpus)):
    now = time.monotonic()
    simulation.schedule(gpu, [(now - 10, 100.0), (now - 0.01, 300.0)])
say([ask_all(gpu, "instant_power", "average_power", "memory_power") for gpu in gpus])
"""
    )
    found = dict(zip(specs, map(reasons, answers), strict=True))

    def is_mean(watts: float) -> bool:
        return 50.0 < watts < 299.0

    assert found["fields"][0] == 300.0
    assert is_mean(found["fields"][1])
    assert found["old chip, no fields"][:2] == [300.0, UNSUPPORTED]
    assert found["new chip, no fields"][0] == UNSUPPORTED
    assert is_mean(found["new chip, no fields"][1])
    assert found["no instant field"][0] == UNSUPPORTED
    assert is_mean(found["no instant field"][1])
    assert found["no function"][:2] == [300.0, UNSUPPORTED]
    assert found["nothing"][:2] == [UNSUPPORTED] * 2
    assert all(answer[2] == UNSUPPORTED for answer in found.values())


def test_a_library_without_a_function_costs_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rig: MakeRig
) -> None:
    # Libraries of before 2017 or so: some names are simply not there.
    missing = ["nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption"]
    renamed = " ".join(f"-D{name}=since_removed_{name}" for name in missing)
    monkeypatch.setenv("CC", f"{os.environ.get('CC', 'cc')} {renamed}")
    older = build("nvml", tmp_path / "older").parent
    machine = rig(GpuSpec(watts=120.0, compute_capability=(6, 0)))
    variables = machine.simulation.environment(older)
    answers = machine.ask(
        """
say(ask_all(get_gpus()[0], "energy", "instant_power", "average_power", "memory_power",
            "temperature"))
""",
        **variables,
    )
    assert reasons(answers) == [UNSUPPORTED, 120.0, UNSUPPORTED, UNSUPPORTED, 44.0]


READINGS = {
    "energy": "nvmlDeviceGetTotalEnergyConsumption",
    "temperature": "nvmlDeviceGetTemperature",
    "utilization": "nvmlDeviceGetUtilizationRates",
    "memory": "nvmlDeviceGetMemoryInfo",
    "processes": "nvmlDeviceGetComputeRunningProcesses",
    "power_limit": "nvmlDeviceGetPowerManagementLimit",
    "power_limits": "nvmlDeviceGetPowerManagementLimitConstraints",
    "current_clocks": "nvmlDeviceGetClockInfo",
    "supported_clocks": "nvmlDeviceGetSupportedMemoryClocks",
    "persistence": "nvmlDeviceGetPersistenceMode",
}


def test_garbage_is_never_a_number(rig: MakeRig) -> None:
    questions = [
        *("instant_power", "average_power", "memory_power"),
        *(name for name in READINGS if name != "processes"),
    ]
    specs = [
        GpuSpec(memory_power_fraction=0.1),
        # Without the fields, power is chosen by a compute capability that is garbage as well.
        GpuSpec(unsupported_fields=NO_FIELDS),
    ]
    garbage, chosen, after = rig(*specs).ask(
        f"""
gpus = get_gpus()
for gpu in (0, 1):
    simulation.fault(gpu, "*", "sentinel")
garbage = ask_all(gpus[0], *{questions})
chosen = ask_all(gpus[1], "instant_power", "average_power")
simulation.clear_faults(0)
say([garbage, chosen, ask_all(gpus[0], "instant_power", "power_limit")])
"""
    )
    assert dict(zip(questions, reasons(garbage), strict=True)) == dict.fromkeys(
        questions, IMPLAUSIBLE
    )
    assert reasons(chosen) == [IMPLAUSIBLE] * 2
    assert after == [60.0, 400.0]  # a passing bout of garbage is passing


def test_memory_of_processes_that_the_driver_does_not_know_is_none(rig: MakeRig) -> None:
    machine = rig(GpuSpec(compute_processes=[(7, 2**30)]))
    machine.simulation.fault(0, "nvmlDeviceGetComputeRunningProcesses", "sentinel")
    assert machine.ask("say([[p.pid, p.memory] for p in get_gpus()[0].processes()])") == [[7, None]]


def test_a_wrong_count_of_gpus_is_not_believed(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    machine.simulation.fault(None, "nvmlDeviceGetCount", "sentinel")
    count, problems = machine.ask("say([len(get_gpus()), told(get_gpus().problems)])")
    assert count == 0
    assert ["NVIDIA GPUs", IMPLAUSIBLE, ""] in problems


def test_what_is_not_supported_costs_only_itself(rig: MakeRig) -> None:
    machine = rig(*(GpuSpec(unsupported=[function]) for function in READINGS.values()))
    answers = machine.ask(f"say([ask_all(gpu, *{list(READINGS)}) for gpu in get_gpus()])")
    for position, (question, row) in enumerate(zip(READINGS, answers, strict=True)):
        refused = [name for name, answer in zip(READINGS, row, strict=True) if _refused(answer)]
        assert refused == [question], position
        assert row[position][0] == UNSUPPORTED


def _refused(answer: Any) -> bool:
    return isinstance(answer, list) and len(answer) == 3 and isinstance(answer[1], str)


def test_parts_without_graphics_still_list_their_processes(rig: MakeRig) -> None:
    gpu = GpuSpec(compute_processes=[(7, 8)], unsupported=["nvmlDeviceGetGraphicsRunningProcesses"])
    assert rig(gpu).ask("say([p.pid for p in get_gpus()[0].processes()])") == [7]


def test_each_error_has_its_reason(rig: MakeRig) -> None:
    expected = {
        NvmlReturn.NOT_SUPPORTED: UNSUPPORTED,
        NvmlReturn.FUNCTION_NOT_FOUND: UNSUPPORTED,
        NvmlReturn.INVALID_ARGUMENT: UNSUPPORTED,
        NvmlReturn.NO_DATA: UNSUPPORTED,
        NvmlReturn.NO_PERMISSION: REFUSED,
        NvmlReturn.DRIVER_NOT_LOADED: ABSENT,
        NvmlReturn.LIB_RM_VERSION_MISMATCH: ABSENT,
        NvmlReturn.TIMEOUT: HANGS,
        NvmlReturn.GPU_IS_LOST: LOST,
        NvmlReturn.RESET_REQUIRED: LOST,
        NvmlReturn.UNKNOWN: LOST,
    }
    answers = rig(GpuSpec()).ask(
        f"""
gpu, = get_gpus()
answers = []
for code in {[int(code) for code in expected]}:
    simulation.fault(0, "nvmlDeviceGetTotalEnergyConsumption", "error", code=code)
    answers.append(outcome(gpu.energy))
say(answers)
"""
    )
    assert dict(zip(expected, reasons(answers), strict=True)) == expected
    assert all("energy counter" in detail for _, detail, _ in answers)
    cured = {reason for reason, _, cure in answers if cure}
    assert cured == {REFUSED, ABSENT, LOST}


# --- Support --------------------------------------------------------------------------------------


def test_support_of_every_capability(rig: MakeRig) -> None:
    gpus = [
        GpuSpec(compute_capability=(9, 0), memory_power_fraction=0.1),
        GpuSpec(
            compute_capability=OLD, unsupported_fields=NO_FIELDS, persistence_supported=False,
            unsupported=["nvmlDeviceGetTotalEnergyConsumption"],
        ),
        GpuSpec(compute_capability=(9, 0), memory_power_fraction=0.1),
    ]  # fmt: skip
    machine = rig(*gpus)
    machine.simulation.deny_control(gpu=2)
    machine.simulation.set_power_limit(0, 187.5)
    answers = machine.ask(
        """
say([{str(c): [s.available, s.reason and str(s.reason), s.cure]
      for c in Capability for s in [gpu.support(c)]} for gpu in get_gpus()])
"""
    )
    missing = [{name for name, (there, *_) in each.items() if not there} for each in answers]
    lacking = {
        Capability.ENERGY_COUNTER,
        Capability.AVERAGE_POWER,
        Capability.MEMORY_POWER,
        Capability.PERSISTENCE,
    }
    control = {Capability.SET_POWER_LIMIT, Capability.LOCK_CLOCKS}
    assert missing == [set(), lacking, control]
    assert all(answers[1][name][1] == UNSUPPORTED for name in lacking)
    assert all(answers[2][name][1] == REFUSED for name in control)
    assert all("root" in answers[2][name][2] for name in control)
    assert machine.simulation.power_limit(0) == 187.5  # asking has changed nothing
    assert machine.simulation.clocks(0).locked_graphics is None

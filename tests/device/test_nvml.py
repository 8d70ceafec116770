"""The NVIDIA back end over the unmodified binding and a simulated libnvidia-ml.so.1.

Each client is a process of its own, because the loader reads LD_LIBRARY_PATH only once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.device.clients import Clients
from tests.drivers.build import build
from tests.drivers.nvml_state import GpuSpec, NvmlReturn, SimulatedNvml

from zeus.device.base import Capability
from zeus.device.journal import recorded_gpus

AVERAGE_FIELD, INSTANT_FIELD = 185, 186
NO_FIELDS = (AVERAGE_FIELD, INSTANT_FIELD)
OLD, NEW = (8, 0), (8, 6)  # GA100, whose power reading is of now, and GA10x, whose is a mean

# What clients of a simulation add to the common beginning.
WITH_SIMULATION = """
from tests.drivers.nvml_state import SimulatedNvml
from zeus.device import guard
simulation = SimulatedNvml(Path(os.environ["ZEUS_SIMULATED_NVML"]))

def told(problems):
    return [[problem.what, str(problem.error.reason), problem.error.cure] for problem in problems]

def ask_all(gpu, *questions):
    return [outcome(getattr(gpu, question)) for question in questions]
"""

UNSUPPORTED, REFUSED, LOST = "unsupported", "no permission", "device lost"
HANGS, IMPLAUSIBLE, ABSENT = "driver call hangs", "implausible value", "driver absent"


class Rig:
    """A simulated driver and the clients that use it."""

    def __init__(self, simulation: SimulatedNvml, library: Path) -> None:
        self.simulation = simulation
        self.clients = Clients(**simulation.environment(library), CUDA_DEVICE_ORDER="PCI_BUS_ID")

    def ask(self, script: str, **variables: str) -> Any:
        return self.clients.ask(WITH_SIMULATION + script, **variables)

    def start(self, script: str, **variables: str) -> Any:
        return self.clients.start(WITH_SIMULATION + script, **variables)


MakeRig = Callable[..., Rig]


@pytest.fixture
def rig(tmp_path: Path, nvml_library: Path) -> Iterator[MakeRig]:
    made: list[Rig] = []

    def make(*gpus: GpuSpec) -> Rig:
        anyone = [replace(gpu, needs_root=False) for gpu in gpus]  # whoever runs the tests
        simulation = SimulatedNvml.create(tmp_path / f"nvml-{len(made)}", anyone)
        made.append(Rig(simulation, nvml_library))
        return made[-1]

    yield make
    for one in made:
        one.clients.stop()
        one.simulation.close()


def reasons(answers: list[Any]) -> list[Any]:
    """Values as they are, refusals by their reason."""
    return [answer[0] if isinstance(answer, list) else answer for answer in answers]


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
    problems = told.pop("problems")
    assert all(what != "NVIDIA GPUs" for what, *_ in problems)
    assert told == {
        "identity": [
            "GPU-11111111-2222", "NVIDIA H100 80GB HBM3", "NVIDIA", "0000:3b:00.0", False, 0,
        ],
        "instant": 300.0, "average": 300.0, "memory": 75.0,
        "temperature": 66.0, "utilization": 0.37, "bytes": [5 * 2**30, 80 * 2**30],
        # A process in both lists is one process, and what one list tells of it counts.
        "processes": sorted([[pid, 2**30], [4242, None], [4343, 2**20]]),
        "limit": 350.0, "limits": [200.0, 700.0, 350.0],
        "clocks": [1980, 2619], "offered": [[1980, 1200, 345], [2619, 1593]],
        "locks": [None, None], "persistence": True,
    }  # fmt: skip


def test_energy_is_the_counter_in_joules(rig: MakeRig) -> None:
    readings = rig(GpuSpec(watts=250.0, tick_period=0.02, counter_offset=12345.5)).ask(
        """
gpu, = get_gpus()
readings = []
for watts in (250.0, 400.0, 60.0):
    simulation.set_power(0, watts)
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
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
    specs = {
        "fields": GpuSpec(compute_capability=NEW, power_usage_is="average"),
        "old chip, no fields": GpuSpec(compute_capability=OLD, unsupported_fields=NO_FIELDS),
        "new chip, no fields": GpuSpec(
            compute_capability=NEW, power_usage_is="average", unsupported_fields=NO_FIELDS
        ),
        "no instant field": GpuSpec(
            compute_capability=NEW, power_usage_is="average", unsupported_fields=[INSTANT_FIELD]
        ),
        "no function": GpuSpec(compute_capability=OLD, unsupported=["nvmlDeviceGetFieldValues"]),
        "nothing": GpuSpec(
            compute_capability=OLD, unsupported_fields=NO_FIELDS,
            unsupported=["nvmlDeviceGetPowerUsage"],
        ),
    }  # fmt: skip
    # The driver's mean is over a second; over a minute it cannot come near while we look.
    answers = rig(*(replace(spec, average_window=60.0) for spec in specs.values())).ask(
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
        return 50.0 < watts < 250.0

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


# --- Lost and hanging GPUs ------------------------------------------------------------------------


def test_a_lost_gpu_costs_only_itself_and_no_index(rig: MakeRig) -> None:
    machine = rig(GpuSpec(watts=100.0), GpuSpec(watts=150.0), GpuSpec(watts=200.0))
    machine.simulation.set_lost_at_init(0)
    powers, cure, count, late = machine.ask(
        """
gpus = get_gpus()
powers = [outcome(gpu.instant_power) for gpu in gpus]
refusals = [outcome(gpus[0].hold, power_limit=200), outcome(gpus[0].energy)]
simulation.lose(1)
late = [outcome(gpu.instant_power) for gpu in gpus]
say([powers, [r[0] for r in refusals], len(gpus), late])
"""
    )
    assert reasons(powers) == [LOST, 150.0, 200.0]
    assert cure == [LOST, LOST]
    assert count == 3
    assert reasons(late) == [LOST, LOST, 200.0]
    assert "dmesg" in powers[0][2]


def test_a_gpu_lost_between_handle_and_name_is_absent_too(rig: MakeRig) -> None:
    machine = rig(GpuSpec(), GpuSpec(watts=150.0))
    machine.simulation.lose(0)
    answers = machine.ask("say([outcome(gpu.instant_power) for gpu in get_gpus()])")
    assert reasons(answers) == [LOST, 150.0]


def test_a_hanging_call_is_given_up_and_taken_up_again(rig: MakeRig) -> None:
    hanging, at_once, other, after = rig(GpuSpec(watts=100.0), GpuSpec(watts=150.0)).ask(
        """
gpus = get_gpus()
guard.DEFAULT_TIMEOUT = 0.1
simulation.fault(0, "nvmlDeviceGetFieldValues", "hang")
hanging = outcome(gpus[0].instant_power)
guard.DEFAULT_TIMEOUT = 1000.0  # so that waiting once more would be seen
at_once = outcome(gpus[0].energy)
other = gpus[1].instant_power()
simulation.clear_faults(0)
while isinstance(after := outcome(gpus[0].instant_power), list):
    time.sleep(0.005)
say([hanging, at_once, other, after])
"""
    )
    assert hanging[0] == at_once[0] == HANGS
    assert "0.1 s" in hanging[1]
    assert (other, after) == (150.0, 100.0)


def test_a_gpu_that_hangs_from_the_start_costs_only_itself(rig: MakeRig) -> None:
    machine = rig(GpuSpec(), GpuSpec(watts=150.0))
    machine.simulation.fault(0, "nvmlDeviceGetName", "hang")
    answers = machine.ask(
        "nvml._INIT_TIMEOUT = 0.3\n"
        "say([outcome(gpu.instant_power) for gpu in get_gpus()]); os._exit(0)"
    )
    assert reasons(answers) == [HANGS, 150.0]


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_hangs_is_a_problem_not_the_end(rig: MakeRig, function: str) -> None:
    machine = rig(GpuSpec())
    machine.simulation.fault(None, function, "hang")
    count, problems = machine.ask(
        "nvml._INIT_TIMEOUT = 0.2\nsay([len(get_gpus()), told(get_gpus().problems)]); os._exit(0)"
    )
    assert count == 0
    assert ["NVIDIA GPUs", HANGS, ""] in problems


def test_without_driver_or_library_there_are_no_gpus(
    rig: MakeRig, nvml_library: Path, tmp_path: Path
) -> None:
    machine = rig(GpuSpec())
    broken = tmp_path / "broken"
    broken.mkdir()
    # A name that the loader finds first and cannot use, whatever this machine has installed.
    (broken / "libnvidia-ml.so.1").write_text("no library")
    report = "say([len(get_gpus()), told(get_gpus().problems)])"
    for variables in (
        {"ZEUS_SIMULATED_NVML": "/nonexistent", "LD_LIBRARY_PATH": str(nvml_library)},
        {"LD_LIBRARY_PATH": str(broken)},
    ):
        count, problems = machine.clients.ask(
            "def told(problems):\n"
            "    return [[p.what, str(p.error.reason), p.error.cure] for p in problems]\n" + report,
            **variables,
        )
        assert count == 0
        absent = [problem for problem in problems if problem[0] == "NVIDIA GPUs"]
        assert absent[0][1] == ABSENT
        assert "nvidia-smi" in absent[0][2]


def test_threads_may_ask_for_power_at_once(rig: MakeRig) -> None:
    # A sampler asks the driver directly, while others ask through the guard.
    wrong = rig(GpuSpec(watts=321.0)).ask(
        """
gpu, = get_gpus()
gpu.instant_power()
answers = set()

def work(ask):
    for _ in range(4000):
        answers.add(str(outcome(ask)))

threads = [threading.Thread(target=work, args=(ask,))
           for ask in (gpu.instant_power, gpu.driver.instant_power, gpu.driver.instant_power)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
say(sorted(answers))
"""
    )
    assert wrong == ["321.0"]


# --- Visible devices ------------------------------------------------------------------------------

FIRST, SECOND, THIRD = (f"GPU-{letter * 8}-0000" for letter in "abc")


def three() -> list[GpuSpec]:
    return [GpuSpec(uuid=uuid, name=uuid) for uuid in (FIRST, SECOND, THIRD)]


def test_control_goes_to_the_gpu_that_the_framework_means(rig: MakeRig) -> None:
    machine = rig(*three())
    seen = []
    for visible in (f"{SECOND},{FIRST}", "GPU-b", "1"):
        client = machine.start(
            "with get_gpus()[0].hold(power_limit=200): say(get_gpus()[0].key); heard()",
            CUDA_VISIBLE_DEVICES=visible,
        )
        seen.append(client.hear())
        limits = [machine.simulation.power_limit(gpu) for gpu in range(3)]
        assert limits == [400.0, 200.0, 400.0]
        client.tell()
        assert client.end() == 0
        assert machine.simulation.power_limit(1) == 400.0
    assert seen == [SECOND] * 3


def test_the_fastest_gpu_is_first_by_default(rig: MakeRig) -> None:
    slow, fast = GpuSpec(name="slow", cores=1000), GpuSpec(name="fast", cores=5000)
    machine = rig(slow, fast)
    report = "say([gpu.name for gpu in get_gpus()])"
    assert machine.ask(report) == ["slow", "fast"]
    assert machine.ask(report, CUDA_DEVICE_ORDER="FASTEST_FIRST") == ["fast", "slow"]


def test_a_slice_is_measured_by_its_whole_gpu(rig: MakeRig) -> None:
    machine = rig(
        GpuSpec(watts=100.0), GpuSpec(name="A100", watts=150.0, mig_uuids=["aaaa", "bbbb"])
    )
    report = """
say([[gpu.name, gpu.identity.whole_module, gpu.instant_power(), gpu.power_limit()]
     for gpu in get_gpus()])
"""
    assert machine.ask(report, CUDA_VISIBLE_DEVICES="MIG-bbbb") == [
        ["A100 (whole GPU of MIG-bbbb)", True, 150.0, 400.0]
    ]
    assert machine.ask(report)[1][:3] == ["A100 (whole GPU of MIG-aaaa)", True, 150.0]
    assert machine.ask(report, CUDA_VISIBLE_DEVICES="MIG-cccc") == []


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


def test_a_setter_that_hangs_is_undone_by_the_next_start(rig: MakeRig) -> None:
    machine = rig(GpuSpec())
    simulation = machine.simulation
    simulation.set_power_limit(0, 321.5)
    said = machine.ask(
        """
gpu, = get_gpus()
guard.DEFAULT_TIMEOUT = 0.1
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

"""A report covers all devices; one that hangs, is lost or fails costs only itself."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.verify.worlds import by_name, different, node_of, report_of

from simulated_drivers import GpuSpec, NvmlReturn, SimulatedNvml
from zeus.clock import VirtualClock
from zeus.device._base import Cpu, CpuDriver, DeviceSet
from zeus.device._node import Node
from zeus.device._rapl import discover
from zeus.errors import CapabilityError, Reason
from zeus.monitor import ZeusMonitor
from zeus.verify import _checks as names
from zeus.verify._checks import Verdict, Why
from zeus.verify._cpu_checks import check_counter
from zeus.verify._kernel_load import LoadError
from zeus.verify._loads import SimulatedLoad
from zeus.verify._report import verify
from zeus.verify._sensor_checks import Lengths


def test_a_simulated_gpu_is_as_expected_in_everything():
    device = report_of(node_of(), knobs=True)
    assert different(device) == set()
    assert (device.preset, device.load, device.simulated) == ("a100", "simulated kernels", True)
    verdicts = {check.name: check.verdict for check in device.checks}
    for name in (names.SHORT_COVERED, names.MIDDLE_COVERED, names.ADD_UP, names.CLOCK_RESTORED):
        assert verdicts[name] is Verdict.EXPECTED


def test_a_host_that_pauses_around_windows_does_not_change_their_truth(monkeypatch):
    """The load went on meanwhile, outside the windows."""
    begin, end = ZeusMonitor.begin_window, ZeusMonitor.end_window

    def late_begin(monitor, key):
        monitor.node.clock.sleep(0.02)
        begin(monitor, key)

    def late_end(monitor, key):
        measurement = end(monitor, key)
        monitor.node.clock.sleep(0.02)
        return measurement

    monkeypatch.setattr(ZeusMonitor, "begin_window", late_begin)
    monkeypatch.setattr(ZeusMonitor, "end_window", late_end)
    checks = by_name(report_of(node_of(part="v100")).checks)
    for name in (names.SHORT_COVERED, names.MIDDLE_COVERED, names.LONG_COVERED):
        assert checks[name].verdict is Verdict.EXPECTED, checks[name]


def test_windows_add_up_on_a_gpu_without_a_counter():
    assert different(report_of(node_of(part="p100"))) == set()


def test_a_model_without_preset_is_measured():
    device = report_of(node_of(part="v100", name="NVIDIA X1"))
    checks = by_name(device.checks)
    assert device.preset == ""
    for name in (names.POWER_PERIOD, names.POWER_WINDOW, names.HIGHEST_CLOCK, names.IDLE_POWER):
        assert checks[name].verdict is Verdict.MEASURED
    # What holds for all GPUs is compared all the same.
    assert checks[names.AGREEMENT].verdict is Verdict.EXPECTED
    assert checks[names.SHORT_COVERED].verdict is Verdict.EXPECTED


def test_a_gpu_that_is_lost_on_the_way_costs_only_itself(monkeypatch):
    node = node_of(part="a100x2")
    lost, usual = node.drivers[0], node.drivers[0].sample

    def sample() -> tuple[float | CapabilityError, float | CapabilityError]:
        if node.clock.now() > 6:
            error = CapabilityError(Reason.LOST, "GPU-0815 has fallen off the bus")
            return error, error
        return usual()

    monkeypatch.setattr(lost, "sample", sample)
    first, second = verify(node, lengths=_short()).devices
    assert [check.why for check in first.checks if check.name == names.REST] == [Reason.LOST]
    assert by_name(second.checks)[names.POWER_WINDOW].verdict is Verdict.EXPECTED


def test_a_load_that_fails_on_the_way_is_given_up(monkeypatch):
    calls = iter(range(100))

    def finish(self: SimulatedLoad) -> list:
        if next(calls) == 1:
            raise LoadError("out of memory")
        return []

    monkeypatch.setattr(SimulatedLoad, "finish", finish)
    node = node_of()
    (device,) = verify(node, lengths=_short()).devices
    assert device.no_load == "out of memory"
    assert by_name(device.checks)[names.POWER_WINDOW].why == Why.NO_LOAD
    assert node.drivers[0].load() == (-1.0, 1.0)  # as before


def _short() -> Lengths:
    return Lengths(idle=1.0, burst=0.2, load=6.0, windows=5.0, knob=0.3, host=0.3)


SCRIPT = """
import json, sys
from zeus.device import current_node
from zeus.verify import _kernel_load
from zeus.verify._report import verify
from zeus.verify._sensor_checks import Lengths
from zeus.verify._share import shared
_kernel_load._FRAMEWORKS = ()
lengths = Lengths(idle=0.3, burst=0.1, load=1.0, windows=1.0, host=0.1)
from zeus.verify import _window_checks
_window_checks._LONG = _window_checks._LEARNING = 0.3
report = verify(current_node(), lengths=lengths)
json.dump({"report": report.to_dict(), "shared": shared(report)}, sys.stdout)
"""


@pytest.fixture
def on_drivers(tmp_path_factory, nvml_library):
    """A report on three GPUs of the simulated driver library: good, hanging, lost; and calls."""
    place = tmp_path_factory.mktemp("nvml")
    specs = [
        GpuSpec(name="NVIDIA A100-SXM4-80GB", uuid=f"GPU-5eed{at}000-1111-2222-3333-444455556666")
        for at in range(3)
    ]
    rapl = place / "secret-folder" / "intel-rapl:0"
    rapl.mkdir(parents=True)
    (rapl / "name").write_text("package-0\n")
    (rapl / "max_energy_range_uj").write_text("262143328850\n")
    (rapl / "energy_uj").write_text("bad\n")
    with SimulatedNvml.create(place / "node", specs) as sim:
        sim.fault(1, "nvmlDeviceGetFieldValues", "hang", skip=20)
        sim.fault(2, "*", "error", code=NvmlReturn.GPU_IS_LOST, skip=60)
        variables = {
            **os.environ,
            **sim.environment(nvml_library),
            "ZEUS_STATE_DIR": str(place / "state"),
            "ZEUS_POWERCAP_ROOT": str(rapl.parent),
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=variables, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        changes = sim.calls("nvmlDeviceSetPowerManagementLimit") + sim.calls(
            "nvmlDeviceSetGpuLockedClocks"
        )
        return json.loads(done.stdout), changes, [spec.uuid for spec in specs], str(place)


def test_on_drivers_that_hang_or_lose_their_gpu(on_drivers):
    """One run, which takes seconds: guards are real, and nothing else is asserted of its time."""
    check_that_a_hanging_driver_costs_only_its_gpu(on_drivers)
    assert on_drivers[1] == 0  # nothing is set unless asked for
    check_that_the_shared_file_names_nothing_of_the_machine(on_drivers)


def check_that_a_hanging_driver_costs_only_its_gpu(on_drivers):
    good, hanging, lost = on_drivers[0]["report"]["devices"][:3]
    assert good["no_load"] == "neither torch, cupy nor jax is installed"
    verdicts = {check["name"]: check["verdict"] for check in good["checks"]}
    assert verdicts["counter period"] == "as expected"
    assert verdicts["windows add up"] == "as expected"
    for device, why in ((hanging, "driver call hangs"), (lost, "device lost")):
        (rest,) = [check for check in device["checks"] if check["name"] == "other checks"]
        assert rest["why"] == why


def check_that_the_shared_file_names_nothing_of_the_machine(on_drivers):
    text = json.dumps(on_drivers[0]["shared"])
    full = json.dumps(on_drivers[0]["report"])
    uuids, place = on_drivers[2:]
    # It could: the errors in the report itself have paths.
    assert place in full
    secrets = [
        *uuids, *(uuid[4:12] for uuid in uuids), place, "secret-folder", socket.gethostname(),
        getpass.getuser(), str(Path.home()), str(Path.cwd()), time.strftime("%Y-%m-%d"),
        *(os.environ[name] for name in ("HOSTNAME", "USER") if os.environ.get(name)),
    ]  # fmt: skip
    words = set(re.findall(r"[A-Za-z0-9_.-]+", text))
    for secret in secrets:
        if "/" in secret or len(secret) > 8:
            assert secret not in text
        else:
            assert secret not in words
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-f]{2}:[0-9a-f]{2}\.\d|\d\d:\d\d|/", text)


class CountingCpu(CpuDriver):
    """A package of 40 W whose counter is refreshed every millisecond."""

    def __init__(self, clock: VirtualClock, wrong: float = 0.0) -> None:
        self._clock = clock
        self._wrong = wrong

    def energy(self) -> float:
        """Joules."""
        now = self._clock.now()
        return 0.04 * int(now / 1e-3) - (self._wrong if now > 0.1 else 0.0)


def test_counters_of_cpus():
    clock = VirtualClock()
    node = Node(clock, cpus=DeviceSet([Cpu(0, "package-0", CountingCpu(clock))]))
    cpu, dram = verify(node, lengths=_short()).devices
    checks = by_name(cpu.checks)
    assert checks[names.CPU_PERIOD].value == pytest.approx(1e-3, abs=2e-4)
    assert checks[names.CPU_PERIOD].verdict is Verdict.EXPECTED
    assert checks[names.CPU_LOAD].value == pytest.approx(40.0, rel=0.02)
    assert [check.why for check in dram.checks] == [Reason.UNSUPPORTED]
    reset = check_counter(Cpu(0, "package-0", CountingCpu(clock, 5.0)), clock, 0.3, dram=False)
    assert by_name(reset)[names.CPU_DECREASES].verdict is not Verdict.DIFFERENT  # it was before
    clock = VirtualClock()
    reset = check_counter(Cpu(0, "package-0", CountingCpu(clock, 5.0)), clock, 0.3, dram=False)
    assert by_name(reset)[names.CPU_DECREASES].verdict is Verdict.DIFFERENT


def test_the_range_of_a_package_is_that_of_its_zone(tmp_path):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("1000000\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (cpu,), _ = discover(tmp_path, system="Linux", machine="x86_64")
    checks = by_name(check_counter(cpu, VirtualClock(), 0.05, dram=False))
    assert checks[names.CPU_WRAP].value == pytest.approx(262143.32885)
    assert checks[names.CPU_PERIOD].why == Why.CONSTANT

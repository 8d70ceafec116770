"""The monitor on the simulated driver library, through the vendor's binding, in real time.

Each test runs a program of its own under the driver; the exact energy is known from the driver's
state, so accuracy is asserted. Nothing here asserts how long anything takes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from simulated_drivers import GpuSpec, SimulatedNvml
from zeus.device._sensors import Sensor, Sensors

ROOT = Path(__file__).parents[2]

PRELUDE = """
import json, os, random, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from simulated_drivers import SimulatedNvml
from zeus.monitor import Method, ZeusMonitor

sim = SimulatedNvml(Path({state!r}))
generator = random.Random(11)

def answer(value):
    print(json.dumps(value), flush=True)

def wait_for_helper(monitor):
    deadline = time.monotonic() + 120
    while not monitor._sampler.sources.followed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert monitor._sampler.sources.followed
"""


class Programs:
    """Runs programs under one simulated driver."""

    def __init__(self, library: Path, path: Path, specs) -> None:
        self.sim = SimulatedNvml.create(path, specs)
        self._path = path
        self._environment = {**os.environ, **self.sim.environment(library)}
        self.started: list[subprocess.Popen] = []

    def start(self, script: str, **environment: str) -> subprocess.Popen:
        prelude = PRELUDE.format(root=str(ROOT / "drivers/python"), state=str(self._path))
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self._environment, **environment},
        )
        self.started.append(process)
        return process

    def ask(self, script: str, **environment: str):
        process = self.start(script, **environment)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return json.loads(out.strip().splitlines()[-1])


@pytest.fixture
def programs(nvml_library, tmp_path):
    made: list[Programs] = []

    def make(*specs: GpuSpec) -> Programs:
        made.append(Programs(nvml_library, tmp_path / f"state{len(made)}", list(specs)))
        return made[-1]

    yield make
    for group in made:
        group.sim.clear_faults()
        for process in group.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


ACCURACY = """
monitor = ZeusMonitor()
wait_for_helper(monitor)
def wait(seconds):
    if {spin}:
        end = time.monotonic() + seconds
        while time.monotonic() < end: pass
    else:
        time.sleep(seconds)
windows = []
def window(name, watts):
    begin = time.monotonic()
    monitor.begin_window(name)
    sim.set_power(0, watts)
    wait({length} * generator.uniform(0.8, 1.2))
    end = time.monotonic()
    windows.append((begin, end, monitor.end_window(name)))
for i in range({windows}):
    if {scenario!r} == "steps":
        for name, watts in (("forward", 250.0), ("backward", 320.0), ("update", 120.0)):
            window(name, watts)
    else:
        window("step", 300.0)
        sim.set_power(0, 60.0)
        wait(generator.uniform(0.0, 0.12))
assert monitor.settle(120)
found = []
for begin, end, measurement in windows[len(windows) // 3:]:
    assert measurement.settled
    (reading,) = measurement.readings
    truth = sim.energy(0, begin, end)
    found.append([abs(reading.energy / truth - 1), reading.uncertainty / truth])
answer(found)
"""

JITTER = Sensors(Sensor(period=0.1, jitter=0.005), Sensor(noise=0.01))
IN_STEP = Sensors(Sensor(period=0.1, phase=0.3), Sensor(period=0.1, phase=0.3, window=0.025))


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("sensors", "run"),
    [
        pytest.param("a100", ("steps", 0.05, 100, False), id="a100-steps"),
        pytest.param("a100", ("inside", 0.05, 150, True), id="a100-spinning"),
        pytest.param("a100", ("inside", 0.5, 20, False), id="a100-long"),
        pytest.param("v100", ("steps", 0.05, 60, False), id="v100-steps"),
        pytest.param(IN_STEP, ("steps", 0.05, 100, False), id="in-step"),
        pytest.param("live-power", ("inside", 0.05, 100, False), id="live"),
        pytest.param("live-power", ("inside", 0.05, 100, True), id="live-spinning"),
        pytest.param(JITTER, ("inside", 0.5, 15, False), id="jitter-and-noise"),
    ],
)
@pytest.mark.thorough(keep=2)
def test_windows_on_sensors_of_all_kinds(programs, sensors, run):
    """The energies are about right, and what is stated of them covers the truth."""
    scenario, length, windows, spin = run
    found = programs(GpuSpec(sensors=sensors)).ask(
        ACCURACY.format(scenario=scenario, length=length, windows=windows, spin=spin)
    )
    errors = sorted(error for error, _ in found)
    # Several times what is found where nothing holds the host up.
    assert errors[len(errors) // 2] < 0.03, errors
    assert sum(error <= stated for error, stated in found) >= 0.9 * len(found), found


def test_begin_and_end_call_no_driver(programs):
    """However slow the driver is, a window's edges do not wait for it."""
    group = programs(GpuSpec(), GpuSpec())
    found = group.ask("""
        import threading
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        time.sleep(0.3)
        sim.set_driver_latency(0.2)
        started = time.perf_counter()
        for _ in range(200):
            monitor.begin_window("w")
            monitor.end_window("w")
        spent = time.perf_counter() - started
        sim.set_driver_latency(0.0)
        answer(spent)
    """)
    # A single call that did wait would take 0.2 s; two hundred windows together take less.
    assert found < 0.2 * 200


@pytest.mark.real_time
def test_a_lost_gpu_costs_only_itself(programs):
    group = programs(GpuSpec(watts=100.0), GpuSpec(watts=200.0))
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("before")
        time.sleep(0.3)
        before = monitor.end_window("before")
        before.gpu_energy
        monitor.begin_window("w")
        begin = time.monotonic()
        time.sleep(0.2)
        sim.lose(1)
        time.sleep(0.4)
        end = time.monotonic()
        m = monitor.end_window("w")
        answer([sorted(before.gpu_energy), m.gpu_energy, sim.energy(0, begin, end),
                [[r.index, r.energy, r.method, r.note] for r in m.unavailable], m.total_energy])
    """)
    before, energies, truth, unavailable, total = found
    assert before == [0, 1]
    assert energies["0"] == pytest.approx(truth, rel=0.05)
    assert total == pytest.approx(truth, rel=0.05)
    assert unavailable[0][:3] == [1, None, "unavailable"]
    assert "device lost" in unavailable[0][3]


@pytest.mark.real_time
def test_a_gpu_lost_from_the_start_costs_only_itself(programs):
    group = programs(GpuSpec(lost_at_init=True), GpuSpec(watts=200.0))
    found = group.ask("""
        monitor = ZeusMonitor()
        monitor.begin_window("w")
        time.sleep(0.5)
        m = monitor.end_window("w")
        answer([m.gpu_energy, m.unavailable[0].index, m.unavailable[0].note, m.time])
    """)
    assert found[0]["1"] == pytest.approx(200.0 * found[3], rel=0.05)
    assert found[1] == 0
    assert "device lost" in found[2]


@pytest.mark.real_time
def test_a_hanging_gpu_costs_only_itself(programs):
    group = programs(GpuSpec(watts=100.0), GpuSpec(watts=200.0), GpuSpec(watts=300.0))
    found = group.ask("""
        import zeus.monitor._sources as sources
        sources.HANG_TIMEOUT = 0.7
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("w")
        begin = time.monotonic()
        time.sleep(0.5)
        sim.fault(1, "nvmlDeviceGetTotalEnergyConsumption", "hang")
        sim.fault(1, "nvmlDeviceGetFieldValues", "hang")
        deadline = time.monotonic() + 120
        while monitor._estimators[1].status.trouble is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
        end = time.monotonic()
        m = monitor.end_window("w")
        energies = m.gpu_energy
        answer([energies, [sim.energy(i, begin, end) for i in range(3)],
                [[r.index, r.note] for r in m.unavailable]])
    """)
    energies, truth, unavailable = found
    assert set(energies) == {"0", "2"}
    assert energies["0"] == pytest.approx(truth[0], rel=0.05)
    assert energies["2"] == pytest.approx(truth[2], rel=0.05)
    assert unavailable[0][0] == 1
    assert "hangs" in unavailable[0][1]


@pytest.mark.real_time
def test_a_gpu_that_hung_for_a_while_is_measured_again(programs):
    group = programs(GpuSpec(watts=100.0), GpuSpec(watts=200.0))
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("stalled")
        for call in ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues"):
            sim.fault(1, call, "hang")
        deadline = time.monotonic() + 120
        while monitor._estimators[1].status.trouble is None and time.monotonic() < deadline:
            time.sleep(0.05)
        unseen = [r.index for r in monitor.end_window("stalled").unavailable]
        sim.clear_faults(1)
        again = []
        for each in (monitor, ZeusMonitor()):
            while time.monotonic() < deadline:
                # The helper has slowed down: each end of a window is known to milliseconds only.
                with each.window("again") as window:
                    time.sleep(1.5)
                if 1 in window.measurement.gpu_energy:
                    m = window.measurement
                    again.append([m.gpu_energy[i] / m.time for i in (0, 1)])
                    break
        answer([unseen, again])
    """)
    unseen, again = found
    assert unseen == [1]
    assert len(again) == 2
    for watts in again:
        assert watts == [pytest.approx(100.0, rel=0.05), pytest.approx(200.0, rel=0.05)]


@pytest.mark.real_time
def test_missing_counter_and_sentinels_fall_back_to_power(programs):
    group = programs(
        GpuSpec(watts=100.0, unsupported=("nvmlDeviceGetTotalEnergyConsumption",)),
        GpuSpec(watts=200.0),
    )
    group.sim.fault(1, "nvmlDeviceGetTotalEnergyConsumption", "sentinel")
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("w")
        time.sleep(0.6)
        m = monitor.end_window("w")
        answer([m.time, [[r.energy, r.method, r.note] for r in m.readings]])
    """)
    seconds, readings = found
    assert readings[0][0] == pytest.approx(100.0 * seconds, rel=0.02)
    assert readings[0][1] == "integrated"
    assert "no energy counter (unsupported)" in readings[0][2]
    assert "instantaneous power" in readings[0][2]
    assert readings[1][0] == pytest.approx(200.0 * seconds, rel=0.02)


@pytest.mark.real_time
def test_a_counter_that_is_wrong_is_not_believed(programs):
    group = programs(GpuSpec(watts=250.0, sensors=Sensors(Sensor(period=0.1, gain=4.0), Sensor())))
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("w")
        time.sleep(4)
        monitor.end_window("w").gpu_energy
        monitor.begin_window("x")
        time.sleep(1)
        m = monitor.end_window("x")
        answer([m.gpu_energy[0] / m.time, m.readings[0].note])
    """)
    assert found[0] == pytest.approx(250.0, rel=0.03)
    assert "not credible" in found[1]


@pytest.mark.real_time
def test_only_average_power_is_labelled_as_such(programs):
    """A newer chip under an older driver: one power reading, a mean over a second, no counter."""
    group = programs(
        GpuSpec(
            name="NVIDIA A40",
            watts=150.0,
            compute_capability=(8, 6),
            power_usage_is="average",
            unsupported=("nvmlDeviceGetTotalEnergyConsumption",),
            unsupported_fields=(185, 186),
        )
    )
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("w")
        time.sleep(0.5)
        m = monitor.end_window("w")
        answer([m.gpu_energy[0] / m.time, m.readings[0].note])
    """)
    assert found[0] == pytest.approx(150.0, rel=0.02)
    assert "mean power over about a second" in found[1]


def helper_pids(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and "zeus.monitor._helper_process" in (entry / "cmdline").read_text()
            ):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[1]) == parent and stat[0] != "Z":
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def test_the_helper_ends_with_its_parent_even_when_that_is_killed(programs):
    group = programs(GpuSpec())
    process = group.start("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        answer("ready")
        time.sleep(60)
    """)
    assert json.loads(process.stdout.readline()) == "ready"
    helpers = helper_pids(process.pid)
    assert len(helpers) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not alive(helpers[0]))


def test_the_helper_never_runs_the_users_program(programs, tmp_path):
    """No guard around the main part, and a file named like a standard module beside it."""
    ran = tmp_path / "ran"
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong module')\n")
    program = tmp_path / "train.py"
    program.write_text(
        f"open({str(ran)!r}, 'a').write('x')\n"
        "import time\n"
        "import sys; sys.path.pop(0)\n"
        "from zeus.monitor import ZeusMonitor\n"
        "monitor = ZeusMonitor()\n"
        "monitor.begin_window('w')\n"
        "deadline = time.monotonic() + 120\n"
        "while not monitor._sampler.sources.followed and time.monotonic() < deadline:\n"
        "    time.sleep(0.01)\n"
        "assert monitor._sampler.sources.followed\n"
        "assert monitor.end_window('w').gpu_energy[0] > 0\n"
    )
    group = programs(GpuSpec())
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=group._environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert ran.read_text() == "x"


def test_closing_leaves_nothing_behind(programs):
    group = programs(GpuSpec())
    found = group.ask("""
        import threading
        def everything():
            return [len(os.listdir("/proc/self/fd")),
                    sorted(t.name for t in threading.enumerate() if t.name != "zeus-driver-calls")]
        from zeus.device import get_gpus
        get_gpus()
        counts = []
        for _ in range(3):
            with ZeusMonitor() as monitor:
                wait_for_helper(monitor)
                pid = monitor._sampler.sources._helpers[0]._process.pid
                monitor.begin_window("w")
                assert monitor.end_window("w").gpu_energy[0] > 0
            assert not os.path.exists(f"/proc/{pid}")
            counts.append(everything())
        answer(counts)
    """)
    assert found[0] == found[1] == found[2]
    assert found[0][1] == ["MainThread"]


@pytest.mark.real_time
def test_without_a_helper_a_thread_polls(programs):
    group = programs(GpuSpec(watts=250.0))
    found = group.ask(
        """
        monitor = ZeusMonitor()
        time.sleep(0.5)
        monitor.begin_window("w")
        time.sleep(0.3)
        m = monitor.end_window("w")
        answer([m.gpu_energy[0] / m.time, monitor._sampler.sources.followed])
        """,
        ZEUS_HELPER="0",
    )
    assert found[0] == pytest.approx(250.0, rel=0.03)
    assert found[1] is False


@pytest.mark.real_time
def test_a_helper_that_dies_is_replaced_by_a_thread(programs):
    group = programs(GpuSpec(watts=250.0))
    found = group.ask("""
        import signal
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("w")
        os.kill(monitor._sampler.sources._helpers[0]._process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 120
        while monitor._sampler.sources.followed and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        m = monitor.end_window("w")
        answer([m.gpu_energy[0] / m.time, monitor._sampler.sources.followed])
    """)
    assert found[0] == pytest.approx(250.0, rel=0.03)
    assert found[1] is False


@pytest.mark.real_time
def test_a_forked_child_measures_by_itself(programs):
    group = programs(GpuSpec(watts=250.0))
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        monitor.begin_window("parent")
        pid = os.fork()
        if pid == 0:
            child = ZeusMonitor()
            child.begin_window("w")
            time.sleep(0.6)
            m = child.end_window("w")
            os._exit(0 if abs(m.gpu_energy[0] / m.time / 250.0 - 1) < 0.05 else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        m = monitor.end_window("parent")
        answer([code, m.gpu_energy[0] / m.time])
    """)
    assert found[0] == 0
    assert found[1] == pytest.approx(250.0, rel=0.03)


@pytest.mark.real_time
def test_it_polls_rarely_while_nobody_measures(programs):
    """A monitor that polls flat out burns a core: at rest nothing is asked, in a window little."""
    group = programs(GpuSpec())
    found = group.ask("""
        monitor = ZeusMonitor()
        wait_for_helper(monitor)
        time.sleep(5)
        def polls():
            calls = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues"
            return sum(map(sim.calls, calls))
        before = polls()
        time.sleep(2)
        resting = polls() - before
        monitor.begin_window("w")
        time.sleep(5)
        before = polls()
        time.sleep(2)
        open_window = polls() - before
        answer([resting, open_window])
    """)
    assert found[0] == 0
    assert 2 <= found[1] <= 100

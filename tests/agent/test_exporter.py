"""Metrics beside an agent: leases with their holders, and the exporter that the agent runs."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import site
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.rig import ALICE, POLICY, AgentRig, MakeAgentRig, needs_root, wait_until
from tests.device.clients import PYTHONPATH
from tests.device.trees import Powercap

from simulated_drivers import GpuSpec

pytestmark = needs_root

USER = "nobody"
HOLD = """
hold = gpus[0].hold(power_limit=200, graphics_clock=(210, 1005))
hold.acquire()
say(0)
heard()
hold.release()
say(0)
heard()
"""
Samples = dict[str, list[tuple[dict[str, str], float]]]


def parsed(page: str) -> Samples:
    found: Samples = {}
    for line in page.splitlines():
        match = re.fullmatch(r"(zeus_\w+)(?:\{(.*)\})? (\S+)", line)
        if match:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
            found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


# Holders.


def test_leases_are_shown_with_user_and_slurm_job(rig: AgentRig):
    rig.zeus("agent", "job", "begin", "4711", "--user", str(ALICE), "--gpus", "0")
    client = rig.client(HOLD)
    client.hear()
    samples = parsed(rig.zeus("export", "--once"))
    for metric, value in (("power_limit_watts", 200.0), ("graphics_clock_hertz", 1005e6)):
        ((labels, held),) = samples[f"zeus_gpu_held_{metric}"]
        owner = (labels["user"], labels["slurm_job"], labels["pod"], labels["pid"])
        assert owner == (str(ALICE), "4711", "", str(client.pid))
        assert (labels["gpu"], held) == ("0", value)
    assert ({"collector": "holds"}, 1.0) in samples["zeus_collector_success"]
    client.tell()
    client.hear()
    assert "zeus_gpu_held_power_limit_watts" not in parsed(rig.zeus("export", "--once"))


def test_of_two_leases_on_a_knob_the_one_in_force_is_shown(rig: AgentRig):
    first = rig.client(HOLD)
    first.hear()
    second = rig.client(HOLD.replace("200", "180"))
    second.hear()
    ((labels, held),) = parsed(rig.zeus("export", "--once"))["zeus_gpu_held_power_limit_watts"]
    assert (labels["pid"], held) == (str(second.pid), 180.0)


def test_an_exporter_that_was_there_before_the_agent_finds_it(make_rig: MakeAgentRig):
    rig = make_rig()
    # It cannot load the driver's library, so that all GPUs are those of the agent.
    with exporting(rig, LD_LIBRARY_PATH="") as url:
        before = page(url)
        assert "zeus_gpu_power_watts" not in before
        rig.start()
        rig.client(HOLD).hear()
        wait_until(lambda: "zeus_gpu_power_watts" in page(url))
        ((labels, held),) = page(url)["zeus_gpu_held_power_limit_watts"]
    assert (labels["user"], held) == (str(ALICE), 200.0)


def test_an_agent_that_does_not_answer_delays_a_scrape_for_a_second_only(rig: AgentRig):
    client = rig.client(
        "from zeus.telemetry._holders import Holders\nholders = Holders(node.current_node())\n"
        "say(holders.read()[1])\nheard()\nsay(holders.read())"
    )
    assert client.hear() == ""
    with rig.hanging():
        client.tell()
        assert client.hear() == [{}, "the node agent did not answer within 1 s"]


@contextlib.contextmanager
def exporting(rig: AgentRig, **variables: str) -> Iterator[str]:
    """Run `zeus export` beside an agent; yields the address of its page."""
    process = subprocess.Popen(
        [sys.executable, "-m", "zeus", "export", "--listen", "127.0.0.1:0"],
        env={
            **os.environ,
            **rig.environment,
            "PYTHONPATH": PYTHONPATH,
            "ZEUS_AGENT": str(rig.socket),
            "ZEUS_STATE_DIR": str(rig.folder / "exporter-state"),
            **variables,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def page(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return parsed(answer.read().decode())


# The exporter of the agent.


def python_for_others() -> tuple[str, str] | None:
    """A Python that the exporter's user can run, and its `PYTHONPATH`."""
    path = os.pathsep.join([PYTHONPATH, *site.getsitepackages()])
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    for python in (sys.executable, system):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [python, "-P", "-c", "import zeus.cli.export, pynvml"],
                env={**os.environ, "PYTHONPATH": path},
                cwd="/",
                user=USER,
                extra_groups=[],
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return python, path
    return None


class ExporterRig:
    """An agent that runs an exporter."""

    def __init__(self, rig: AgentRig) -> None:
        self.rig = rig
        found = python_for_others()
        if found is None:
            pytest.skip(f"the user {USER} can read neither this Python nor the system's")
        rig.python, self._path = found
        self.powercap = Powercap(rig.folder / "sysfs")
        self.powercap.add("0", "package-0", 5_000_000).joinpath("energy_uj").chmod(0o400)
        (rig.folder / "state-home").mkdir(mode=0o777)
        (rig.folder / "state-home").chmod(0o777)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def start(self) -> None:
        self.rig.start(
            "--export",
            f"127.0.0.1:{self.port}",
            PYTHONPATH=self._path,
            XDG_STATE_HOME=str(self.rig.folder / "state-home"),
            ZEUS_POWERCAP_ROOT=str(self.powercap.root),
        )

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.samples())
        return False

    def samples(self) -> Samples:
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return parsed(answer.read().decode())

    def pids(self) -> list[int]:
        """The processes that export to this port."""
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if f"127.0.0.1:{self.port}\0--until" in _text(path)
        ]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


@pytest.fixture
def exporter(make_rig: MakeAgentRig) -> ExporterRig:
    made = ExporterRig(make_rig(policy=POLICY.replace("users = [", f'users = ["{USER}", ')))
    made.start()
    wait_until(made.answers, within=240.0)
    return made


def test_the_agents_exporter_has_another_user_and_all_metrics(exporter: ExporterRig):
    (pid,) = exporter.pids()
    uids = re.search(r"^Uid:\t(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert uids is not None
    assert set(uids[1].split()) == {str(pwd.getpwnam(USER).pw_uid)}
    capabilities = re.findall(r"^Cap(?:Prm|Eff):\t(\w+)$", _text(Path(f"/proc/{pid}/status")), re.M)
    assert set(capabilities) == {"0" * 16}
    samples = exporter.samples()
    assert [value for _, value in samples["zeus_gpu_power_limit_watts"]] == [exporter.rig.limit()]
    assert samples["zeus_gpu_energy_joules_total"]
    assert all(value == 1 for _, value in samples["zeus_collector_success"]), samples
    ((_, before),) = samples["zeus_cpu_energy_joules_total"]
    exporter.powercap.set("0", 47_000_000)
    ((_, joules),) = exporter.samples()["zeus_cpu_energy_joules_total"]
    assert joules - before == 42.0


def test_the_agents_exporter_shows_leases(exporter: ExporterRig):
    client = exporter.rig.client(HOLD)
    client.hear()
    ((labels, held),) = exporter.samples()["zeus_gpu_held_power_limit_watts"]
    assert (labels["user"], labels["pid"], held) == (str(ALICE), str(client.pid), 200.0)


def test_a_killed_exporter_is_started_again_and_ends_with_the_agent(exporter: ExporterRig):
    (pid,) = exporter.pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: exporter.pids() not in ([pid], []) and exporter.answers(), within=240.0)
    assert "starts again" in exporter.rig.stop()
    assert exporter.pids() == []


def test_the_exporter_ends_with_a_killed_agent_and_another_one_takes_its_place(
    exporter: ExporterRig,
):
    before = exporter.pids()
    exporter.rig.kill()
    wait_until(lambda: exporter.pids() == [], within=240.0)
    exporter.start()
    wait_until(exporter.answers, within=240.0)
    assert len(exporter.pids()) == 1
    assert exporter.pids() != before


def test_usage_by_process_is_read_through_the_agent(make_rig: MakeAgentRig):
    rig = make_rig(GpuSpec(compute_processes=[(os.getpid(), 2**30)]))
    rig.sim.set_process_usage(0, {os.getpid(): 0.5})
    rig.start()
    shares = rig.ask(
        """
from zeus.device._agent_client import AgentClient
from zeus.device._agent_gpu import NodeAgent
(driver,) = NodeAgent(AgentClient(Path(os.environ["ZEUS_AGENT"]))).drivers([], all_gpus=True)
since, deadline = time.monotonic() - 0.1, time.monotonic() + 120
while not (found := driver.process_usage(since)).shares:
    assert time.monotonic() < deadline
    time.sleep(0.1)
assert found.begin == since and found.end > since
say([[pid, share] for pid, share in found.shares.items()])
"""
    )
    assert shares == [[os.getpid(), pytest.approx(0.5, abs=0.02)]]

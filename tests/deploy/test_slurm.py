"""Prolog and epilog: by themselves, and in a real Slurm of one node with simulated GPUs."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.slurm import SlurmNode, become, missing, running

from zeus.device._agent_client import AgentClient

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "deploy" / "slurm"
INSTALLED = "zeus=/opt/zeus/bin/zeus\n"
NOBODY = pwd.getpwnam("nobody").pw_uid  # Slurm runs no jobs of a user without a name
LONG_ENOUGH = 240.0
DEFAULT_LIMIT = 400.0  # W, of the simulated GPUs

POLICY = """
[[rule]]
slurm_jobs = ["*"]
gpus = ["own"]
power_limit = [150, 350]
"""

# What a job runs. It sees all GPUs of the node, as any program that ignores CUDA_VISIBLE_DEVICES.
PROGRAM = """
import json, os, signal, sys
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
os.environ.pop("ROCR_VISIBLE_DEVICES", None)
from zeus.device import get_gpus
from zeus.errors import CapabilityError, KnobError

def say(value):
    print(json.dumps(value), flush=True)

def outcome(number, watts):
    try:
        hold = get_gpus()[number].hold(power_limit=watts)
        hold.acquire()
        return "held"
    except (CapabilityError, KnobError) as error:
        return str(error)
"""


def script(name: str, zeus: str, seconds: int = 60) -> str:
    """One of the scripts, for a Zeus that is somewhere else."""
    text = (SCRIPTS / name).read_text()
    assert INSTALLED in text
    assert "\nseconds=10 " in text
    text = text.replace("/run/zeus", str(Path(zeus).parent))
    return text.replace(INSTALLED, f"zeus={zeus}\n").replace(
        "\nseconds=10 ", f"\nseconds={seconds} "
    )


@pytest.mark.parametrize("name", ["prolog.sh", "epilog.sh"])
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("#!/bin/sh\necho 'no node agent runs' >&2; exit 1\n", "(exit code 1): no node agent runs"),
        ("#!/bin/sh\nsleep 1000\n", "(exit code 124)"),
        (None, "(exit code 127)"),
    ],
    ids=["no agent", "an agent that hangs", "not installed"],
)
def test_without_an_agent_a_job_is_not_held_up(name, program, said, tmp_path):
    zeus = tmp_path / "zeus"
    if program is not None:
        zeus.write_text(program)
        zeus.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script(name, str(zeus), seconds=1)],
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", "SLURM_JOB_UID": "1000"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_ENOUGH,
    )
    assert done.returncode == 0
    assert "job 12 " in done.stderr
    assert said in done.stderr
    notes = [note.name for note in tmp_path.glob("ended-jobs/*")]
    assert notes == (["12"] if name == "epilog.sh" else [])


# --- in a real Slurm ----------------------------------------------------------------------------

needs_slurm = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


class Cluster:
    """A node of Slurm and its agent, with simulated GPUs that only root can set."""

    def __init__(self, node: SlurmNode, python: str) -> None:
        self.node = node
        self.socket = node.folder / "agent.sock"
        self.audit = node.folder / "audit.jsonl"
        self.python = python
        policy = node.folder / "agent.toml"
        policy.write_text(POLICY)
        (node.folder / "jobs").mkdir(mode=0o777)
        (node.folder / "jobs").chmod(0o1777)
        self.hardware = {
            "PYTHONPATH": str(ROOT / "src"),
            "ZEUS_SIMULATE": "a100x4",
            "ZEUS_STATE_DIR": str(node.folder / "agent-state"),
        }
        files = {"--socket": self.socket, "--policy": policy, "--audit": self.audit}
        self._options = [word for name, path in files.items() for word in (name, str(path))]
        self.start_agent()

    def start_agent(self) -> None:
        self._agent = subprocess.Popen(
            [sys.executable, "-m", "zeus", "agent", "run", *self._options],
            env={**os.environ, **self.hardware},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._agent.stderr is not None
        line = self._agent.stderr.readline()
        assert "4 GPUs" in line, line + self._agent.stderr.read()
        self.client = AgentClient(self.socket)
        self._keys = [gpu["key"] for gpu in self.client.request("status")["gpus"]]

    def job(self, uid: int, program: str, *, gpus: int = 1, direct: bool = False) -> Any:
        """Start a job that runs a program; one of root can reach the driver itself."""
        variables = {
            "PYTHONPATH": str(ROOT / "src"),
            "ZEUS_AGENT": str(self.socket),
            "ZEUS_STATE_DIR": str(self.node.folder / "jobs" / str(uid)),
        }
        if direct:
            variables = {**self.hardware, "ZEUS_AGENT": "0"}
        return self.node.launch(uid, self.python, "-c", PROGRAM + program, gpus=gpus, **variables)

    def limits(self) -> list[float]:
        """The power limits of the GPUs, as their driver says."""
        return [
            self.client.request("read", gpu=key, reading="power_limit", arguments=[])
            for key in self._keys
        ]

    def jobs(self) -> list[dict[str, Any]]:
        return self.client.request("status")["jobs"]

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.audit.read_text().splitlines())
        return [event for event in lines if event["event"] == kind]

    def wait_for(self, happened: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + LONG_ENOUGH
        while time.monotonic() < deadline:
            if found := happened():
                return found
            time.sleep(0.1)
        raise AssertionError(f"{what} did not happen: {self.node.logs()[-3000:]}")

    def idle(self) -> bool:
        """Whether the epilogs of all jobs have run, and the node takes further jobs."""
        return not self.jobs() and "State=IDLE" in self.node.command("scontrol", "show", "node")

    def stop_agent(self) -> None:
        self.client.close()
        self._agent.send_signal(signal.SIGTERM)
        self._agent.communicate(timeout=LONG_ENOUGH)


def answer(job: subprocess.Popen[str]) -> Any:
    """The next line that a job prints."""
    assert job.stdout is not None
    line = job.stdout.readline()
    if not line:
        assert job.stderr is not None
        pytest.fail(f"the job printed nothing: {job.stderr.read()[-2000:]}")
    return json.loads(line)


def end(job: subprocess.Popen[str]) -> int:
    job.communicate(timeout=LONG_ENOUGH)
    return job.returncode


@pytest.fixture(scope="module")
def python_for_all() -> str:
    """A Python that other users can run: that of the tests may be in root's own directory."""
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run(
            [*become(NOBODY), python, "-c", "import zeus.device"],
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]},
            capture_output=True,
            check=False,
            cwd="/",
        )
        if done.returncode == 0:
            return python
    pytest.skip("no Python >= 3.11 here can be run by other users")


@pytest.fixture(scope="module")
def cluster(python_for_all) -> Iterator[Cluster]:
    with running("", "") as node:
        wrapper = node.folder / "zeus"
        wrapper.write_text(
            f"#!/bin/sh\nPYTHONPATH={ROOT}/src ZEUS_AGENT={node.folder}/agent.sock "
            f'ZEUS_STATE_DIR={node.folder}/agent-state exec {sys.executable} -m zeus "$@"\n'
        )
        wrapper.chmod(0o755)
        for name in ("prolog.sh", "epilog.sh"):
            (node.folder / name).write_text(script(name, str(wrapper)))
        found = Cluster(node, python_for_all)
        try:
            yield found
        finally:
            found.stop_agent()


class TestInSlurm:
    pytestmark = needs_slurm

    def test_a_job_may_set_its_own_gpus_only(self, cluster):
        program = "say([outcome(n, 250) for n in range(4)] + [outcome(0, 120)])\nsys.stdin.read()"
        one, two = (cluster.job(NOBODY, program, gpus=2) for _ in range(2))
        results = [answer(one), answer(two)]
        held = [[each == "held" for each in found[:4]] for found in results]
        if cluster.node.cgroups:
            assert sorted(held) == [[False, False, True, True], [True, True, False, False]]
        else:  # all jobs of a user look alike
            assert held == [[True] * 4] * 2
        refused = {each for found in results for each in found[:4] if each != "held"}
        assert all("policy does not let" in each for each in refused)
        assert all(
            "150 W <= power_limit" in found[4] or "does not" in found[4] for found in results
        )
        assert cluster.limits() == [250.0] * 4
        leases = cluster.client.request("leases")
        assert {lease["holder"]["uid"] for lease in leases} == {NOBODY}
        if cluster.node.cgroups:
            jobs = {lease["holder"]["slurm_job"]: lease["gpu"]["index"] // 2 for lease in leases}
            assert sorted(jobs.values()) == [0, 1]
        assert (end(one), end(two)) == (0, 0)
        cluster.wait_for(cluster.idle, "the end of both jobs")
        assert cluster.limits() == [DEFAULT_LIMIT] * 4

    def test_a_hold_that_is_killed_with_its_job_is_put_back(self, cluster):
        job = cluster.job(NOBODY, "say(outcome(0, 250))\nos.kill(os.getpid(), signal.SIGKILL)")
        assert answer(job) == "held"
        assert end(job) != 0
        cluster.wait_for(cluster.idle, "the end of the job")
        assert cluster.limits() == [DEFAULT_LIMIT] * 4

    def test_what_a_job_set_directly_is_put_back(self, cluster):
        program = (
            "say([get_gpus()[n].driver.set_power_limit(200.0) for n in (0, 1)])\nsys.stdin.read()"
        )
        job = cluster.job(0, program, gpus=2, direct=True)
        answer(job)
        assert cluster.limits() == [200.0, 200.0, DEFAULT_LIMIT, DEFAULT_LIMIT]
        assert end(job) == 0
        cluster.wait_for(cluster.idle, "the end of the job")
        assert cluster.limits() == [DEFAULT_LIMIT] * 4
        put_back = cluster.events("job ended")[-1]["put_back"]
        assert [list(each.values()) for each in put_back.values()] == [[[200.0, DEFAULT_LIMIT]]] * 2

    def test_leases_of_a_job_end_with_it_even_if_their_process_does_not(self, cluster):
        """As one that was started over SSH, beside the job."""
        job = cluster.job(NOBODY, "say('runs')\nsys.stdin.read()")
        answer(job)
        name = cluster.jobs()[0]["job"]
        beside = subprocess.Popen(
            [
                *become(NOBODY),
                *(cluster.python, "-c", PROGRAM + "say(outcome(0, 300))\nsys.stdin.read()"),
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "src"),
                "ZEUS_AGENT": str(cluster.socket),
                "ZEUS_STATE_DIR": str(cluster.node.folder / "jobs" / "beside"),
            },
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert answer(beside) == "held"
            assert cluster.limits()[0] == 300.0
            assert end(job) == 0
            cluster.wait_for(cluster.idle, "the end of the job")
            assert beside.poll() is None
            assert cluster.limits() == [DEFAULT_LIMIT] * 4
            assert cluster.events("lease ended")[-1]["why"] == f"job {name} ended"
        finally:
            beside.kill()
            beside.communicate()

    def test_jobs_run_while_there_is_no_agent_and_are_put_back_when_it_is_there_again(
        self, cluster
    ):
        program = "say(get_gpus()[0].driver.set_power_limit(200.0))\nsys.stdin.read()"
        left = cluster.job(0, program, direct=True)
        answer(left)
        cluster.stop_agent()
        assert end(left) == 0
        job = cluster.job(NOBODY, "say(len(get_gpus()))")
        assert answer(job) == 0
        assert end(job) == 0
        show = lambda: cluster.node.command("scontrol", "show", "node")  # noqa: E731
        cluster.wait_for(lambda: "State=IDLE " in show(), "a node whose epilog has ended")
        assert "DRAIN" not in show()
        cluster.start_agent()
        assert (cluster.jobs(), cluster.limits()) == ([], [DEFAULT_LIMIT] * 4)
        assert not list((cluster.node.folder / "ended-jobs").iterdir())

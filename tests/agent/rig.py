"""A real agent process over a simulated driver that only root may use, and its clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.device.clients import LONG_ENOUGH, PYTHONPATH, Client, Clients

from simulated_drivers import GpuSpec, SimulatedNvml

ALICE, BOB = 21_000, 21_001
DEFAULT_LIMIT = 400.0

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become several users")

# All is loaded before: another user may not be able to read our files.
BECOME = """
import zeus, zeus.monitor, zeus.device._agent_gpu, zeus.monitor._helper_process, zeus.device._rapl
import zeus.device._nvml, zeus.device._amd, zeus.device._apple, zeus.device._jetson
import importlib.metadata, pynvml, resource, socket, subprocess
import encodings.ascii, encodings.idna, encodings.latin_1
from zeus.state._files import boot_id, process_start
boot_id(), process_start(os.getpid())
try:
    pynvml.nvmlInit()
except pynvml.NVMLError:
    pass  # there is no driver in this process
os.environ["ZEUS_STATE_DIR"] = os.environ["ZEUS_STATE_DIR"] + str({user})
if {user}:
    os.setgroups([])
    os.setgid({user})
    os.setuid({user})
gpus = get_gpus()
"""
POLICY = f"""
[[rule]]
users = ["{ALICE}", "{BOB}"]
power_limit = [150, 350]
graphics_clock = true
cpu_energy = true
"""


class AgentRig:
    """An agent, the GPUs that it has, and clients of several users."""

    def __init__(self, library: Path, folder: Path, *specs: GpuSpec, policy: str = POLICY) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.audit = folder / "audit.jsonl"
        self.policy = folder / "agent.toml"
        self.policy.write_text(policy)
        specs = specs or (GpuSpec(default_power_limit=DEFAULT_LIMIT, max_power_limit=400),)
        self.sim = SimulatedNvml.create(folder / "state", list(specs))
        self._open_to_all(folder)
        self.environment = self.sim.environment(library)
        self.agent: subprocess.Popen[str] | None = None
        self.python = sys.executable
        self._clients = Clients(
            **self.environment,
            ZEUS_AGENT=str(self.socket),
            ZEUS_STATE_DIR=str(folder / "client-state"),
        )

    def _open_to_all(self, folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o777)

    def command(self, *options: str) -> list[str]:
        return [self.python, "-m", "zeus", "agent", *options]

    def start(self, *options: str, **variables: str) -> None:
        """Start the agent, and wait until it listens."""
        self.agent = self.spawn(*options, **variables)
        assert self.agent.stderr is not None
        lines = []
        while "node agent at" not in (line := self.agent.stderr.readline()):
            lines.append(line)
            assert line, "".join(lines)

    def spawn(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        command = self.command("run", "--socket", str(self.socket), "--policy", str(self.policy))
        return subprocess.Popen(
            [*command, "--audit", str(self.audit), *options],
            env={
                **os.environ,
                **self.environment,
                "PYTHONPATH": PYTHONPATH,
                "ZEUS_STATE_DIR": str(self.folder / "agent-state"),
                **variables,
            },
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        """Kill the agent, as an out-of-memory killer would."""
        assert self.agent is not None
        self.agent.kill()
        self._reap()

    def stop(self) -> str:
        """End the agent in order; what it wrote to stderr."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGTERM)
        return self._reap()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let the agent hang: all its threads are stopped, which takes until the last one runs."""
        assert self.agent is not None
        tasks = Path(f"/proc/{self.agent.pid}/task")
        self.agent.send_signal(signal.SIGSTOP)
        wait_until(
            lambda: (
                {(task / "stat").read_text().rpartition(") ")[2][0] for task in tasks.iterdir()}
                == {"T"}
            )
        )
        try:
            yield
        finally:
            self.agent.send_signal(signal.SIGCONT)

    def _reap(self) -> str:
        assert self.agent is not None
        _, errors = self.agent.communicate(timeout=LONG_ENOUGH)
        self.agent = None
        return errors

    def client(self, script: str, user: int = ALICE, **variables: str) -> Client:
        """Start a script as a user."""
        return self._clients.start(BECOME.format(user=user) + script, **variables)

    def ask(self, script: str, user: int = ALICE, **variables: str) -> Any:
        """Run a script as a user to its end; what it said first."""
        return self._clients.ask(BECOME.format(user=user) + script, **variables)

    def zeus(self, *words: str, expect: int = 0) -> str:
        """Run a command as root; what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "zeus", *words],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **self._clients.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=LONG_ENOUGH,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def limit(self, gpu: int = 0) -> float:
        """The power limit that the driver has."""
        return self.sim.power_limit(gpu)

    def wait_for_limit(self, watts: float, gpu: int = 0) -> float:
        """Wait until the driver has a power limit; seconds that it took."""
        return wait_until(lambda: self.limit(gpu) == watts)

    def events(self) -> list[dict[str, Any]]:
        """The audit log."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def close(self) -> None:
        """Leave no process behind."""
        self._clients.stop()
        if self.agent is not None:
            self.kill()


def wait_until(true: Callable[[], bool], within: float = 60.0) -> float:
    """Wait until something is true; seconds that it took."""
    begin = time.monotonic()
    while not true():
        assert time.monotonic() - begin < within, "it never came true"
        time.sleep(0.002)
    return time.monotonic() - begin


MakeAgentRig = Callable[..., AgentRig]


@pytest.fixture
def make_rig(nvml_library: Path) -> Iterator[MakeAgentRig]:
    """Make a rig, whose agent the test starts."""
    made: list[AgentRig] = []

    def make(*specs: GpuSpec, policy: str = POLICY) -> AgentRig:
        # Not below pytest's directory, which other users may not enter.
        folder = Path(mkdtemp(prefix="zeus-agent-"))
        made.append(AgentRig(nvml_library, folder, *specs, policy=policy))
        return made[-1]

    yield make
    for rig in made:
        rig.close()
        shutil.rmtree(rig.folder, ignore_errors=True)


@pytest.fixture
def rig(make_rig: MakeAgentRig) -> AgentRig:
    """A running agent with one GPU."""
    made = make_rig()
    made.start()
    return made

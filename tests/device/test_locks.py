"""Nobody waits for ever: one process that is stopped with a lock in its hands stops no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.support import environment, zeus
from tests.device.clients import SPEC, Client, Clients

from zeus.device._node import simulated_node
from zeus.device._records import GpuRecord

STOPPED = """
from contextlib import ExitStack
from zeus.device._journal import Journal
node = node.current_node()
with ExitStack() as held:
    for driver in node.drivers:
        held.enter_context(Journal(driver.identity.key, None, private=True).exclusive())
    if {state}:
        held.enter_context(driver._memory.exclusive())
    say(0)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def stopped(clients: Clients) -> Iterator[Client]:
    """A process that was stopped while it held the locks of all GPUs, which a dead one had held."""
    doomed = clients.start("get_gpus()[0].hold(power_limit=150).acquire(); say(0); heard()")
    doomed.hear()
    holder = clients.start(STOPPED.format(state=True))
    holder.hear()
    doomed.send(signal.SIGKILL)
    doomed.end()
    while _state(holder.pid) != "T":
        time.sleep(0.01)
    yield holder
    holder.send(signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    "command",
    [("env",), ("top", "--once"), ("restore",), ("measure", "--", "true")],
    ids=lambda command: command[0],
)
def test_commands_end_beside_a_stopped_process(stopped: Client, command: tuple[str, ...]) -> None:
    done = zeus(*command, ZEUS_SIMULATE=SPEC)
    said = done.stdout + done.stderr
    assert f"process {stopped.pid}, which is stopped" in said
    assert done.returncode == (1 if command == ("restore",) else 0)


def test_a_monitor_starts_beside_a_stopped_process(stopped: Client, clients: Clients) -> None:
    script = (
        "from zeus.monitor import ZeusMonitor\n"
        "monitor = ZeusMonitor(); monitor.begin_window('w')\n"
        "say(monitor.end_window('w').total_energy > 0)"
    )
    asking = clients.start(script)
    assert asking.hear() is True
    assert asking.end() == 0
    assert f"process {stopped.pid}, which is stopped" in asking.errors


def test_ctrl_c_ends_the_wait(stopped: Client) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import zeus.state._locks as locks; locks.LOCK_TIMEOUT = 600.0\n"
            "from zeus.device import get_gpus; print(0, flush=True); get_gpus()",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(ZEUS_SIMULATE=SPEC),
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(1.0)  # it waits by now; if not, it ends just the same
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert b"KeyboardInterrupt" in errors
    assert child.returncode == -signal.SIGINT


def test_a_hold_that_cannot_be_ended_is_ended_when_the_other_goes_on(
    clients: Clients, limit
) -> None:
    before = limit()
    holding = clients.start(
        "hold = get_gpus()[0].hold(power_limit=150); hold.acquire(); say(0); heard()\n"
        "hold.release(); say(get_gpus()[0].power_limit()); heard()"
    )
    holding.hear()
    blocking = clients.start(STOPPED.format(state=False))
    blocking.hear()
    while _state(blocking.pid) != "T":
        time.sleep(0.01)
    holding.tell()
    assert holding.hear() == 150.0
    blocking.send(signal.SIGCONT)
    blocking.end()
    holding.tell()
    assert holding.end() == 0
    assert "the end of this process tries again" in holding.errors
    assert limit() == before


def test_what_killed_writers_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = simulated_node("v100").gpus[0]
    directory = GpuRecord(gpu.key, private=True).path.parent
    leftover = directory / f"{gpu.key}.jsonabc.new"
    fresh = directory / f"{gpu.key}.jsondef.new"
    leftover.write_text("{")
    fresh.write_text("{")
    os.utime(leftover, (time.time() - 3600,) * 2)
    with gpu.hold(power_limit=150):
        assert not leftover.exists()
        assert fresh.exists()  # somebody may be writing it now
        assert json.loads((directory / f"{gpu.key}.json").read_text())["knobs"]

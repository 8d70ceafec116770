"""Holds of processes in other containers, whose numbers mean nothing here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.device.clients import SPEC, Clients, onlookers

from zeus.device._node import current_node
from zeus.device._records import GpuRecord

HOLDING = """
hold = get_gpus()[0].hold(power_limit=150)
hold.acquire()
worker = os.fork()  # as a loader of data does; it outlives its parent here
if worker == 0:
    os.closerange(0, 3)
    signal.alarm(240)  # in case the test fails to end it
    signal.pause()
say(worker)
heard()
hold.release()
os.kill(worker, signal.SIGKILL)
"""


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    monkeypatch.setenv("ZEUS_SIMULATE", SPEC)
    clients = Clients(ZEUS_SIMULATE=SPEC)
    yield clients
    clients.stop()


def limit() -> float:
    return onlookers()[0].power_limit()


def move_to_another_container() -> None:
    """Let the record say that the process has its number from somewhere else."""
    path = GpuRecord(onlookers()[0].identity.key, private=True).path
    record = json.loads(path.read_text())
    (entry,) = record["knobs"]["power_limit"]
    entry |= {"namespace": "pid:[1]", "pid": 2**22 + 1, "started": "1"}  # nobody here has that
    path.write_text(json.dumps(record))


def test_a_hold_in_another_container_lasts_as_long_as_its_process(clients: Clients) -> None:
    holder = clients.start(HOLDING)
    worker = holder.hear()
    try:
        move_to_another_container()
        assert current_node().restore() == (0, [])
        assert limit() == 150.0
        holder.send(signal.SIGKILL)
        holder.end()
        assert current_node().restore() == (1, [])
        assert limit() == 250.0
    finally:
        os.kill(worker, signal.SIGKILL)


def _namespaces_can_be_made() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    return (
        subprocess.run(
            [unshare, "-Urpf", "--mount-proc", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_a_container_that_starts_leaves_the_holds_outside_alone(clients: Clients) -> None:
    if not _namespaces_can_be_made():
        pytest.skip("a namespace of processes cannot be made here")
    holder = clients.start(HOLDING)
    holder.hear()
    inside = subprocess.run(
        ["unshare", "-Urpf", "--mount-proc", sys.executable, "-m", "zeus", "restore", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert [hold["value"] for hold in json.loads(inside.stdout)["held"]] == [150.0]
    assert limit() == 150.0
    holder.tell()
    assert holder.end() == 0
    assert limit() == 250.0

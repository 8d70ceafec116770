"""Who holds which knob, by a node agent."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time

import pytest
from tests.cli.support import LONG_ENOUGH, environment
from tests.present import present

from zeus.cli._agent_leases import AgentLeases, holders
from zeus.cli._gpu_rows import Holder
from zeus.device import current_node


def lease(knob: str, value: object, user: str, since: float, **holder: object) -> dict[str, object]:
    gpu = {"index": 0, "key": "GPU-a", "name": "V100"}
    who = {"user": user, "pid": 7, **holder}
    return {"gpu": gpu, "knob": knob, "value": value, "since": since, "holder": who}


def test_the_latest_lease_on_a_knob_is_in_force():
    found = holders(
        [
            lease("power_limit", 150.0, "alice", 4.0),
            lease("power_limit", 200.0, "bob", 2.0, slurm_job="12"),  # the clock was set back
            lease("graphics_clock", [900, 900], "al\x1bice", 3.0),
        ]
    )
    assert found == {
        "GPU-a": (
            Holder("power limit", "200 W", "bob", "(process 7, job 12)"),
            Holder("graphics clock", "900 MHz", "al?ice", "(process 7)"),
        )
    }


@pytest.mark.parametrize(
    "leases", [None, [{}], [1], [{"since": 1}], [lease("k", 1.0, "u", 1.0), 3]]
)
def test_what_is_no_list_of_leases_is_refused(leases):
    with pytest.raises((LookupError, TypeError, ValueError)):
        holders(leases)


def test_without_an_agent_nobody_holds_anything():
    assert AgentLeases(None).of("GPU-a") == ()


def test_leases_of_a_real_agent(tmp_path, monkeypatch):
    path = tmp_path / "agent.sock"
    variables = environment(
        ZEUS_SIMULATE="v100x2", ZEUS_STATE_DIR=str(tmp_path / "state"), ZEUS_AGENT=str(path)
    )
    agent = subprocess.Popen(
        [sys.executable, "-m", "zeus", "agent", "run", "--socket", str(path), "--audit", "none"],
        env=variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert agent.stderr is not None
    try:
        while "node agent at" not in (line := agent.stderr.readline()):
            assert line
        monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
        monkeypatch.setenv("ZEUS_AGENT", str(path))
        monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "own"))
        node = current_node()
        gpu = node.gpus[1]
        leases = AgentLeases(node.agent)
        with gpu.hold(power_limit=150):
            wait_for(lambda: leases.of(gpu.key))
            (held,) = leases.of(gpu.key)
            user = pwd.getpwuid(os.getuid()).pw_name
            assert (held.knob, held.value, held.user) == ("power limit", "150 W", user)
            assert f"{os.getpid()}" in held.detail
            assert leases.of(node.gpus[0].key) == ()
        wait_for(lambda: not leases.of(gpu.key))
        present(node.agent).client.close()
    finally:
        agent.terminate()
        agent.communicate(timeout=LONG_ENOUGH)


def wait_for(done) -> None:
    deadline = time.monotonic() + LONG_ENOUGH
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)

"""An agent that is killed, ended or started twice; clients that are killed at any moment."""

from __future__ import annotations

import random
import shutil
import signal
import time

import pytest
from tests.agent.rig import BOB, DEFAULT_LIMIT, AgentRig, needs_root, wait_until

pytestmark = needs_root

# Holds and changes limits as fast as it can.
BUSY = """
say(0)
generator = random.Random({seed})
while True:
    with gpus[0].hold(power_limit=generator.randrange(150, 350)) as hold:
        for _ in range(generator.randrange(4)):
            hold.change(power_limit=generator.randrange(150, 350))
"""
HOLD = """
hold = gpus[0].hold(power_limit=200)
hold.acquire()
say(0)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_is_killed_at_any_moment_leaves_nothing(rig: AgentRig, seed):
    client = rig.client(BUSY.format(seed=seed))
    client.hear()
    time.sleep(random.Random(seed).random() / 5)
    client.send(signal.SIGKILL)
    client.end()
    rig.wait_for_limit(DEFAULT_LIMIT)
    wait_until(lambda: rig.zeus("agent", "leases") == "There are no leases.\n")


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_that_is_killed_at_any_moment_restores_at_its_start(rig: AgentRig, seed):
    client = rig.client(BUSY.format(seed=seed))
    client.hear()
    time.sleep(random.Random(seed).random() / 5)
    rig.kill()
    client.send(signal.SIGKILL)
    client.end()
    rig.start()
    assert rig.limit() == DEFAULT_LIMIT
    assert list((rig.folder / "agent-state" / "holds").glob("*.json")) == []


def test_an_agent_that_is_ended_restores_at_once(rig: AgentRig):
    client = rig.client(HOLD + "heard()\nhold.release()\nsay(1)")
    client.hear()
    rig.stop()
    assert rig.limit() == DEFAULT_LIMIT
    assert not rig.socket.exists()
    client.tell()
    assert client.hear() == 1  # what cannot be released is released already
    assert client.end() == 0


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_that_is_ended_while_clients_are_busy_restores_at_once(rig: AgentRig, seed):
    clients = [rig.client(BUSY.format(seed=seed)) for _ in range(2)]
    for client in clients:
        client.hear()
    time.sleep(random.Random(seed).random() / 5)
    rig.stop()
    assert rig.limit() == DEFAULT_LIMIT
    assert list((rig.folder / "agent-state" / "holds").glob("*.json")) == []


def test_a_lease_whose_record_is_deleted_is_restored(rig: AgentRig):
    client = rig.client(HOLD + "heard()\nhold.release()\nsay(1)\nheard()")
    client.hear()
    shutil.rmtree(rig.folder / "agent-state" / "holds")
    client.tell()
    client.hear()
    assert rig.limit() == DEFAULT_LIMIT


def test_a_client_goes_on_without_an_agent_and_holds_again_when_there_is_one(make_rig):
    rig = make_rig(policy="heartbeat = 4\n[[rule]]\npower_limit = true")
    rig.start()
    client = rig.client(
        HOLD + "heard()\n"
        "say([hold.change(power_limit=210), gpus[0].power_limit()])\nheard()\n"
        "hold.release()\nsay(0)"
    )
    client.hear()
    rig.kill()
    client.tell()
    assert client.hear() == [False, 200.0]  # nobody was there to restore it
    rig.start()
    assert rig.limit() == DEFAULT_LIMIT
    rig.wait_for_limit(210.0)  # by the client's heartbeat
    client.tell()
    client.hear()
    assert rig.limit() == DEFAULT_LIMIT
    assert client.end() == 0


SLOW = "heartbeat = 4\n[[rule]]\npower_limit = true"
SET = "nvmlDeviceSetPowerManagementLimit"


def test_a_hold_that_ends_while_it_begins_again_is_not_left_behind(make_rig):
    rig = make_rig(policy=SLOW)
    rig.start()
    client = rig.client(HOLD + "heard()\nsay(1)\nhold.release()\nsay(0)\nheard()")
    client.hear()
    rig.kill()
    rig.start()
    calls = rig.sim.calls(SET)
    rig.sim.fault(0, SET, "delay", seconds=1.0, times=1)
    wait_until(lambda: rig.sim.calls(SET) > calls)  # by the client's heartbeat
    client.tell()
    assert [client.hear(), client.hear()] == [1, 0]
    assert rig.limit() == DEFAULT_LIMIT
    assert rig.zeus("agent", "leases") == "There are no leases.\n"


def test_a_change_that_finds_a_new_agent_is_in_force(make_rig):
    rig = make_rig(policy=SLOW.replace("4", "400"))  # no heartbeat comes first
    rig.start()
    client = rig.client(
        HOLD + "heard()\nwhile not hold.change(power_limit=210):\n    time.sleep(0.1)\n"
        "say([gpus[0].power_limit(), hold.overridden_by(), hold.change(power_limit=220)])\n"
        "heard()\nhold.release()\nsay(0)\nheard()"
    )
    client.hear()
    rig.kill()
    rig.start()
    client.tell()
    assert client.hear() == [210.0, None, True]
    assert rig.limit() == 220.0
    client.tell()
    client.hear()
    assert rig.limit() == DEFAULT_LIMIT


def test_holds_begin_again_although_the_next_agent_dies_too(make_rig):
    rig = make_rig(policy=SLOW)
    rig.start()
    client = rig.client(HOLD + "heard()\nhold.release()\nsay(0)")
    client.hear()
    rig.kill()
    rig.start()
    calls = rig.sim.calls(SET)
    rig.sim.fault(0, SET, "delay", seconds=2.0, times=1)
    wait_until(lambda: rig.sim.calls(SET) > calls)
    rig.kill()  # before it has answered
    rig.start()
    rig.wait_for_limit(200.0)
    client.tell()
    client.hear()
    assert rig.limit() == DEFAULT_LIMIT


def test_a_hold_without_an_agent_says_so(rig: AgentRig):
    client = rig.client("say(0)\nheard()\nsay(outcome(gpus[0].hold(power_limit=200).acquire))")
    client.hear()
    rig.kill()
    client.tell()
    reason, detail, cure = client.hear()
    assert reason == "device lost"
    assert "node agent was lost" in detail
    assert "zeus-agent" in cure


def test_a_second_agent_is_refused_and_the_first_goes_on(rig: AgentRig):
    second = rig.spawn("--socket", str(rig.folder / "other.sock"))
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "another node agent runs here" in errors
    assert "Traceback" not in errors
    assert rig.ask("with gpus[0].hold(power_limit=200):\n    say(gpus[0].power_limit())") == 200.0


def test_an_agent_that_does_not_answer_delays_a_client_for_seconds_only(rig: AgentRig):
    with rig.hanging():
        said = rig.ask(
            "say([len(gpus), [str(each) for each in node.current_node().problems]])", BOB
        )
    assert said[0] == 1
    assert any("does not answer" in problem for problem in said[1])


def test_values_that_could_not_be_restored_are_tried_again(rig: AgentRig):
    client = rig.client(HOLD + "heard()")
    client.hear()
    rig.sim.fault(0, "nvmlDeviceSetPowerManagementLimit", "error")
    client.send(signal.SIGKILL)
    client.end()
    wait_until(lambda: any(event["event"] == "lease ended" for event in rig.events()))
    assert rig.limit() == 200.0
    rig.sim.clear_faults(0)
    rig.wait_for_limit(DEFAULT_LIMIT)

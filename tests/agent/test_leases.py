"""Leases: knobs for users without root, and what remains of them when a process ends."""

from __future__ import annotations

import os
import signal

import pytest
from tests.agent.rig import ALICE, BOB, DEFAULT_LIMIT, AgentRig, needs_root, wait_until

from simulated_drivers import GpuSpec

pytestmark = needs_root

HOLD = """
hold = gpus[0].hold(power_limit={watts})
hold.acquire()
say(gpus[0].power_limit())
heard()
hold.release()
say(gpus[0].power_limit())
"""


def test_without_an_agent_this_user_may_set_nothing(make_rig):
    said = make_rig().ask("say(outcome(gpus[0].hold(power_limit=200).acquire))")
    assert said[0] == "no permission"


def test_a_user_without_root_holds_a_limit_and_the_previous_one_comes_back(rig: AgentRig):
    client = rig.client(HOLD.format(watts=200))
    assert client.hear() == 200.0
    assert rig.limit() == 200.0
    client.tell()
    assert client.hear() == DEFAULT_LIMIT
    assert rig.limit() == DEFAULT_LIMIT
    assert client.end() == 0


def test_capabilities_say_what_the_agent_allows(rig: AgentRig):
    script = (
        "say([gpus[0].support(capability).available for capability in "
        "(Capability.SET_POWER_LIMIT, Capability.LOCK_CLOCKS)])"
    )
    assert rig.ask(script) == [True, True]
    assert rig.ask(script, user=BOB + 7) == [False, False]


def test_a_clock_is_held_and_freed(rig: AgentRig):
    client = rig.client(
        "hold = gpus[0].hold(graphics_clock=(210, 1005))\nhold.acquire()\nsay(0)\n"
        "heard()\nsay(hold.retune(210, 900))\nheard()\nhold.release()\nsay(0)"
    )
    client.hear()
    assert rig.sim.clocks(0).locked_graphics == (210, 1005)
    client.tell()
    assert client.hear() is True
    assert rig.sim.clocks(0).locked_graphics == (210, 900)
    client.tell()
    client.hear()
    assert rig.sim.clocks(0).locked_graphics is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_ended_leaves_nothing_behind(rig: AgentRig, number):
    client = rig.client(HOLD.format(watts=200))
    client.hear()
    client.send(number)
    client.end()
    rig.wait_for_limit(DEFAULT_LIMIT)
    wait_until(lambda: rig.events()[-1]["event"] == "lease ended")
    ended = [event for event in rig.events() if event["event"] == "lease ended"]
    assert len(ended) == 1
    assert ended[0]["who"]["uid"] == ALICE
    assert ended[0]["value"] == 200.0
    assert ended[0]["restored"] == DEFAULT_LIMIT


def test_a_forked_child_that_lives_on_keeps_no_lease(rig: AgentRig):
    client = rig.client(
        "hold = gpus[0].hold(power_limit=200)\nhold.acquire()\n"
        "child = os.fork()\n"
        "if not child:\n    time.sleep(100)\n"
        "say(child)\nheard()"
    )
    child = client.hear()
    try:
        client.send(signal.SIGKILL)
        rig.wait_for_limit(DEFAULT_LIMIT)
        os.kill(child, 0)  # it is still there
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_has_a_connection_of_its_own(rig: AgentRig):
    client = rig.client(
        "hold = gpus[0].hold(power_limit=200)\nhold.acquire()\n"
        "if not os.fork():\n"
        "    hold.release()\n"  # has no part in it
        "    with get_gpus()[0].hold(power_limit=180):\n"
        "        say(get_gpus()[0].power_limit())\n"
        "    os._exit(0)\n"
        "os.wait()\nsay(gpus[0].power_limit())"
    )
    assert client.hear() == 180.0
    assert client.hear() == 200.0


def test_holds_of_several_users_stack_and_end_in_any_order(rig: AgentRig):
    alice, bob = (rig.client(HOLD.format(watts=watts), user) for watts, user in _TWO)
    assert alice.hear() in (200.0, 300.0)
    bob.hear()
    leases = [event for event in rig.events() if event["event"] == "lease began"]
    first, second = (event["who"]["uid"] for event in leases)
    watts = {user: float(watts) for watts, user in _TWO}
    assert rig.limit() == watts[second]
    lower = {ALICE: alice, BOB: bob}[first]
    lower.tell()
    lower.hear()
    assert rig.limit() == watts[second]
    {ALICE: alice, BOB: bob}[second].tell()
    rig.wait_for_limit(DEFAULT_LIMIT)


_TWO = ((200, ALICE), (300, BOB))


def test_a_hold_that_another_user_covers_knows_by_whom(rig: AgentRig):
    bob = rig.client(
        "below = gpus[0].hold(power_limit=300)\nbelow.acquire()\nsay(0)\nheard()\n"
        "above = below.overridden_by()\nsay([above.pid, above.value, below.surely_in_force()])\n"
        "say(below.change(power_limit=310))",
        BOB,
    )
    bob.hear()
    alice = rig.client(HOLD.format(watts=200))
    alice.hear()
    bob.tell()
    pid, value, _ = bob.hear()
    assert (pid, value) == (alice.pid, 200.0)
    assert bob.hear() is False
    assert rig.limit() == 200.0
    assert bob.end() == 0
    alice.send(signal.SIGKILL)
    rig.wait_for_limit(DEFAULT_LIMIT)


def test_a_process_that_is_stopped_loses_its_lease_and_goes_on_without(make_rig):
    rig = make_rig(policy="heartbeat = 2\n[[rule]]\npower_limit = true")
    rig.start()
    client = rig.client(
        "hold = gpus[0].hold(power_limit=200)\nhold.acquire()\nsay(0)\nheard()\n"
        "time.sleep(6)\n"  # after the connection was found to be lost it is made again
        "say(hold.change(power_limit=210))\nheard()\nhold.release()\nsay(0)"
    )
    client.hear()
    client.send(signal.SIGSTOP)
    wait_until(lambda: rig.limit() == DEFAULT_LIMIT)
    client.send(signal.SIGCONT)
    client.tell()
    assert client.hear() is True
    assert rig.limit() == 210.0
    client.tell()
    client.hear()
    assert rig.limit() == DEFAULT_LIMIT


def test_a_lease_ends_after_its_longest_time(make_rig):
    rig = make_rig(policy='longest_lease = "1s"\n[[rule]]\npower_limit = true')
    rig.start()
    client = rig.client(
        "hold = gpus[0].hold(power_limit=200)\nhold.acquire()\nsay(0)\nheard()\n"
        "say(hold.change(power_limit=210))\nhold.release()"
    )
    client.hear()
    rig.wait_for_limit(DEFAULT_LIMIT)
    client.tell()
    assert client.hear() is False
    assert client.end() == 0
    assert "longest" not in client.errors
    assert rig.limit() == DEFAULT_LIMIT


def test_one_gpu_that_hangs_costs_no_other_anything(make_rig):
    rig = make_rig(GpuSpec(), GpuSpec())
    rig.start()
    rig.sim.fault(0, "nvmlDeviceSetPowerManagementLimit", "hang")
    stuck = rig.client("say(0)\nsay(outcome(gpus[0].hold(power_limit=200).acquire))")
    stuck.hear()
    said = rig.ask("with gpus[1].hold(power_limit=200):\n    say(gpus[1].power_limit())")
    assert said == 200.0
    assert stuck.hear()[0] == "driver call hangs"
    assert rig.limit(1) == DEFAULT_LIMIT


def test_readings_are_those_of_the_driver(rig: AgentRig):
    script = "say([gpus[0].name, gpus[0].power_limits().maximum, gpus[0].temperature()])"
    direct = rig.ask(script, ZEUS_AGENT="0")
    assert rig.ask(script) == direct
    # Without the vendor's library in this process: through the agent.
    assert rig.ask(script, LD_LIBRARY_PATH="") == direct

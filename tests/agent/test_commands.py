"""`zeus agent`: leases, revoking, the audit, policies and jobs of a scheduler, as operators do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.agent.rig import ALICE, BOB, DEFAULT_LIMIT, POLICY, AgentRig, needs_root
from tests.device.clients import PYTHONPATH

from simulated_drivers import GpuSpec
from zeus.agent._agent import Agent
from zeus.agent._audit import Audit
from zeus.agent._jobs import Jobs
from zeus.agent._peer import Peer
from zeus.agent._policy import Policy
from zeus.device import current_node
from zeus.errors import CapabilityError

pytestmark = needs_root

HOLD = "hold = gpus[0].hold(power_limit={})\nhold.acquire()\nsay(0)\nheard()\n"


def test_leases_show_who_holds_what_and_since_when(rig: AgentRig):
    assert rig.zeus("agent", "leases") == "There are no leases.\n"
    client = rig.client(HOLD.format(200))
    client.hear()
    (lease,) = json.loads(rig.zeus("agent", "leases", "--json"))
    assert (lease["knob"], lease["value"], lease["previous"]) == ("power_limit", 200.0, 400.0)
    assert (lease["holder"]["uid"], lease["holder"]["pid"]) == (ALICE, client.pid)
    text = rig.zeus("agent", "leases")
    assert "200 W" in text
    assert "400 W" in text
    assert "1" in rig.zeus("agent", "status")


def test_env_shows_each_lease_once_and_the_ceiling_as_what_it_is(rig: AgentRig):
    assert rig.agent is not None
    assert rig.agent.stderr is not None
    rig.policy.write_text(POLICY + "[[ceiling]]\npower_limit = 300\n")
    rig.agent.send_signal(signal.SIGHUP)
    rig.agent.stderr.readline()
    client = rig.client(HOLD.format(200))
    client.hear()
    done = subprocess.run(
        [sys.executable, "-m", "zeus", "env"],
        env={
            **os.environ,
            **rig.environment,
            "PYTHONPATH": PYTHONPATH,
            "ZEUS_AGENT": str(rig.socket),
            "ZEUS_STATE_DIR": str(rig.folder / "agent-state"),  # as on a machine: one for all
        },
        capture_output=True,
        text=True,
        check=True,
    )
    shown = done.stdout.partition("Settings changed")[2]
    assert shown.count("200 W") == 1
    assert f"leased by {ALICE}" in shown
    assert shown.count("ceiling of the node agent; 400 W") == 1


def test_a_revoked_lease_is_ended_and_its_holder_goes_on(rig: AgentRig):
    client = rig.client(HOLD.format(200) + "say(hold.change(power_limit=220))\nhold.release()")
    client.hear()
    assert "200 W" in rig.zeus("agent", "revoke", "--user", str(ALICE))
    assert rig.limit() == DEFAULT_LIMIT
    client.tell()
    assert client.hear() is False
    assert client.end() == 0
    assert rig.limit() == DEFAULT_LIMIT
    why = [event["why"] for event in rig.events() if event["event"] == "lease ended"]
    assert why == ["revoked by root"]


@pytest.mark.parametrize("words", [["--gpu", "1"], ["--slurm-job", "3"], ["deadbeef"]])
def test_only_the_leases_meant_are_revoked(rig: AgentRig, words):
    client = rig.client(HOLD.format(200))
    client.hear()
    assert rig.zeus("agent", "revoke", *words) == "No such lease.\n"
    assert rig.limit() == 200.0


def test_revoking_needs_to_say_what(rig: AgentRig):
    assert "needs a lease" in rig.zeus("agent", "revoke", expect=2)


def test_the_audit_says_who_changed_what_and_why_it_ended(rig: AgentRig):
    client = rig.client("with gpus[0].hold(power_limit=200) as h:\n    h.change(power_limit=210)")
    client.end()
    lines = rig.zeus("agent", "audit", "--last", "2").splitlines()
    assert "lease began" in lines[0]
    assert "before 400 W  after 200 W" in lines[0]
    assert "value 210 W  restored 400 W  why released" in lines[1]
    event = json.loads(rig.zeus("agent", "audit", "--json").splitlines()[-1])
    assert event["changes"] == 1
    assert rig.zeus("agent", "audit", "--user", "somebody-else") == ""


def test_a_policy_is_read_again_on_a_signal_and_a_wrong_one_is_not(rig: AgentRig):
    client = rig.client(HOLD.format(200))
    client.hear()
    assert rig.agent is not None
    assert rig.agent.stderr is not None
    rig.policy.write_text("power = 3")
    rig.agent.send_signal(signal.SIGHUP)
    assert "the policy stays as it was" in rig.agent.stderr.readline()
    assert rig.limit() == 200.0
    rig.policy.write_text(POLICY.replace("150, 350", "250, 350"))
    rig.agent.send_signal(signal.SIGHUP)
    assert "read again" in rig.agent.stderr.readline()
    assert rig.limit() == DEFAULT_LIMIT
    why = [event["why"] for event in rig.events() if event["event"] == "lease ended"]
    assert why == ["the policy changed"]


def test_a_new_ceiling_goes_below_the_leases_that_it_allows(rig: AgentRig):
    client = rig.client(HOLD.format(200) + "hold.release()\nsay(0)")
    client.hear()
    assert rig.agent is not None
    assert rig.agent.stderr is not None
    rig.policy.write_text(POLICY + "[[ceiling]]\npower_limit = 300\n")
    rig.agent.send_signal(signal.SIGHUP)
    rig.agent.stderr.readline()
    assert rig.limit() == 200.0
    client.tell()
    client.hear()
    assert rig.limit() == 300.0


def test_without_an_agent_commands_say_how_to_start_one(rig: AgentRig):
    rig.stop()
    text = rig.zeus("agent", "leases", expect=1)
    assert "no node agent runs at" in text
    assert "Traceback" not in text


def test_a_policy_is_checked_before_the_agent_reads_it(rig: AgentRig, tmp_path):
    check = ("agent", "policy", "check", str(rig.policy))
    assert "1 rules, 0 ceilings" in rig.zeus(*check)
    asked = (*check, "--user", str(ALICE), "--gpu", "0")
    assert "150 W <= power_limit <= 350 W" in rig.zeus(*asked)
    rig.zeus(*asked, "--power-limit", "200")
    assert "but got 390 W" in rig.zeus(*asked, "--power-limit", "390", expect=1)
    assert "not allowed" in rig.zeus(*check, "--user", "eve")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[[rule]]\npower_limit = 'much'")
    text = rig.zeus("agent", "policy", "check", str(wrong), expect=1)
    assert f"{wrong}: rule[0].power_limit must be true" in text
    assert "No such file" in rig.zeus("agent", "policy", "check", "nowhere.toml", expect=2)


OWN = '[[rule]]\ngpus = ["own"]\npower_limit = true\n'


def test_a_job_may_set_its_own_gpus_and_leaves_them_as_they_were(make_rig):
    rig = make_rig(GpuSpec(), GpuSpec(), policy=OWN)
    rig.start()
    rig.zeus("agent", "job", "begin", "77", "--user", str(ALICE), "--gpus", "1")
    refused, held = rig.ask(
        "say([outcome(gpus[0].hold(power_limit=200).acquire)[0],\n"
        "     outcome(gpus[1].hold(power_limit=200).acquire)])\nos.kill(os.getpid(), 0)"
    )
    assert (refused, held) == ("no permission", None)
    assert rig.ask("say(outcome(gpus[1].hold(power_limit=200).acquire)[0])", BOB) == "no permission"
    rig.sim.set_power_limit(1, 180)  # by a program that does not ask
    client = rig.client("gpus[1].hold(power_limit=200).acquire()\nsay(0)\nheard()")
    client.hear()
    rig.kill()  # the agent forgets no job
    client.send(signal.SIGKILL)
    rig.start()
    rig.zeus("agent", "job", "end", "77")
    assert rig.limit(1) == DEFAULT_LIMIT
    assert rig.limit(0) == DEFAULT_LIMIT
    assert rig.ask("say(outcome(gpus[1].hold(power_limit=200).acquire)[0])") == "no permission"


def test_the_end_of_a_job_ends_its_leases(make_rig):
    rig = make_rig(GpuSpec(), policy=OWN)
    rig.start()
    rig.zeus("agent", "job", "begin", "78", "--user", str(ALICE), "--gpus", "0")
    client = rig.client(HOLD.format(200) + "say(hold.change(power_limit=210))")
    client.hear()
    assert "job 78" in rig.zeus("agent", "leases")
    rig.zeus("agent", "job", "end", "78")
    assert rig.limit() == DEFAULT_LIMIT
    client.tell()
    assert client.hear() is False


def test_jobs_are_registered_by_root_with_gpus_that_exist(rig: AgentRig):
    assert "has no GPU '5'" in rig.zeus(
        "agent", "job", "begin", "1", "--user", "0", "--gpus", "5", expect=1
    )
    assert "needs --user" in rig.zeus("agent", "job", "begin", "1", expect=2)
    rig.zeus("agent", "job", "end", "never-heard-of")


@pytest.mark.parametrize(
    ("place", "trusted"),
    [({}, True), ({"container": "c" * 64}, False), ({"pod": "p"}, False), ({"pid": 0}, False)],
)
def test_root_is_trusted_outside_of_containers_only(tmp_path, monkeypatch, place, trusted):
    monkeypatch.setenv("ZEUS_SIMULATE", "a100")
    agent = Agent(current_node(), Policy(), Audit(None), Jobs())
    session = agent.admit(replace(Peer(1, 0, "root"), **place))
    assert session is not None
    gpu = agent.answer(session, {"do": "hello", "protocol": 1})[0]["gpus"][0]["identity"]["key"]
    asked = (
        {"do": "hold", "gpu": gpu, "knob": "power_limit", "value": 200},
        {"do": "revoke", "user": "alice"},
        {"do": "job_begin", "job": "1", "uid": 1, "gpus": [0]},
    )
    for request in asked:
        if trusted:
            agent.answer(session, request)
        else:
            with pytest.raises(CapabilityError, match="no permission"):
                agent.answer(session, request)
    agent.close("the test ended")

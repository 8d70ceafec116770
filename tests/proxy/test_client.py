"""The client of OpenAI-compatible servers, against a server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proxy.model_server import ModelServer

from zeus.errors import BackendError
from zeus.proxy import OpenAIClient, Timeouts
from zeus.proxy._events import EventReader
from zeus.proxy._pool import Origin


@pytest.fixture(scope="module")
def server():
    with ModelServer() as running:
        yield running


def ask(**fake):
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "fake": fake}


def seen(server):
    with urllib.request.urlopen(f"{server.url}/seen") as answer:
        return json.load(answer)


async def collected(client, body, path="/v1/chat/completions"):
    async with client, client.stream(body, path) as answer:
        return [chunk async for chunk in answer], answer


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_arrives_chunk_by_chunk_with_its_tokens(server, path):
    chunks, answer = asyncio.run(collected(OpenAIClient(server.url), ask(tokens=6), path))
    assert answer.text == "word0 word1 word2 word3 word4 word5 "
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.generated_tokens) == (7, 6)
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["stop"]
    assert answer.headers["x-engine"] == "fake"


def test_a_chunk_is_there_before_the_next_is_generated(server):
    async def first():
        async with OpenAIClient(server.url).stream(ask(tokens=3, pause_after=1)) as answer:
            async for chunk in answer:
                if chunk.text:
                    return chunk.text
        return None

    assert asyncio.run(first()) == "word0 "  # the second never comes


def test_without_streaming_the_answer_comes_whole(server):
    async def whole():
        async with OpenAIClient(server.url + "/v1/") as client:
            return await client.complete(ask(tokens=2)), await client.models()

    chunk, models = asyncio.run(whole())
    assert chunk.text == "word0 word1 "
    assert chunk.usage is not None
    assert chunk.usage.generated_tokens == 2
    assert models == ["tiny"]


def test_an_error_of_the_server_has_its_status_and_words(server):
    body = ask(status=429, message="slow down")
    with pytest.raises(BackendError, match="429: slow down") as caught:
        asyncio.run(collected(OpenAIClient(server.url), body))
    assert caught.value.status == 429


def test_a_server_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(BackendError, match=r"cannot be reached: .*refused"):
        asyncio.run(collected(OpenAIClient(f"http://127.0.0.1:{port}"), ask()))


def test_a_connection_that_breaks_in_mid_stream_ends_in_an_error(server):
    async def pieces():
        async with OpenAIClient(server.url).stream(ask(tokens=9, close_after=2)) as answer:
            with pytest.raises(BackendError, match="closed the connection before"):
                [chunk async for chunk in answer]
            return answer.text

    assert asyncio.run(pieces()) == "word0 word1 "


def test_what_is_no_json_is_an_error_that_shows_it(server):
    with pytest.raises(BackendError, match=r"no JSON object: \{not json"):
        asyncio.run(collected(OpenAIClient(server.url), ask(garbage_after=1)))


def test_silence_is_given_up(server):
    client = OpenAIClient(server.url, timeouts=Timeouts(silence=0.2))
    with pytest.raises(BackendError, match=r"sent nothing for 0\.2 s"):
        asyncio.run(collected(client, ask(pause_after=1)))


def test_leaving_early_cancels_the_request(server):
    async def leave():
        client = OpenAIClient(server.url, headers={"X-Name": "leaver"})
        async with client.stream(ask(pause_after=1)) as answer:
            await anext(answer)
        while True:  # until the server notices
            found = await asyncio.to_thread(seen, server)
            own = [each for each in found if each["headers"].get("x-name") == "leaver"]
            if own[0]["end"] == "canceled":
                return True
            await asyncio.sleep(0.01)

    assert asyncio.run(leave())


def test_canceling_a_task_cancels_the_request(server):
    async def cancel():
        client = OpenAIClient(server.url)
        before = len(await asyncio.to_thread(seen, server))
        task = asyncio.create_task(collected(client, ask(pause_after=1)))
        while len(await asyncio.to_thread(seen, server)) == before:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while (await asyncio.to_thread(seen, server))[before]["end"] != "canceled":
            await asyncio.sleep(0.01)

    asyncio.run(cancel())


def test_a_reader_that_is_slow_holds_the_server_back(server):
    async def slow():
        body = ask(tokens=1000, flood=20_000)
        async with OpenAIClient(server.url) as client, client.stream(body) as answer:
            await anext(answer)
            sent = -1
            while True:  # until the server cannot send more
                await asyncio.sleep(0.2)
                now = (await asyncio.to_thread(seen, server))[-1].get("sent", -1)
                if now == sent:
                    break
                sent = now
            ahead = len(answer._ready)
            return sent, ahead, sum([len(c.text) async for c in answer]) // 20_000

    sent, ahead, whole = asyncio.run(slow())
    assert sent < 900
    assert ahead < 400
    assert whole == 1000


def test_connections_are_kept_and_a_stale_one_is_replaced():
    async def run():
        with ModelServer() as first:
            client = OpenAIClient(first.url)
            await client.complete(ask())
            await client.complete(ask())
            port = first.port
        with ModelServer(port=port):
            text = (await client.complete(ask())).text
            client.close()
            return text

    assert asyncio.run(run()).startswith("word0")


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "http://x:y", "http://a:b@x", "http://x?y=1"]
)
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="URL of a server"):
        Origin(url)


def test_a_password_in_a_url_is_not_repeated():
    with pytest.raises(ValueError, match="password") as caught:
        Origin("http://me:secret@host")
    assert "secret" not in str(caught.value)


@given(
    st.lists(st.text(alphabet='ab{}" é', max_size=6), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_events_are_the_same_however_a_body_is_cut(texts, newline, cuts):
    body = "".join(f"event: x{newline}data: {text}{newline}{newline}" for text in texts).encode()
    reader, found = EventReader(), []
    places = sorted({min(cut, len(body)) for cut in cuts})
    for begin, end in zip([0, *places], [*places, len(body)], strict=True):
        found += reader.feed(body[begin:end])
    assert [each.decode() for each in found + reader.rest()] == texts

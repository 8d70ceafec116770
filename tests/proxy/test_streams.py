"""Streams of all kinds through the proxy: the same bytes as from the server, but for the energy."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proxy.processes import ProxyProcess, get, wait_for
from tests.proxy.raw_server import RawServer

from zeus.proxy._connection import Connection
from zeus.proxy._http_server import ClientConnection, ClientRequest
from zeus.proxy._metered import MeteredAnswer
from zeus.proxy._pool import Exchange
from zeus.proxy._splicing import with_member
from zeus.proxy._stream import MeteredStream

ENERGY = {"joules": 4.5, "uncertainty": 0.5, "method": "estimated"}
ADDED = re.compile(rb',"energy":\{"joules":[^{}]*\}')
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def event(data: object, newline: bytes = b"\n", name: bytes = b"data: ") -> bytes:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return name + text + 2 * newline


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chat(delta: dict, finish: str | None = None, **more: object) -> dict:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c-1", "model": "m", "choices": [choice], **more}


def bare(text: str, finish: str | None = None) -> dict:
    """As simple servers write it."""
    ended = {"finish_reason": finish} if finish else {}
    return {"choices": [{"delta": {"content": text}, **ended}]}


def llama_cpp(text: str, finish: str | None = None) -> dict:
    choice = {"finish_reason": finish, "index": 0, "delta": {"content": text}}
    return {"choices": [choice], "created": 1, "id": "c", "object": "chat.completion.chunk"}


def completion(text: str, finish: str | None = None) -> dict:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "c-1", "choices": [choice]}


def reasoning(text: str, finish: str | None = None) -> dict:
    return chat({"content": None, "reasoning_content": text}, finish)


def tool_call(text: str, finish: str | None = None) -> dict:
    called = {"index": 0, "function": {"arguments": text}}
    return chat({"tool_calls": [called]}, finish)


def logprobs(text: str, finish: str | None = None) -> dict:
    found = chat({"content": text}, finish)
    found["choices"][0]["logprobs"] = {"content": [{"token": text, "logprob": -len(text) / 7}]}
    return found


def with_null(text: str, finish: str | None = None) -> dict:
    return chat({"content": text}, finish, usage=None)


SHAPES = [bare, llama_cpp, completion, reasoning, tool_call, logprobs, with_null]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
NAMES = [b"data: ", b"data:", b": ping\ndata: ", b"event: x\nid: 3\ndata:"]
TEXTS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = sorted({each % (len(data) + 1) for each in at} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@settings(max_examples=300)
@given(
    st.sampled_from(SHAPES),
    TEXTS,
    st.sampled_from(["usage", "with the end", "none"]),
    st.tuples(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.booleans(), st.lists(st.integers(0, 10**6), max_size=30)),
)
def test_nothing_but_the_energy_differs_however_a_stream_is_cut(shape, texts, usage, form, wire):
    """And all tokens are counted, and none that is not there."""
    (newline, name, done), (framing, cuts) = form, wire
    name = name.replace(b"\n", newline)
    events = [event(chat({"role": "assistant", "content": ""}), newline, name)]
    for at, text in enumerate(texts):
        events.append(event(shape(text), newline, name))
        if at % 3 == 2:
            events.append(b": keep-alive" + 2 * newline)
    end = (with_null if shape is with_null else bare)("", "stop")
    if usage == "with the end":
        end["usage"] = USAGE
    events.append(event(end, newline, name))
    if usage == "usage":
        events.append(event({"choices": [], "usage": USAGE}, newline, name))
    if done:
        events.append(event(b"[DONE]", newline, name))
    asked = usage != "none"
    sent = b"".join(events)
    if framing:
        sent_as = CHUNKED + b"".join(map(framed, events)) + framed(b"")
    else:
        sent_as = HEAD + b"\r\n" + sent
    found, tokens = asyncio.run(passed(cut(sent_as, cuts), usage_asked=asked))
    assert len(ADDED.findall(found)) == 1
    direct = sent
    if not asked:
        direct = sent.replace(b', "usage": null', b"")
    assert ADDED.sub(b"", found) == direct
    assert tokens == len(texts)


async def passed(pieces: list[bytes], *, usage_asked: bool) -> tuple[bytes, int]:
    """Return the body that a client gets of a response in pieces, and the tokens counted."""
    written = bytearray()

    class Transport(asyncio.Transport):
        def write(self, data) -> None:
            written.extend(data)

        def close(self) -> None:
            pass

        abort = close

        def is_closing(self) -> bool:
            return False

    class Counted:
        tokens = 0

        def token(self, count: int) -> None:
            self.tokens += count

    client_connection = ClientConnection(lambda request: None, set())
    client_connection.connection_made(Transport())
    client = ClientRequest(client_connection)
    exchange = Exchange()
    request: Any = Counted()
    answer = MeteredAnswer(client, request, exchange, ended=lambda: None, usage_asked=usage_asked)
    answer._measure = lambda **_: ENERGY  # type: ignore[method-assign]
    connection = Connection("x", 600.0)
    connection.connection_made(Transport())
    exchange.connection = connection
    connection.send((b"",), answer)
    for piece in pieces:
        connection.data_received(piece)
    if not connection.closed:
        connection.connection_lost(None)
    client_connection.connection_lost(None)
    _, _, body = bytes(written).partition(b"\r\n\r\n")
    return unframed(body), request.tokens


def unframed(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        found += body[:length]
        assert body[length : length + 2] == b"\r\n"
        body = body[length + 2 :]
    return found


def streamed(*pieces: bytes, choices: int = 1, asked: bool = True) -> tuple[bytes, int]:
    counts: list[int] = []
    stream = MeteredStream(counts.append, lambda _: ENERGY, usage_asked=asked, choices=choices)
    return b"".join([*map(stream.feed, pieces), stream.end()]), sum(counts)


def test_the_first_token_is_the_first_text():
    for delta in ({"role": "assistant"}, {"role": "assistant", "content": ""}, {}):
        assert streamed(event(chat(delta)))[1] == 0
    assert streamed(event(chat({"role": "assistant", "content": "a"})))[1] == 1


def test_data_over_several_lines_gets_the_energy():
    text = json.dumps({"choices": [], "usage": USAGE}, indent=1)
    raw = "".join(f"data: {line}\n" for line in text.split("\n")).encode() + b"\n"
    found, _ = streamed(event(chat({"content": "a"}, "stop")), b"id: 1\n" + raw)
    last = found.split(b"\n\n")[1].split(b"\n")
    assert last[0] == b"id: 1"
    data = json.loads(b"\n".join(line.removeprefix(b"data: ") for line in last[1:]))
    assert data == {"choices": [], "usage": {**USAGE, "energy": ENERGY}}


def test_an_event_that_never_ends_is_passed_on():
    long = b"data: " + b"x" * (9 * 1024 * 1024)
    pieces = [long[at : at + 65536] for at in range(0, len(long), 65536)]
    assert streamed(*pieces)[0] == long


def test_an_energy_that_a_server_states_itself_is_replaced():
    raw = event(b'{"choices": [], "usage": {"energy": 3, "prompt_tokens": 1.0e1}}')
    found, _ = streamed(raw)
    assert b'"prompt_tokens": 1.0e1}}' in found
    assert json.loads(found[6:])["usage"]["energy"] == ENERGY


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["usage", "a", "{", '"', "é"]), JSON, max_size=4),
    st.dictionaries(st.sampled_from(["energy", "b", "}"]), JSON, max_size=3),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_a_member_is_set_in_the_text_of_an_object(outer, usage, indent, plain):
    data = {**outer, "usage": usage}
    text = json.dumps(data, indent=indent, ensure_ascii=plain)
    found = with_member(text.encode(), ("usage", "energy"), b'{"x":1}')
    assert json.loads(found) == {**data, "usage": {**usage, "energy": {"x": 1}}}
    if "energy" not in usage:
        comma = b"," if usage else b""
        assert found.replace(comma + b'"energy":{"x":1}', b"", 1) == text.encode()


# --- through processes ----------------------------------------------------------------------------

ASKED = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
BODY = b"".join(
    [
        event(chat({"role": "assistant", "content": ""})),
        *[event(chat({"content": f"w{n}"})) for n in range(3)],
        event(chat({}, "stop")),
        event({"choices": [], "usage": USAGE}),
        event(b"[DONE]"),
    ]
)
WHOLE = json.dumps({"choices": [{"message": {"content": "\u00e9"}}], "usage": USAGE}).encode()
SIZED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"


def post(port: int, body: bytes, path: bytes = b"/v1/chat/completions", more: bytes = b"") -> bytes:
    """Return all that comes back, until the connection is closed."""
    head = b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n%b" % (path, more)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        found = b""
        while piece := client.recv(65536):
            found += piece
    return found


def body_of(response: bytes) -> bytes:
    head, _, body = response.partition(b"\r\n\r\n")
    return unframed(body) if b"transfer-encoding: chunked" in head.lower() else body


@pytest.mark.parametrize(
    "pieces",
    [
        [CHUNKED, framed(BODY), framed(b"")],
        [CHUNKED + framed(BODY)[:-40], framed(BODY)[-40:] + framed(b"")],
        [CHUNKED, b"%X;name=value\r\n%b\r\n" % (len(BODY), BODY), b"0\r\ntrailer: x\r\n\r\n"],
        [HEAD + b"content-length: %d\r\n\r\n" % len(BODY), BODY],
        [HEAD.replace(b"1.1", b"1.0") + b"\r\n", BODY],  # until the end of the connection
        [b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED + framed(BODY) + framed(b"")],
        [HEAD + b"content-encoding: identity\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY],
    ],
)
def test_a_stream_in_any_form_has_the_energy(pieces):
    with RawServer(lambda _: pieces) as server, ProxyProcess("--to", server.url) as proxy:
        proxy.measuring()
        found = body_of(post(proxy.port, json.dumps(ASKED).encode()))
    assert len(ADDED.findall(found)) == 1
    assert ADDED.sub(b"", found) == BODY


def test_what_cannot_be_read_passes_unchanged():
    packed = gzip.compress(BODY)
    zipped = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed
    other = SIZED % (len(WHOLE), b"", WHOLE)
    with (
        RawServer(lambda asked: [zipped if b"chat" in asked else other]) as server,
        ProxyProcess("--to", server.url) as proxy,
    ):
        assert body_of(post(proxy.port, json.dumps(ASKED).encode())) == packed
        for path in (b"/v1/embeddings", b"/v1/responses", b"/v1/rerank?x=%20"):
            body = b'{"model":  "m", "input": "\\u00e9", "stream": false}'
            assert body_of(post(proxy.port, body, path)) == WHOLE
            received = [each for each in server.received if each.startswith(b"POST")][-1]
            assert received.startswith(b"POST %b HTTP/1.1\r\n" % path)
            assert received.endswith(b"\r\n\r\n" + body)


def test_a_whole_answer_stays_as_it_was_written():
    text = b'{"usage" :{"prompt_tokens": 1.0e1 , "x":"\\u00e9"} ,\n "choices":[], "choices":[1]}\n'
    header = b"x-a: 1\r\nx-a: 2\r\n"
    pieces = [SIZED % (len(text), header, text)]
    with RawServer(lambda _: pieces) as server, ProxyProcess("--to", server.url) as proxy:
        proxy.measuring()
        found = post(proxy.port, b'{"model": "m"}')
    assert ADDED.sub(b"", body_of(found)) == text
    assert b"x-a: 1\r\nx-a: 2\r\n" in found
    (joules,) = re.findall(rb"zeus-energy-joules: (\S+)", found)
    assert float(joules) > 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"model":"m",  "stream": true, "x": 1.0e1, "y": "\\u00e9"}',
            b'{"model":"m",  "stream": true, "x": 1.0e1, "y": "\\u00e9",'
            b'"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream": true, "stream_options": {"z": 1, "include_usage": false} }',
            b'{"stream": true, "stream_options": {"z": 1, "include_usage": true} }',
        ),
        (
            b'{"stream": true, "stream_options": null }',
            b'{"stream": true, "stream_options": {"include_usage":true} }',
        ),
        (b'{"stream": true, "stream_options": 3}',) * 2,
        (b'{"stream": false, "x": 1.0e1}',) * 2,
    ],
)
def test_a_request_is_changed_in_nothing_but_that_usage_is_asked_for(body, expected):
    pieces = [CHUNKED, framed(BODY), framed(b"")]
    with RawServer(lambda _: pieces) as server, ProxyProcess("--to", server.url) as proxy:
        post(proxy.port, body)
    (received,) = [each for each in server.received if each.startswith(b"POST")]
    assert received.partition(b"\r\n\r\n")[2] == expected


@pytest.mark.parametrize("kept", [BODY[:250], BODY[: BODY.index(b"[DONE]")], BODY[:-1]])
def test_what_came_before_a_back_end_died_is_passed_on(kept):
    """As from the server itself: the client sees the same bytes, and that they are not all."""
    pieces = [CHUNKED, framed(kept), b"ffff\r\n"]
    with RawServer(lambda _: pieces) as server, ProxyProcess("--to", server.url) as proxy:
        found = post(proxy.port, json.dumps(ASKED).encode())
        wait_for(lambda: get(proxy.port, "/zeus/requests")["groups"][0]["total"]["failed"] == 1)
    body = found.partition(b"\r\n\r\n")[2]
    assert not body.endswith(b"0\r\n\r\n")
    whole = unframed(body)
    assert ADDED.sub(b"", whole) == kept

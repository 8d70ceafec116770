"""Clients and servers that break the rules of HTTP: no crash, no hang, and nobody else's data."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import selectors
import socket
import threading
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.proxy.model_server import ModelServer
from tests.proxy.processes import ProxyProcess, ask, chat, events, get, seen, send, wait_for

from zeus.proxy._http_server import ClientConnection

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="module")
def server():
    with ModelServer() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server):
    with ProxyProcess("--to", server.url) as running:
        yield running


def raw(port, data, wanted=1):
    """Send bytes; what came back until so many responses have, or the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        found = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            while found.count(b"HTTP/1.1 ") < wanted or b"\r\n\r\n" not in found:
                piece = client.recv(65536)
                if not piece:
                    break
                found += piece
        return found


@pytest.mark.parametrize(
    "data",
    [
        POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        POST + b"transfer-encoding: chunked\r\ncontent-length: 60\r\n\r\n0\r\n\r\n" + SMUGGLED,
        POST + b"content-length: 0\r\ncontent-length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
        POST + b"content-length: 0, 5\r\n\r\n" + SMUGGLED,
        POST + b"content-length: +5\r\n\r\nabcde",
        POST + b"content-length: -5\r\n\r\nabcde",
        POST + b"content-length: 5a\r\n\r\nabcde",
        POST + b"content-length: 99999999999999999999999\r\n\r\nabcde",
        POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        POST + b"transfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n" + SMUGGLED,
        POST + b"transfer-encoding : chunked\r\ncontent-length: 5\r\n\r\n" + SMUGGLED,
        POST + b"transfer-encoding: chunked\r\n\r\n-1\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n" + SMUGGLED,
        b"POST /echo HTTP/1.1\nhost: x\ncontent-length: 0\n\n" + SMUGGLED,
        POST + b"a: b\rGET /smuggled HTTP/1.1\r\n\r\n",
        POST + b"a: b\0c\r\n\r\n",
        POST + b"a: b\r\n transfer-encoding: chunked\r\n\r\n",
        b"GET /echo /smuggled HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /echo HTTP/9.9\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT evil:80 HTTP/1.1\r\nhost: x\r\n\r\n" + SMUGGLED,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    ],
)
def test_what_two_programs_may_read_differently_is_refused(server, proxy, data):
    before = len(seen(server))
    assert raw(proxy.port, data)[9:12] == b"400"
    passed = {each["target"] for each in seen(server)[before:]}
    assert passed <= {"/v1/models"}  # which the proxy asks for itself


def test_a_request_that_offers_another_protocol_is_answered_in_this_one(proxy):
    """As clients do that prefer HTTP/2."""
    offer = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    body = json.dumps(ask(stream=False, tokens=1)).encode()
    first = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + offer
    first += b"content-length: %d\r\n\r\n" % len(body) + body
    second = b"GET /echo?n=2 HTTP/1.1\r\nhost: x\r\n" + offer + b"\r\n"
    found = raw(proxy.port, first + second + second, wanted=3)
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert found.index(b"word0") < found.index(b"n=2")


def test_a_deep_or_strange_body_passes_or_is_refused(proxy):
    bodies = [
        b'{"stream": true, "messages": ' + b"[" * depth + b"]" * depth + b"}"
        for depth in (900, 990, 1100, 5000, 100_000)
    ]
    bodies += [
        b'{"stream": true, "fake": {"tokens": 1}, "n": %s}' % each
        for each in (b"1e999", b"9" * 5000, b"NaN", b'"\\ud800"', b"true", b"-1", b"null")
    ]
    bodies += [
        b'{"model": "tiny", "model": "x"}',
        b'{"messages": {"a": 1}}',
        b'{"prompt": [1, "a"]}',
    ]
    for body in bodies:
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            chat(proxy.port, body)
    assert get(proxy.port, "/healthz") == {"status": "ok"}
    wait_for(lambda: get(proxy.port, "/zeus/requests")["groups"][0]["in_flight"] == 0)


PIECES = st.sampled_from(
    [
        b"GET ", b"POST ", b"/echo", b"/v1/chat/completions", b"/metrics", b"*", b" HTTP/1.1",
        b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"host: x\r\n", b"content-length: 3\r\n",
        b"content-length: 0\r\n", b"content-length: 23\r\n", b"transfer-encoding: chunked\r\n",
        b"3\r\nabc\r\n", b"0\r\n\r\n", b"expect: 100-continue\r\n", b"connection: close\r\n",
        b"upgrade: h2c\r\nconnection: upgrade\r\n", b'{"stream": true}',
        b'{"fake": {"tokens": 1}}', SMUGGLED, b"x" * 70_000,
    ]
)  # fmt: skip
WHOLE = POST + b"content-length: 3\r\n\r\nabc"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@st.composite
def mutated(draw):
    """A request with some bytes taken out, put in or changed."""
    data = bytearray(draw(st.sampled_from([WHOLE, CHUNKED, WHOLE + CHUNKED])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 6))] = draw(PIECES | st.binary(max_size=4))
    return bytes(data)


def test_whatever_is_sent_ends_and_disturbs_nobody(server, proxy):
    """Others are answered meanwhile, each with what belongs to it alone."""
    stop, wrong, hung, answered = threading.Event(), [], [], [0]

    def client(name):
        while not stop.is_set():
            body = ask(tokens=3, word=f"{name} ")
            chunks = events(chat(proxy.port, body).whole)
            said = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
            if said != f"{name} " * 3:
                wrong.append((name, said))
            answered[0] += 1

    @settings(max_examples=150)
    @given(st.lists(PIECES, max_size=12).map(b"".join) | mutated(), st.booleans())
    @example(SMUGGLED * 20, False)
    def attack(data, waits):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client,
        ):
            client.sendall(data)
            if waits:
                client.sendall(b"\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            try:
                while client.recv(65536):
                    pass
            except TimeoutError:
                hung.append(data)

    threads = [threading.Thread(target=client, args=(f"client{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        attack()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == hung == []
    assert answered[0] > 0
    assert get(proxy.port, "/healthz") == {"status": "ok"}
    wait_for(lambda: get(proxy.port, "/zeus/requests")["groups"][0]["in_flight"] == 0)


def test_an_answer_that_nobody_asked_for_goes_to_nobody():
    """Not even to the next client on the same connection to the back end."""
    stray = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret"
    own = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nown"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(connection):
            with connection, contextlib.suppress(ConnectionError):
                while connection.recv(65536):
                    connection.sendall(own + stray[:-2])
                    time.sleep(0.05)
                    connection.sendall(stray[-2:])

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listening.accept()[0],)).start()

        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with ProxyProcess("--to", url, "--gpus", "none") as proxy:
            for _ in range(5):
                assert send(proxy.port, "GET", "/x").whole == b"own"
        listening.shutdown(socket.SHUT_RDWR)


_FASTER = 400


class FastSelector(selectors.DefaultSelector):
    """Waits for a fraction of the time that it is told to."""

    def select(self, timeout=None):
        return super().select(timeout and timeout / _FASTER)


class FastLoop(asyncio.SelectorEventLoop):
    """A loop whose time runs so much faster."""

    def __init__(self) -> None:
        super().__init__(FastSelector())

    def time(self) -> float:
        return time.monotonic() * _FASTER


@pytest.mark.parametrize(
    ("begin", "drip"),
    [
        (b"GET /x HTTP/1.1\r\n", b"a: b\r\n"),
        (b"GET /", b"x"),
        (POST + b"content-length: 100000\r\n\r\n", b"x"),
        (POST + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
        (b"GET /x HTTP/1.1\r\n", b""),
        (b"", b""),
        (WHOLE, b""),
    ],
)
def test_a_request_that_drips_is_given_up(begin, drip):
    async def attack():
        loop = asyncio.get_running_loop()
        handled = []

        def handle(request):
            handled.append(request)
            request.respond(200, [], b"")

        server = await loop.create_server(lambda: ClientConnection(handle, set()), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(begin)
        ended = asyncio.ensure_future(reader.read())
        with contextlib.suppress(ConnectionError):
            while not ended.done():
                writer.write(drip)
                await asyncio.sleep(4.0)  # of the fast ones
            await ended
        writer.close()
        server.close()
        return handled

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        assert len(runner.run(attack())) == (begin == WHOLE)

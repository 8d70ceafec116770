"""Connections that say too much, or take too long: on a network and a clock that are made up."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from zeus.server._protocol import MAX_HEAD, MAX_SECONDS, Protocol

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"


class Task:
    """One that is begun, and no more."""

    def add_done_callback(self, _callback) -> None:
        pass


class Loop:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.begun = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, _handle) -> None:
        pass

    def call_later(self, delay, callback, *arguments) -> asyncio.TimerHandle:
        loop = cast(Any, self)
        handle = asyncio.TimerHandle(self.now + delay, callback, arguments, loop)
        self._timers.append((self.now + delay, next(self._numbers), handle))
        return handle

    def create_task(self, coroutine) -> Task:
        coroutine.close()
        self.begun += 1
        return Task()

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and min(self._timers)[0] <= until:
            due = min(self._timers)
            self._timers.remove(due)
            self.now = due[0]
            if not due[2].cancelled():
                due[2]._run()
        self.now = until


class Network(asyncio.Transport):
    """The other end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Connected:
    def __init__(self) -> None:
        self.loop, self.network = Loop(), Network()
        config = uvicorn.Config(lambda: None, http=Protocol, ws="none", log_config=None)
        self.protocol = Protocol(config, ServerState(), {}, cast(Any, self.loop))
        self.protocol.connection_made(self.network)

    def say(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def answered(self) -> None:
        """The request that is being answered has been."""
        assert self.protocol._answering is not None
        self.protocol._answering.response_complete = True
        self.protocol.on_response_complete()

    @property
    def open(self) -> bool:
        return not self.network.closed


@pytest.fixture
def connected() -> Connected:
    return Connected()


@pytest.mark.parametrize("said", [b"", b"GET / HT", GET[:-1], POST, POST + b"x" * 999])
def test_a_request_that_does_not_end_is_hung_up_on(connected, said):
    if said:
        connected.say(said)
    connected.loop.sleep(MAX_SECONDS - 1)
    assert connected.open
    connected.loop.sleep(1)
    assert not connected.open


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\nX: ", POST])
def test_saying_it_byte_by_byte_gives_no_more_time(connected, begun):
    connected.say(begun)
    for _ in range(int(MAX_SECONDS)):
        assert connected.open
        connected.say(b"x")
        connected.loop.sleep(1)
    assert not connected.open


def test_an_answer_may_take_its_time(connected):
    connected.say(GET)
    connected.loop.sleep(100 * MAX_SECONDS)
    assert connected.open
    connected.answered()
    connected.say(GET[:5])
    connected.loop.sleep(MAX_SECONDS - 1)
    assert connected.open
    connected.say(GET[5:])
    connected.loop.sleep(100 * MAX_SECONDS)
    assert connected.open


def test_who_does_not_take_the_answer_is_hung_up_on(connected):
    connected.say(GET)
    connected.protocol.pause_writing()
    connected.loop.sleep(MAX_SECONDS - 1)
    connected.protocol.resume_writing()  # it takes a little
    connected.loop.sleep(MAX_SECONDS)
    connected.protocol.pause_writing()
    connected.loop.sleep(MAX_SECONDS - 1)
    assert connected.open
    connected.loop.sleep(1)
    assert not connected.open


def test_a_head_has_a_size(connected):
    connected.say(GET[:-2])
    for _ in range(2 * MAX_HEAD // 1000):
        connected.say(b"X: " + b"x" * 995 + b"\r\n")
    assert not connected.open


def test_many_requests_may_come_at_once(connected):
    # Cut anywhere, and more at a time than a head may have.
    many, size = 10_000 * GET, 3 * MAX_HEAD + 7
    for at in range(0, len(many), size):
        connected.say(many[at : at + size])
    assert connected.open
    connected.loop.sleep(100 * MAX_SECONDS)  # they wait for each other
    for number in range(10_000):
        assert connected.loop.begun == number + 1
        connected.answered()
    assert connected.loop.begun == 10_000


def test_lines_after_a_body_are_not_kept(connected):
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    connected.say(head + b"1\r\nx\r\n0\r\n" + b"X: y\r\n" * 10_000 + b"\r\n")
    assert len(connected.protocol.headers) == 2
    assert connected.open


def test_who_leaves_is_written_to_no_more(connected):
    connected.say(2 * GET)
    connected.protocol.connection_lost(ConnectionResetError())
    assert connected.protocol._answering.disconnected

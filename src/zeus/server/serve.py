"""Runs the application on an address until it is told to stop."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from zeus.errors import ServerError

_GRACE = 10  # seconds for requests that are being answered when it is told to stop
_SWITCH_INTERVAL = 0.0005  # seconds
_MOST_HEAD = 64 * 1024  # bytes of a request before its body


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address.

    Args:
        host: A name or an address.
        port: 0 for any that is free.

    Raises:
        ServerError: If that cannot be.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ServerError(f"cannot listen on {host} port {port}: {said}") from error


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def address(listening: socket.socket) -> str:
    """The URL under which it can be reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or SIGINT.

    Args:
        app: What answers.
        listening: From `listen`.
        ready: Called once requests are answered.
    """
    config = uvicorn.Config(
        app,
        http=_protocol(),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE,
    )
    # The thread that writes waits for the interpreter after every statement, by default up to 5 ms
    # while requests are being read. This process is ours, so it may have it sooner.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _Server(config, ready, app.state.hub.stop).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends without an error when it is told to."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # However often it is told, it finishes what it has begun; that takes a bounded time.
        self.should_exit = True
        self._stopping()  # who waits for news is answered now

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _protocol() -> Any:
    """The faster parser, with a bound on what it keeps; the other has one of its own."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415
    except ImportError:
        return "h11"

    class Bounded(HttpToolsProtocol):
        _head = 0
        _in_head = False

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head += len(data)
                if self._head > _MOST_HEAD:
                    self.transport.close()
                    return
            super().data_received(data)

        def on_message_begin(self) -> None:
            self._head, self._in_head = 0, True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

    return Bounded

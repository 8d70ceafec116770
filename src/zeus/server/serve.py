"""Runs the application on an address until it is told to stop."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from zeus.errors import ServerError
from zeus.server.protocol import Protocol, check_uvicorn

_GRACE = 10  # seconds for requests that are being answered when it is told to stop
_SWITCH_INTERVAL = 0.0005  # seconds
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_MOST_FILES = 65_536


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
    """Answer requests until SIGTERM or SIGINT, of which the process heeds none from then on.

    Args:
        app: What answers.
        listening: From `listen`.
        ready: Called once requests are answered.

    Raises:
        ServerError: If the installed uvicorn cannot be bounded; see `protocol`.
    """
    check_uvicorn()
    config = uvicorn.Config(
        app,
        http=Protocol,
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
    _allow_many_connections()
    _Server(config, ready, app.state.hub.stop).run(sockets=[listening])


def _allow_many_connections() -> None:
    """Thousands of ranks may wait for a plan, and a process usually has 1,024 files open."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415  (not everywhere)

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
        if now != resource.RLIM_INFINITY and now < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


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
        for number in _STOPPING:
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            # Whoever tells it once more must not turn its good end into a death by a signal.
            for number in _STOPPING:
                signal.signal(number, signal.SIG_IGN)

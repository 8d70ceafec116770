"""Runs the application on a socket until SIGTERM or SIGINT."""

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
from zeus.server._protocol import Protocol, check_uvicorn

_GRACE = 10  # seconds for requests in progress at shutdown
_SWITCH_INTERVAL = 0.0005  # seconds
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_MAX_FILES = 65_536


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Args:
        host: A host name or IP address.
        port: Port number; 0 for any free port.

    Raises:
        ServerError: If the address cannot be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ServerError(f"cannot listen on {host} port {port}: {said}") from error


def is_loopback(listening: socket.socket) -> bool:
    """Return whether the socket listens on a loopback address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def address(listening: socket.socket) -> str:
    """Return the URL of the socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve requests until SIGTERM or SIGINT, which the process ignores from then on.

    Args:
        app: The application.
        listening: Socket from `listen`.
        ready: Called once requests are accepted.

    Raises:
        ServerError: If the installed uvicorn is not supported; see `protocol`.
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
    # After every statement the writer thread waits for the GIL, by default up to 5 ms while
    # requests are being read. This process runs nothing else, so the interval may be shorter.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _allow_many_connections()
    _Server(config, ready, app.state.hub.stop).run(sockets=[listening])


def _allow_many_connections() -> None:
    """Raise the limit of open files, usually 1,024: thousands of ranks may wait for a plan."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415  (not on every platform)

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MAX_FILES if most == resource.RLIM_INFINITY else min(most, _MAX_FILES)
        if now != resource.RLIM_INFINITY and now < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class _Server(uvicorn.Server):
    """Exits without an error on SIGTERM and SIGINT."""

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
        # Further signals do not abort requests in progress; those take a bounded time.
        self.should_exit = True
        self._stopping()  # answer long-polling requests now

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in _STOPPING:
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            # Another signal must not turn a clean exit into death by a signal.
            for number in _STOPPING:
                signal.signal(number, signal.SIG_IGN)

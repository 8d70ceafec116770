"""Runs the application on a socket until SIGTERM or SIGINT."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from zeus.server._protocol import Protocol, check_uvicorn
from zeus.transport._listening import address, is_loopback, listen

__all__ = ["address", "is_loopback", "listen", "serve"]

_GRACE = 10  # seconds for requests in progress at shutdown
_SWITCH_INTERVAL = 0.0005  # seconds
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_MAX_FILES = 65_536


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

"""Connections to a server, bounded by one deadline.

In the standard library, name resolution, connecting, the TLS handshake and reading each have their
own timeout, or none at all. Here one instant bounds them all.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

_Address = tuple[Any, ...]


class DeadlineConnection:
    """Opens connections to a host, with TLS if `secure`; the default port is 443 or 80."""

    def __init__(self, host: str, port: int | None, *, secure: bool) -> None:
        self.host = host
        self.port = port or (443 if secure else 80)
        self._context = ssl.create_default_context() if secure else None
        self._lock = threading.Lock()
        self._lookup: _Lookup | None = None

    @contextlib.contextmanager
    def connected(self, deadline: float) -> Iterator[socket.socket]:
        """Open a connection that is shut down at the deadline, whatever its state.

        Args:
            deadline: Instant of the monotonic clock, in seconds.

        Raises:
            OSError: If it cannot be opened; a `TimeoutError` if not in time.
        """
        with contextlib.ExitStack() as ends:
            sock = ends.enter_context(self._open(deadline))
            if self._context is not None:
                sock = self._context.wrap_socket(
                    sock, server_hostname=self.host, do_handshake_on_connect=False
                )
                ends.enter_context(sock)
            # A socket's timeout is for one read; a server could send single bytes indefinitely.
            guard = threading.Timer(_left(deadline), _hang_up, [sock])
            guard.daemon = True
            guard.start()
            ends.callback(guard.cancel)
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            yield sock

    def http_on(self, sock: socket.socket) -> http.client.HTTPConnection:
        """Return an HTTP connection on an open socket."""
        connection = (
            http.client.HTTPConnection(self.host, self.port)
            if self._context is None
            else http.client.HTTPSConnection(self.host, self.port, context=self._context)
        )
        connection.sock = sock
        return connection

    def _open(self, deadline: float) -> socket.socket:
        addresses = self._addresses(deadline)
        failure: OSError = OSError(f"{self.host} has no address")
        for tried, (family, kind, protocol, _, address) in enumerate(addresses):
            sock = None
            try:
                sock = socket.socket(family, kind, protocol)
                # An address that drops all packets leaves time for those after it.
                sock.settimeout(_left(deadline) / (len(addresses) - tried))
                sock.connect(address)
                sock.settimeout(_left(deadline))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                failure = error
                if sock is not None:
                    sock.close()
            else:
                return sock
        raise failure

    def _addresses(self, deadline: float) -> list[_Address]:
        with contextlib.suppress(OSError, UnicodeError):  # raised for a name
            numeric = socket.AI_NUMERICHOST
            return list(
                socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=numeric)
            )
        with self._lock:
            # Callers during a lookup wait for the same result: a hanging resolver blocks one
            # thread, however many requests there are.
            if self._lookup is None or not self._lookup.is_alive():
                self._lookup = _Lookup(self.host, self.port)
                self._lookup.start()
            lookup = self._lookup
        lookup.join(_left(deadline))
        if lookup.is_alive():
            raise TimeoutError(f"the name {self.host} was not resolved in time")
        if lookup.error is not None:
            raise OSError(str(lookup.error))
        return lookup.found


class _Lookup(threading.Thread):
    """Resolves the addresses of a name in a thread; a resolver has no deadline."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(name="zeus-lookup", daemon=True)
        self._where = host, port
        self.found: list[_Address] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = list(socket.getaddrinfo(*self._where, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            self.error = error


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)

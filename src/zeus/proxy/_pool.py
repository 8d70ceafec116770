"""Connections to one back end, kept open between requests."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from zeus.errors import BackendError
from zeus.proxy._connection import Connection, Headers, Receiver

_MAX_IDLE_SECONDS = 4.0  # servers close idle connections themselves, often after 5 s
_MAX_IDLE = 256  # connections


@dataclass(frozen=True)
class Timeouts:
    """How long a back end may take.

    Attributes:
        connect: Seconds to connect, including TLS.
        silence: Seconds without a byte of an awaited response; to the first as well as between
            two. Long prompts take minutes on busy servers.
    """

    connect: float = 10.0
    silence: float = 600.0


class Origin:
    """The address of a back end.

    Args:
        url: For instance `http://localhost:8000`; a path is put before that of each request, and
            a trailing `/v1` is left out, since it is part of each request.

    Raises:
        ValueError: If it is no such URL.
    """

    def __init__(self, url: str) -> None:
        rule = f"the URL of a server must be such as http://localhost:8000, but got {url!r}"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(rule) from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(rule)
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "the URL of a server must not contain a password: give an Authorization header"
            )
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.tls = parts.scheme == "https"
        self.path = parts.path.rstrip("/").removesuffix("/v1")
        self.netloc = parts.netloc
        #: For people and messages.
        self.url = f"{parts.scheme}://{parts.netloc}{self.path}"


class Exchange:
    """A request and its response on a connection; also while the connection is being made."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.aborted = False

    def abort(self) -> None:
        """Give the request up; nothing is received any more."""
        self.aborted = True
        if self.connection is not None:
            self.connection.abort()


class Pool:
    """Connections to one origin.

    Args:
        origin: The back end.
        timeouts: How long it may take.
    """

    def __init__(self, origin: Origin, timeouts: Timeouts | None = None) -> None:
        self.origin = origin
        self.timeouts = timeouts or Timeouts()
        self._idle: list[Connection] = []
        self._context = ssl.create_default_context() if origin.tls else None

    async def send(self, parts: Sequence[bytes], receiver: Receiver, exchange: Exchange) -> None:
        """Send a request on a free connection, or a new one.

        Args:
            parts: Head and body, from `request_head`.
            receiver: Receives the response, or the failure.
            exchange: Aborts it.
        """
        if self.send_now(parts, receiver, exchange):
            return
        try:
            connection = await self._connect()
        except BackendError as error:
            if not exchange.aborted:
                receiver.on_failure(error)
            return
        if exchange.aborted:
            connection.abort()
            return
        self._send_on(connection, parts, _Returning(self, receiver, exchange))

    def send_now(self, parts: Sequence[bytes], receiver: Receiver, exchange: Exchange) -> bool:
        """Send a request if there is a free connection; return whether there was. See `send`."""
        connection = self._free()
        if connection is None:
            return False
        self._send_on(connection, parts, _Returning(self, receiver, exchange, parts))
        return True

    @staticmethod
    def _send_on(connection: Connection, parts: Sequence[bytes], returning: _Returning) -> None:
        returning.exchange.connection = returning.connection = connection
        connection.send(parts, returning, bodiless=parts[0].startswith(b"HEAD "))

    def keep(self, connection: Connection) -> None:
        """Keep a connection for the next request, if it can be used."""
        if connection.reusable and not connection.closed and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        """Close the connections that are not in use."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def _free(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()  # the one used last
            if not connection.closed and now - connection.idle_since < _MAX_IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        origin, seconds = self.origin, self.timeouts.connect
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(origin.url, self.timeouts.silence),
                    origin.host,
                    origin.port,
                    ssl=self._context,
                    server_hostname=origin.host if origin.tls else None,
                )
        except TimeoutError:
            raise BackendError(
                f"{origin.url} did not accept a connection in {seconds:g} s"
            ) from None
        except (OSError, UnicodeError) as error:
            number = getattr(error, "errno", None)
            said = os.strerror(number) if isinstance(number, int) and number > 0 else str(error)
            raise BackendError(f"{origin.url} cannot be reached: {said}") from error
        return connection


class _Returning:
    """Returns the connection to the pool; sends again what a connection was closed upon.

    A server may close an idle connection at the moment in which a request is sent on it. Nothing
    was answered then, and the request is sent once more, on a new connection.
    """

    __slots__ = ("_again", "_pool", "_receiver", "connection", "exchange", "on_body")

    def __init__(
        self, pool: Pool, receiver: Receiver, exchange: Exchange, again: Sequence[bytes] = ()
    ) -> None:
        self._pool = pool
        self._receiver = receiver
        self._again = again
        self.exchange = exchange
        self.connection: Connection | None = None
        self.on_body = receiver.on_body  # called for every token

    def on_head(self, status: int, headers: Headers) -> None:
        self._again = ()  # may be megabytes
        self._receiver.on_head(status, headers)

    def on_end(self) -> None:
        connection = self.connection
        self.exchange.connection = None
        if connection is not None:
            self._pool.keep(connection)
        self._receiver.on_end()

    def on_failure(self, error: BackendError) -> None:
        connection, self.exchange.connection = self.connection, None
        if self._again and connection is not None and not connection.answered:
            self._pool.close()  # the others are probably closed as well
            _background(self._pool.send(self._again, self._receiver, self.exchange))
            return
        self._receiver.on_failure(error)


_tasks: set[asyncio.Task[None]] = set()


def _background(coroutine: Coroutine[None, None, None]) -> None:
    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)  # the loop keeps no reference
    task.add_done_callback(_tasks.discard)


def request_head(
    origin: Origin, method: str, target: str, headers: Iterable[tuple[bytes, bytes]], length: int
) -> bytes:
    """Return the head of a request.

    Args:
        origin: The back end.
        method: Its method.
        target: Path and query, starting with a slash.
        headers: All but `host` and `content-length`.
        length: Bytes of the body.
    """
    lines = [
        f"{method} {origin.path}{target} HTTP/1.1\r\nhost: {origin.netloc}\r\n".encode("latin-1")
    ]
    lines += [b"%b: %b\r\n" % header for header in headers]
    if length or method not in ("GET", "HEAD"):
        lines.append(b"content-length: %d\r\n" % length)
    return b"".join((*lines, b"\r\n"))

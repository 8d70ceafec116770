"""One HTTP/1.1 connection of a client to the proxy, as callbacks.

Requests are received whole, within limits; responses are sent piece by piece. A client that reads
slowly holds the back end back rather than filling memory, and one that has gone ends its request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus

import httptools

from zeus.proxy._connection import Headers

MAX_HEAD = 64 * 1024  # bytes of a request line and headers
MAX_BODY = 64 * 1024 * 1024  # bytes; prompts with pictures are long
_MAX_QUEUED = 16  # requests that a client has sent before the response to an earlier one
_MAX_SILENCE = 30.0  # seconds without a byte of a request that has begun
_MIN_RATE = 1000.0  # bytes per second of its body, once it has taken that long
_MAX_STUCK = 120.0  # seconds in which a client reads nothing of a response
_MAX_IDLE = 75.0  # seconds between two requests
_CHECK = 5.0  # seconds between checks of these
_CHUNKED = b"transfer-encoding: chunked\r\n"


class ClientRequest:
    """A request of a client, and the response to it.

    Attributes:
        method: Its method.
        target: Path and query.
        headers: Its headers, names in lower case.
        body: Its body.
        on_gone: Called once if the client has gone before the response was complete.
        on_pause: Called when the client does not keep up with the response.
        on_resume: Called when it does again.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.method = ""
        self.target = ""
        self.headers: Headers = []
        self.body = b""
        self.on_gone: Callable[[], None] = _nothing
        self.on_pause: Callable[[], None] = _nothing
        self.on_resume: Callable[[], None] = _nothing
        self.keep_alive = True
        self.started = False
        #: Whether the response is sent in chunks.
        self.chunked = False
        self._connection = connection

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole response.

        Args:
            status: HTTP status.
            headers: All but those about its length and the connection.
            body: Its body.
        """
        head = self._head(status, headers, b"content-length: %d\r\n" % len(body))
        self._connection.write(head if self.method == "HEAD" else head + body)
        self._connection.finished()

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]], *, chunked: bool) -> None:
        """Send the head of a response whose body follows.

        Args:
            status: HTTP status.
            headers: All that are to be sent, with `content-length` unless it is chunked.
            chunked: Whether the length is not known.
        """
        self.chunked = chunked and self._connection.knows_chunks
        if chunked and not self.chunked:
            self.keep_alive = False  # its end is the end of the connection
        self._connection.write(self._head(status, headers, _CHUNKED if self.chunked else b""))

    def send(self, data: bytes) -> None:
        """Send a piece of the body."""
        if data:
            self._connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    @property
    def framed_sender(self) -> Callable[[bytes], None]:
        """Sends chunks of a response that is sent in chunks, each with its length before it.

        To be called until the client has gone.
        """
        return self._connection.write

    def finish(self) -> None:
        """Complete the response."""
        if self.chunked and self.method != "HEAD":
            self._connection.write(b"0\r\n\r\n")
        self._connection.finished()

    def abort(self) -> None:
        """Close the connection, so that the client sees that the response is not complete."""
        self._connection.abort()

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]], length: bytes) -> bytes:
        self.started = True
        try:
            phrase = HTTPStatus(status).phrase.encode()
        except ValueError:
            phrase = b"Status"
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, phrase)]
        lines += [b"%b: %b\r\n" % header for header in headers]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        return b"".join((*lines, length, b"\r\n"))


class ClientConnection(asyncio.Protocol):
    """A connection of a client.

    Args:
        handle: Called with each request, one after the other.
        open_connections: Set that it is a member of while it is open.
    """

    def __init__(
        self,
        handle: Callable[[ClientRequest], None],
        open_connections: set[ClientConnection],
    ) -> None:
        self._handle = handle
        self._open = open_connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._request: ClientRequest | None = None  # being received
        self._parts: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._in_head = False
        self._began = 0.0  # to be received
        self._queue: deque[ClientRequest] = deque()
        self._current: ClientRequest | None = None  # being answered
        self._last = self._loop.time()
        self._stuck: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.write: Callable[[bytes], None] = _ignore
        #: Whether the client understands chunked bodies (HTTP/1.1).
        self.knows_chunks = True

    # --- called by the loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to receive."""
        self._transport = transport
        self.write = transport.write
        self._open.add(self)
        self._timer = self._loop.call_later(_CHECK, self._check)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Give up the request that is being answered."""
        self._transport, self.write = None, _ignore
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        current, self._current = self._current, None
        self._queue.clear()
        if current is not None:
            current.on_gone()

    def data_received(self, data: bytes) -> None:
        """Parse what was received."""
        self._last = self._loop.time()
        if self._closing:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP/1.1")
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > 2 * MAX_HEAD:
                self._refuse(431, f"headers must have at most {MAX_HEAD} bytes")

    def pause_writing(self) -> None:
        """Hold the response back."""
        self._stuck = self._loop.time()
        if self._current is not None:
            self._current.on_pause()

    def resume_writing(self) -> None:
        """Let the response go on."""
        self._stuck = None
        if self._current is not None:
            self._current.on_resume()

    # --- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._request = ClientRequest(self)
        self._parts, self._size = [], 0
        self._head_size, self._in_head = 0, True
        self._began = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """Note a piece of the target."""
        if self._request is not None:
            self._request.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        if self._in_head and self._request is not None:
            self._size += len(name) + len(value)
            if self._size > MAX_HEAD:
                self._refuse(431, f"headers must have at most {MAX_HEAD} bytes")
                return
            self._request.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note the end of the headers."""
        self._in_head, self._size = False, 0
        request = self._request
        if request is None:
            return
        request.method = self._parser.get_method().decode("latin-1")
        if self._parser.should_upgrade():
            return
        request.keep_alive = self._parser.should_keep_alive()
        self.knows_chunks = self._parser.get_http_version() != "1.0"
        if any(n == b"expect" and v.lower() == b"100-continue" for n, v in request.headers):
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """Note a piece of the body."""
        self._size += len(data)
        if self._size > MAX_BODY:
            self._refuse(413, f"a request must have at most {MAX_BODY} bytes")
        elif self._request is not None:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """Answer the request, after those before it."""
        if self._parser.should_upgrade():
            return  # see `_stay`
        request, self._request = self._request, None
        if request is None:
            return
        request.body, self._parts = b"".join(self._parts), []
        self._queue.append(request)
        if len(self._queue) > _MAX_QUEUED or sum(len(e.body) for e in self._queue) > MAX_BODY:
            self.abort()
        elif self._current is None:
            self._next()

    # --- answering --------------------------------------------------------------------------------

    def finished(self) -> None:
        """Note that the response to the current request is complete."""
        current, self._current = self._current, None
        self._last = self._loop.time()
        if self._transport is None:
            return
        if self._closing or (current is not None and not current.keep_alive):
            self._transport.close()
        elif self._queue:
            self._loop.call_soon(self._next)

    def close_when_idle(self) -> None:
        """Close the connection after the response under way, if there is one."""
        self._closing = True
        if self._current is not None:
            self._current.keep_alive = False
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        if self._queue and self._current is None and self._transport is not None:
            self._current = self._queue.popleft()
            self._handle(self._current)

    def _stay(self, rest: bytes) -> None:
        """Answer a request that offers another protocol in this one, as a server may.

        The parser takes what follows its head for the other protocol, so it is given the head once
        more, without the offer.

        Args:
            rest: What followed the head so far.
        """
        request, self._request = self._request, None
        if request is None or request.method == "CONNECT":
            self._refuse(400, "this is no proxy to other servers")
            return
        lines = [f"{request.method} {request.target} HTTP/1.1\r\n".encode("latin-1")]
        kept = [each for each in request.headers if each[0] != b"upgrade"]
        for name, value in kept:
            words = (
                b",".join(each for each in value.split(b",") if each.strip().lower() != b"upgrade")
                if name == b"connection"
                else value
            )
            lines.append(b"%b: %b\r\n" % (name, words))
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join((*lines, b"\r\n", rest)))

    def _refuse(self, status: int, message: str) -> None:
        """Refuse what cannot be received, unless an earlier request is being answered."""
        self._request = None
        if self._closing:
            return
        self._closing = True
        if self._current is not None:
            self.abort()
            return
        text = f'{{"error": {{"message": "{message}", "type": "invalid_request_error"}}}}'
        refused = ClientRequest(self)
        refused.keep_alive = False
        self._current = refused
        refused.respond(status, [(b"content-type", b"application/json")], text.encode())

    def _check(self) -> None:
        now = self._loop.time()
        stuck = self._stuck is not None and now - self._stuck > _MAX_STUCK
        quiet = now - self._last
        waiting = self._current is None
        if waiting and self._request is not None:
            slow = now - self._began - (0.0 if self._in_head else self._size / _MIN_RATE)
            stuck = stuck or max(quiet, slow) > _MAX_SILENCE
        if stuck:
            self.abort()
        elif waiting and quiet > _MAX_IDLE and self._transport is not None:
            self._transport.close()
        self._timer = self._loop.call_later(_CHECK, self._check)


def _nothing() -> None:
    """Do nothing."""


def _ignore(data: bytes) -> None:
    """Drop what a client that has gone would be sent."""

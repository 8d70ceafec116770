"""One HTTP/1.1 connection to a back end, as callbacks.

Tokens arrive one by one, thousands a second, so what is received goes from the parser (C) straight
to whoever receives it, without a task, a queue or a future in between. Measured with 200 streams,
that is about a third of the processor time of aiohttp's client and a tenth of httpx's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import httptools

from zeus.errors import BackendError

Headers = list[tuple[bytes, bytes]]

MAX_HEAD = 256 * 1024  # bytes of a response's headers
_CHECKS = 8  # for silence, within the time after which a response is given up
_EARLY = 200  # statuses below announce something; the response follows


class Receiver(Protocol):
    """Whoever receives a response. Exactly one of `on_end` and `on_failure` is the last call.

    After a request was aborted, a last piece of the body may still come.
    """

    def on_head(self, status: int, headers: Headers) -> None:
        """Receive the status and the headers."""

    def on_body(self, data: bytes) -> None:
        """Receive some of the body."""

    def on_end(self) -> None:
        """Note that the response is complete."""

    def on_failure(self, error: BackendError) -> None:
        """Note that there will be no more."""


class Connection(asyncio.Protocol):
    """A connection that carries one request after the other.

    Args:
        where: URL of the back end, for errors.
        silence: Seconds without a byte of an awaited response after which it is given up.
    """

    def __init__(self, where: str, silence: float) -> None:
        self._where = where
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self.on_body: Callable[[bytes], None] = _ignore
        #: Called with a whole chunk of the body, with its framing; returns whether it was taken.
        self.on_chunk: Callable[[bytes], bool] = _never
        self._chunk_ended = False  # with the last byte, if that is a line feed
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._head_bytes = 0
        self._has_head = False
        self._sized = False
        self._bodiless = False
        self._heard = False  # since the last check for silence
        self._quiet = 0  # checks without a byte
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        #: Whether another request may follow on this connection.
        self.reusable = True
        #: Whether any byte of the current response has arrived.
        self.answered = False
        #: When the last response was complete, by the loop's clock.
        self.idle_since = 0.0

    @property
    def closed(self) -> bool:
        """Whether it cannot be used any more."""
        return self._transport is None or self._transport.is_closing()

    def send(self, parts: Iterable[bytes], receiver: Receiver, *, bodiless: bool = False) -> None:
        """Send a request.

        Args:
            parts: The head, and the body if there is one.
            receiver: Receives the response.
            bodiless: Whether the response has no body whatever its headers state (HEAD).
        """
        assert self._transport is not None
        assert self._receiver is None
        self._receiver = receiver
        # The parser hands pieces of the body, which may be single tokens, directly to the receiver.
        self.on_body, self.on_chunk = receiver.on_body, _never
        self._parser = httptools.HttpResponseParser(self)
        self._begin_head()
        self.answered, self._bodiless = False, bodiless
        self._heard = True
        if self._timer is None:
            self._timer = self._loop.call_later(self._silence / _CHECKS, self._check_silence)
        self._transport.write(b"".join(parts))

    def pause(self) -> None:
        """Stop receiving, because the receiver cannot keep up."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Receive again."""
        self._heard = True
        if self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; the receiver is not called again. The back end cancels the request."""
        self._receiver = None
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # --- called by the loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Keep the transport."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response where the end of the connection is its end; else report a failure."""
        self._transport = None
        self.reusable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._receiver is None:
            return
        if exc is None and self._has_head and not self._sized:
            self._end()
        else:
            self._fail("closed the connection before its response was complete")

    def data_received(self, data: bytes) -> None:
        """Parse what was received."""
        self._heard = self.answered = True
        if self._receiver is None:  # bytes that answer nothing
            self.abort()
            return
        if self._chunk_ended and self.on_chunk(data):
            return  # the parser expects the begin of a chunk, as before
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("changed the protocol, which was not asked for")
        except httptools.HttpParserError as error:
            self._fail(f"sent what is not HTTP ({error})")
        # What follows a chunk, up to a line feed, would have been the begin of another one.
        self._chunk_ended = self._chunk_ended and data.endswith(b"\r\n")

    # --- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Close the connection if it answers what was not asked: the next answer would be wrong."""
        if self._receiver is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        if self._has_head:
            return  # trailers
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD:
            self._fail(f"sent headers of more than {MAX_HEAD} bytes")
            return
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._sized = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Hand the head on."""
        status = self._parser.get_status_code()
        if status < _EARLY or self._receiver is None:
            return
        self._has_head = True
        self._sized = self._sized or status in (204, 304)
        self._receiver.on_head(status, self._headers)
        if self._bodiless and self._receiver is not None:
            self.reusable = False  # the parser expects a body
            self._end()

    def on_chunk_header(self) -> None:
        """Note the begin of a chunk."""
        self._chunk_ended = False

    def on_chunk_complete(self) -> None:
        """Note the end of a chunk."""
        self._chunk_ended = True

    def on_message_complete(self) -> None:
        """Note the end of a response."""
        self._chunk_ended = False
        if self._receiver is None:
            return
        if not self._has_head:  # the end of an early response
            self._begin_head()
            return
        self.reusable = self.reusable and self._parser.should_keep_alive()
        self._end()

    # --- internal ---------------------------------------------------------------------------------

    def _begin_head(self) -> None:
        self._headers, self._head_bytes = [], 0
        self._has_head = self._sized = False

    def _end(self) -> None:
        receiver, self._receiver = self._receiver, None
        self.idle_since = self._loop.time()
        if not self.reusable and self._transport is not None:
            self._transport.close()
        if receiver is not None:
            receiver.on_end()

    def _fail(self, what: str) -> None:
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            receiver.on_failure(BackendError(f"{self._where} {what}"))

    def _check_silence(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        waiting = self._receiver is not None and self._transport.is_reading()
        self._quiet = 0 if self._heard or not waiting else self._quiet + 1
        self._heard = False
        if self._quiet >= _CHECKS:
            self._fail(f"sent nothing for {self._silence:g} s")
        else:
            self._timer = self._loop.call_later(self._silence / _CHECKS, self._check_silence)


def _ignore(data: bytes) -> None:
    """Drop a body that has no receiver."""


def _never(chunk: bytes) -> bool:  # noqa: ARG001
    """Take no chunk."""
    return False

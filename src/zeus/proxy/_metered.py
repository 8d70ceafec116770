"""A request for text, passed on to a back end, and its answer with its energy."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from enum import Enum
from typing import Any

from zeus.errors import BackendError
from zeus.monitor._requests import Request, RequestEnergy
from zeus.proxy._client import Usage, parsed
from zeus.proxy._connection import Headers
from zeus.proxy._http_server import ClientRequest
from zeus.proxy._pool import Exchange
from zeus.proxy._splicing import with_member
from zeus.proxy._stream import MeteredStream, as_json

MAX_WHOLE = 64 * 1024 * 1024  # bytes of an answer that is not streamed, to which energy is added
ENERGY_HEADER = b"zeus-energy-joules"
_HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip


def passed_on(headers: Headers, *without: bytes) -> Headers:
    """Return the headers that a proxy passes on."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }
    left_out = _HOP_BY_HOP | named | set(without)
    return [header for header in headers if header[0] not in left_out]


def error_body(message: str, kind: str, code: str | None = None) -> bytes:
    """Return an error in the form that clients of OpenAI expect."""
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


class _Mode(Enum):
    RAW = 0  # passed on as it is
    STREAM = 1
    WHOLE = 2
    OVER = 3  # the rest is ignored


class MeteredAnswer:
    """Receives the answer of a back end and passes it on.

    Args:
        client: The client's request.
        request: The request as it is measured; `None` for what is only passed on.
        exchange: Ends the request to the back end.
        ended: Called once, whatever the end.
        usage_asked: Whether the client has asked for usage in its stream.
        choices: Number of answers that it has asked for.
    """

    def __init__(
        self,
        client: ClientRequest,
        request: Request | None,
        exchange: Exchange,
        *,
        ended: Callable[[], None],
        usage_asked: bool = False,
        choices: int = 1,
    ) -> None:
        self._client = client
        self._request = request
        self.exchange = exchange
        self._ended: Callable[[], None] | None = ended
        self._usage_asked = usage_asked
        self._choices = choices
        self._mode = _Mode.RAW
        self._status = 0
        self._headers: Headers = []
        self._stream: MeteredStream | None = None
        self._whole: list[bytes] = []
        self._size = 0
        self._usage: Usage | None = None
        #: Called with the status of an error; returns whether another attempt is made.
        self.refused: Callable[[int], bool] | None = None
        #: Called when the request is being answered.
        self.accepted: Callable[[], None] = _nothing
        self._token: Callable[[int], None] = request.token if request is not None else _uncounted
        client.on_gone = self.give_up
        client.on_pause = self._pause
        client.on_resume = self._resume

    # --- called by the connection to the back end -------------------------------------------------

    def on_head(self, status: int, headers: Headers) -> None:
        """Pass the head on, unless it has to wait for the energy."""
        if status >= 400 and self.refused is not None and self.refused(status):
            self._mode = _Mode.OVER
            return
        self._status = status
        if status == 200:
            self.accepted()
        kind = next((value for name, value in headers if name == b"content-type"), b"")
        encoded = any(n == b"content-encoding" and v.lower() != b"identity" for n, v in headers)
        if self._request is not None and status == 200 and not encoded:
            if kind.lower().startswith(b"text/event-stream"):
                self._mode = _Mode.STREAM
            elif kind.lower().startswith(b"application/json"):
                self._mode = _Mode.WHOLE
                self._headers = headers
                return
        sized = any(name == b"content-length" for name, _ in headers)
        if self._mode is _Mode.STREAM:
            sized = False
            headers = [header for header in headers if header[0] != b"content-length"]
        bodiless = status in (204, 304) or self._client.method == "HEAD"
        self._client.start(status, passed_on(headers), chunked=not sized and not bodiless)
        if self._mode is _Mode.STREAM:
            self._begin_stream()

    def on_body(self, data: bytes) -> None:
        """Pass a piece on."""
        if self._stream is not None:
            self._client.send(self._stream.feed(data))
        elif self._mode is _Mode.RAW:
            self._client.send(data)
        elif self._mode is _Mode.WHOLE:
            self._collect(data)

    def on_end(self) -> None:
        """Complete the answer."""
        if self._mode is _Mode.OVER:
            return
        if self._mode is _Mode.WHOLE:
            self._send_whole()
        else:
            if self._stream is not None:
                self._client.send(self._stream.end())
            self._measure(failed=self._status >= 400)
            self._client.finish()
        self._end()

    def on_failure(self, error: BackendError) -> None:
        """Report the failure to the client, or break off as the back end did."""
        self._measure(failed=True)
        if self._client.started:
            if self._stream is not None:  # what has come is the client's
                self._client.send(self._stream.broken())
            self._client.abort()
        else:
            late = "sent nothing" in str(error) or "did not accept" in str(error)
            self._client.respond(
                504 if late else 502,
                [(b"content-type", b"application/json")],
                error_body(str(error), "backend_error", "backend_unavailable"),
            )
        self._end()

    def withdraw(self) -> Request | None:
        """Leave the client's request to another attempt; return it as it is measured."""
        request, self._request = self._request, None
        self._end()
        return request

    # --- called by the client's connection --------------------------------------------------------

    def give_up(self) -> None:
        """End the request, because its client has gone."""
        self.exchange.abort()
        self._measure(canceled=True)
        self._end()

    def _pause(self) -> None:
        if self.exchange.connection is not None:
            self.exchange.connection.pause()

    def _resume(self) -> None:
        if self.exchange.connection is not None:
            self.exchange.connection.resume()

    # --- a stream ---------------------------------------------------------------------------------

    def _begin_stream(self) -> None:
        self._stream = MeteredStream(
            self._token, self._energy_of, usage_asked=self._usage_asked, choices=self._choices
        )
        if self._client.chunked and self.exchange.connection is not None:
            self.exchange.connection.on_chunk = self._stream.chunk_passer(
                self._client.framed_sender
            )

    def _energy_of(self, stream: MeteredStream) -> dict[str, Any] | None:
        self._usage = stream.usage
        return self._measure(failed=stream.failed)

    # --- a whole answer ---------------------------------------------------------------------------

    def _collect(self, data: bytes) -> None:
        self._whole.append(data)
        self._size += len(data)
        if self._size > MAX_WHOLE:  # pass it on without its energy
            self._mode = _Mode.RAW
            sized = any(name == b"content-length" for name, _ in self._headers)
            self._client.start(self._status, passed_on(self._headers), chunked=not sized)
            self._client.send(b"".join(self._whole))
            self._whole.clear()

    def _send_whole(self) -> None:
        body = b"".join(self._whole)
        data = parsed(body)
        usage = data.get("usage") if data is not None else None
        self._usage = Usage.of(usage)
        energy = self._measure()
        headers = passed_on(self._headers, b"content-length", ENERGY_HEADER)
        if energy is not None:
            if energy["joules"] is not None:
                headers.append((ENERGY_HEADER, f"{energy['joules']:.6g}".encode()))
            if isinstance(usage, dict):
                with contextlib.suppress(ValueError):  # in another encoding than UTF-8
                    body = with_member(body, ("usage", "energy"), as_json(energy))
        self._client.respond(self._status, headers, body)

    # --- the end ----------------------------------------------------------------------------------

    def _measure(self, *, failed: bool = False, canceled: bool = False) -> dict[str, Any] | None:
        """End the measurement; return the energy as it is stated to the client."""
        request, self._request = self._request, None
        if request is None:
            return None
        usage = self._usage or Usage()
        energy = request.end(
            generated_tokens=usage.generated_tokens,
            prompt_tokens=usage.prompt_tokens,
            failed=failed,
            canceled=canceled,
        )
        return stated_energy(energy)

    def _end(self) -> None:
        self._mode, self._stream = _Mode.OVER, None
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()


def _nothing() -> None:
    """Do nothing."""


def _uncounted(count: int) -> None:
    """Count nothing."""


def stated_energy(energy: RequestEnergy) -> dict[str, Any]:
    """Return an energy as it is stated in `usage.energy`."""
    joules = energy.joules
    return {
        "joules": None if joules is None else float(f"{joules:.6g}"),
        "uncertainty": None if joules is None else float(f"{energy.uncertainty:.3g}"),
        "method": energy.method,
    }

"""Limits on the size of request headers, and timeouts for reading requests and sending responses.

A client that sends its request byte by byte, or never reads the response, could hold a connection
for as long as it likes, and many such connections would lock all other clients out.

uvicorn has no such limits, so its protocol class is subclassed. That relies on internals of
uvicorn, which may change: `check_uvicorn` rejects a version that lacks what this module needs,
because a limit that silently stops working is worse than a server that does not start.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import uvicorn

from zeus.errors import ServerError


def _unsupported(missing: str) -> ServerError:
    from zeus._installation import add_extras  # noqa: PLC0415  (for an error only)

    return ServerError(
        f"uvicorn {uvicorn.__version__} lacks what Zeus needs to limit connections (missing: "
        f"{missing}): install a supported version with {add_extras('server')}"
    )


try:
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as error:
    raise _unsupported(error.name or "modules") from error

MAX_HEAD = 64 * 1024  # bytes of a request line and headers
MAX_SECONDS = 30.0  # to receive a whole request, or for the client to read more of the response


class Protocol(HttpToolsProtocol):
    """One connection."""

    _head = 0
    _in_head = False
    _hearing: float | None = None  # start of receiving a request, or of the connection
    _stuck: float | None = None  # since when the client reads nothing of the response
    _look_again: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    # --- called by the connection -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of a new connection."""
        super().connection_made(transport)
        self._hearing = self.loop.time()
        self._look_again = self.loop.call_later(MAX_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer; notify the request that is being answered."""
        if self._look_again is not None:
            self._look_again.cancel()
        if self._answering is not None and not self._answering.response_complete:
            # The base class notifies only the last request, and pipelined ones may precede it.
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data: part of a request, or several (pipelined) requests."""
        # In parts: only the parser knows where headers end and the next request begins.
        while self._in_head and data and not self.transport.is_closing():
            room = MAX_HEAD - self._head
            if room <= 0:
                self.transport.close()
                return
            self._head += len(data[:room])
            super().data_received(data[:room])
            data = data[room:]
        if data and not self.transport.is_closing():
            super().data_received(data)

    def pause_writing(self) -> None:
        """Note that the client has stopped reading."""
        self._stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._stuck = None
        super().resume_writing()

    # --- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start the header count and the timeout of a request."""
        self._head, self._in_head = 0, True
        self._hearing = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header."""
        if self._in_head:  # trailers after the body are ignored
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Note the end of the headers."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note the end of the request."""
        self._hearing = None
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: clients that ask for an upgrade are answered over HTTP/1.1."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    # --- time -------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self.loop.time()
        # While the server has paused reading to answer first, the client is not late.
        hearing = None if self.flow.read_paused else self._hearing
        since = min((each for each in (hearing, self._stuck) if each is not None), default=now)
        if now - since >= MAX_SECONDS:
            self.transport.abort()
            return
        self._look_again = self.loop.call_later(since + MAX_SECONDS - now, self._look)


# --- internals of uvicorn that this relies on -----------------------------------------------------

_ATTRIBUTES = (
    (HttpToolsProtocol, ("loop", "transport", "flow")),
    (FlowControl, ("read_paused",)),
    (RequestResponseCycle, ("response_complete", "disconnected", "message_event")),
)


def check_uvicorn() -> None:
    """Check that uvicorn has the methods that `Protocol` overrides and the attributes it reads.

    Raises:
        ServerError: If not; names those that are missing.
    """
    own = {name for name, each in vars(Protocol).items() if inspect.isfunction(each)} - {"_look"}
    missing = [name for name in sorted(own) if not hasattr(HttpToolsProtocol, name)]
    for kind, names in _ATTRIBUTES:
        methods = (each for each in vars(kind).values() if inspect.isfunction(each))
        used = {*dir(kind), *(name for each in methods for name in each.__code__.co_names)}
        missing += [f"{kind.__name__}.{name}" for name in names if name not in used]
    if missing:
        raise _unsupported(", ".join(missing))

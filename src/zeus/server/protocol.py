"""How requests are heard, and answers taken: in so many bytes, and in so much time.

Whoever opens a connection and says its request byte by byte, or never takes the answer, would hold
the connection for as long as it likes, and with many of them keep everybody else out.

uvicorn offers no such bounds, so its connection is overridden where they belong. That is inside of
uvicorn, which may change: `check_uvicorn` refuses one that is not built as this module needs it,
because a bound that silently holds no more is worse than a server that does not start.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import uvicorn

from zeus.errors import ServerError

_UNKNOWN = (
    f"uvicorn {uvicorn.__version__} is not built as Zeus needs it to bound connections (missing: "
    "%s): install one that it knows with pip install 'zeus-energy[server]'"
)

try:
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as error:
    raise ServerError(_UNKNOWN % (error.name or "modules")) from error

MOST_HEAD = 64 * 1024  # bytes of a request before its body
MOST_SECONDS = 30.0  # until a request is heard to its end, or more of its answer is taken


class Protocol(HttpToolsProtocol):
    """One connection."""

    _head = 0
    _in_head = False
    _hearing: float | None = None  # since when a request, or the first one, is being heard
    _stuck: float | None = None  # since when nothing of an answer is taken
    _look_again: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    # --- called by the connection -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected."""
        super().connection_made(transport)
        self._hearing = self.loop.time()
        self._look_again = self.loop.call_later(MOST_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody has left, or was made to."""
        if self._look_again is not None:
            self._look_again.cancel()
        if self._answering is not None and not self._answering.response_complete:
            # The base class tells only the request that came last, and others may come before it.
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request has come, or of several."""
        # A part at a time: where in it the head ends, and others begin, only the parser knows.
        while self._in_head and data and not self.transport.is_closing():
            room = MOST_HEAD - self._head
            if room <= 0:
                self.transport.close()
                return
            self._head += len(data[:room])
            super().data_received(data[:room])
            data = data[room:]
        if data and not self.transport.is_closing():
            super().data_received(data)

    def pause_writing(self) -> None:
        """The client does not take what it is sent."""
        self._stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._stuck = None
        super().resume_writing()

    # --- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head, self._in_head = 0, True
        self._hearing = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head."""
        if self._in_head:  # what comes after a body is nothing that we know of
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body, too."""
        self._hearing = None
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever would like another protocol is answered in this one; that is no trouble."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    # --- time -------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self.loop.time()
        # While nothing is read, because it is being answered first, the client is not to blame.
        hearing = None if self.flow.read_paused else self._hearing
        since = min((each for each in (hearing, self._stuck) if each is not None), default=now)
        if now - since >= MOST_SECONDS:
            self.transport.abort()
            return
        self._look_again = self.loop.call_later(since + MOST_SECONDS - now, self._look)


# --- what all this rests on -----------------------------------------------------------------------

_ATTRIBUTES = (
    (HttpToolsProtocol, ("loop", "transport", "flow")),
    (FlowControl, ("read_paused",)),
    (RequestResponseCycle, ("response_complete", "disconnected", "message_event")),
)


def check_uvicorn() -> None:
    """Check that uvicorn has the methods that `Protocol` overrides and the attributes it reads.

    Raises:
        ServerError: If not; says which are missing.
    """
    own = {name for name, each in vars(Protocol).items() if inspect.isfunction(each)} - {"_look"}
    missing = [name for name in sorted(own) if not hasattr(HttpToolsProtocol, name)]
    for kind, names in _ATTRIBUTES:
        methods = (each for each in vars(kind).values() if inspect.isfunction(each))
        used = {*dir(kind), *(name for each in methods for name in each.__code__.co_names)}
        missing += [f"{kind.__name__}.{name}" for name in names if name not in used]
    if missing:
        raise ServerError(_UNKNOWN % ", ".join(missing))

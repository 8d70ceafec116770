"""A client of OpenAI-compatible servers: chat and completions, streamed and not.

For code that wants answers as values (the arena, load tests). The proxy, which passes on bytes,
uses the layer below.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from zeus.errors import BackendError
from zeus.proxy._connection import Headers
from zeus.proxy._events import DONE, EventReader
from zeus.proxy._pool import Exchange, Origin, Pool, Timeouts, request_head

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
_MAX_BODY = 64 * 1024 * 1024  # bytes of a response that is not a stream
_MAX_AHEAD = 256  # chunks that nobody has taken yet, beyond which the back end has to wait
_SHOWN = 500  # characters of a back end's error


@dataclass(frozen=True)
class Usage:
    """Tokens of a request, as the server counts them.

    Attributes:
        prompt_tokens: Of the prompt; `None` if not stated.
        generated_tokens: Of the answer; `None` if not stated.
        cached_tokens: Of the prompt, taken from a cache of earlier prompts.
        energy: `usage.energy` of a Zeus proxy (`joules`, `uncertainty`, `method`), if there.
    """

    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cached_tokens: int = 0
    energy: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, usage: object) -> Usage | None:
        """Return what a `usage` object states; `None` if it is no object."""
        if not isinstance(usage, dict):
            return None
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        energy = usage.get("energy")
        return cls(
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            _count(cached) or 0,
            energy if isinstance(energy, dict) else None,
        )


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer.

    Attributes:
        data: The server's JSON object.
        text: Text that it adds to the answer of the first choice; often one token, may be empty.
        usage: The request's tokens; usually in the last chunk only.
        finish_reason: Why the answer ended ("stop", "length"); in the last chunk with text.
        received: When it arrived, by the loop's clock, in seconds.
    """

    data: Mapping[str, Any]
    text: str
    usage: Usage | None
    finish_reason: str | None
    received: float

    @classmethod
    def of(cls, data: Mapping[str, Any], received: float) -> Chunk:
        """Return what a chunk of a server, or its whole answer, contains.

        Args:
            data: The server's JSON object.
            received: When it arrived.
        """
        text, reason = "", None
        choices = data.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(first, dict):
            for part in (first.get("delta"), first.get("message"), first):
                if isinstance(part, dict):
                    found = part.get("content") or part.get("text")
                    text = text or (found if isinstance(found, str) else "")
            found = first.get("finish_reason")
            reason = found if isinstance(found, str) else None
        return cls(data, text, Usage.of(data.get("usage")), reason, received)


class Answer:
    """An answer that is being streamed: iterate over its chunks with `async for`.

    Use it as a context (`async with client.stream(...) as answer`): leaving it early, also by
    cancellation, ends the request on the server.

    Args:
        pool: Connections to the server.
        parts: Head and body of the request.

    Attributes:
        sent: When the request was sent, by the loop's clock, in seconds.
        headers: The response's headers, names in lower case, once there is a chunk.
        usage: The request's tokens, once the server has stated them.
    """

    def __init__(self, pool: Pool, parts: tuple[bytes, bytes]) -> None:
        self.sent = 0.0
        self.headers: dict[str, str] = {}
        self._texts: list[str] = []
        self.usage: Usage | None = None
        self._pool = pool
        self._parts = parts
        self._exchange = Exchange()
        self._events = EventReader()
        self._status = 0
        self._streams = False
        self._whole: list[bytes] = []
        self._size = 0
        self._ready: deque[Chunk] = deque()
        self._paused = False
        self._finished = False
        self._error: BackendError | None = None
        self._wake: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.sent = loop.time()
        self._task = loop.create_task(self._pool.send(self._parts, self, self._exchange))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def close(self) -> None:
        """End the request, if it has not ended."""
        if not self._finished:
            self._exchange.abort()
        if self._task is not None:
            self._task.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._finished:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        chunk = self._ready.popleft()
        if self._paused and len(self._ready) < _MAX_AHEAD // 2:
            self._paused = False
            if self._exchange.connection is not None:
                self._exchange.connection.resume()
        self._texts.append(chunk.text)
        self.usage = chunk.usage or self.usage
        return chunk

    # --- called by the connection -----------------------------------------------------------------

    def on_head(self, status: int, headers: Headers) -> None:
        """Note the `status` and the `headers` of the response."""
        self._status = status
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        kind = self.headers.get("content-type", "")
        self._streams = status < 400 and kind.startswith("text/event-stream")

    def on_body(self, data: bytes) -> None:
        """Cut `data` of a stream into chunks; collect a whole answer."""
        if not self._streams:
            self._size += len(data)
            if self._size > _MAX_BODY:
                self._give_up(BackendError(f"an answer is longer than {_MAX_BODY} bytes"))
            else:
                self._whole.append(data)
            return
        try:
            self._take(self._events.feed(data))
        except BackendError as error:
            self._give_up(error)

    def on_end(self) -> None:
        """Complete the answer."""
        try:
            if self._streams:
                self._take(self._events.rest())
            elif self._status >= 400:
                raise _refused(self._pool.origin, self._status, b"".join(self._whole))
            else:
                self._take([b"".join(self._whole)])
        except BackendError as error:
            self._error = error
        self._finished = True
        self._wake.set()

    def on_failure(self, error: BackendError) -> None:
        """Note that there is no more, and the `error` for whoever iterates."""
        self._error = error
        self._finished = True
        self._wake.set()

    # --- internal ---------------------------------------------------------------------------------

    def _take(self, events: list[bytes]) -> None:
        now = asyncio.get_running_loop().time()
        for event in events:
            if event.strip() == DONE:
                continue
            data = parsed(event)
            if data is None:
                raise BackendError(
                    f"{self._pool.origin.url} sent what is no JSON object: {_shown(event)}"
                )
            if "error" in data and "choices" not in data:
                raise BackendError(f"{self._pool.origin.url} failed: {_message(data, event)}")
            self._ready.append(Chunk.of(data, now))
        if len(self._ready) > _MAX_AHEAD and self._exchange.connection is not None:
            self._paused = True
            self._exchange.connection.pause()
        self._wake.set()

    def _give_up(self, error: BackendError) -> None:
        self._exchange.abort()
        self.on_failure(error)


class OpenAIClient:
    """Sends requests to an OpenAI-compatible server. Use it within one event loop.

    `close` it in the end, or use it as a context (`async with`).

    Args:
        url: For instance `http://localhost:8000`, with or without `/v1`.
        headers: Headers for every request, such as `Authorization`. Never shown in messages.
        timeouts: How long the server may take.

    Raises:
        ValueError: If the URL is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._pool = Pool(Origin(url), timeouts)
        self.url = self._pool.origin.url
        self._headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in (headers or {}).items()
        ]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        await asyncio.sleep(0)  # the loop closes the sockets

    def stream(self, body: Mapping[str, Any], path: str = CHAT) -> Answer:
        """Send a request and return its answer, chunk by chunk.

        Args:
            body: The request, for instance `{"model": ..., "messages": [...]}`. `stream` is set,
                and usage asked for, unless it states otherwise.
            path: Where to.
        """
        asked = {"stream": True, **body}
        if asked["stream"]:
            asked.setdefault("stream_options", {"include_usage": True})
        return self._answer("POST", path, json.dumps(asked).encode())

    async def complete(self, body: Mapping[str, Any], path: str = CHAT) -> Chunk:
        """Send a request and return the whole answer.

        Args:
            body: The request.
            path: Where to.

        Raises:
            BackendError: If the server cannot be reached, refuses, or breaks off.
        """
        asked = {**body, "stream": False}
        return await self._only("POST", path, json.dumps(asked).encode())

    async def models(self) -> list[str]:
        """Return the names of the server's models.

        Raises:
            BackendError: If the server cannot be reached, or has no such list.
        """
        found = (await self._only("GET", MODELS, b"")).data.get("data")
        if not isinstance(found, list):
            raise BackendError(f"{self.url}{MODELS} is not a list of models")
        return [str(each["id"]) for each in found if isinstance(each, dict) and "id" in each]

    def close(self) -> None:
        """Close the connections that are kept for later requests."""
        self._pool.close()

    def _answer(self, method: str, path: str, body: bytes) -> Answer:
        headers = [*self._headers, (b"accept", b"application/json, text/event-stream")]
        if body:
            headers.append((b"content-type", b"application/json"))
        head = request_head(self._pool.origin, method, path, headers, len(body))
        return Answer(self._pool, (head, body))

    async def _only(self, method: str, path: str, body: bytes) -> Chunk:
        async with self._answer(method, path, body) as answer:
            async for chunk in answer:
                return chunk
        raise BackendError(f"{self.url}{path} answered nothing")


def parsed(event: bytes) -> dict[str, Any] | None:
    """Return a JSON object; `None` if it is none."""
    try:
        data = json.loads(event)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _refused(origin: Origin, status: int, body: bytes) -> BackendError:
    said = _message(parsed(body) or {}, body)
    return BackendError(f"{origin.url} answered {status}: {said}", status=status)


def _message(data: Mapping[str, Any], raw: bytes) -> str:
    for name in ("error", "message", "detail"):
        found = data.get(name)
        said = found.get("message") if isinstance(found, dict) else found
        if isinstance(said, str):
            return said[:_SHOWN]
    return _shown(raw)


def _shown(raw: bytes) -> str:
    return raw[:_SHOWN].decode("utf-8", "replace")


def _count(value: object) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if usable and isinstance(value, int) else None

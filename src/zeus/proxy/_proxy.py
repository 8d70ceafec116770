"""The proxy: what happens to each request of a client."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from zeus.monitor._requests import Request, RequestMonitor
from zeus.proxy._backends import Backend, Backends
from zeus.proxy._client import CHAT, COMPLETIONS, MODELS, parsed
from zeus.proxy._http_server import ClientConnection, ClientRequest
from zeus.proxy._metered import MeteredAnswer, error_body, passed_on
from zeus.proxy._metrics import CONTENT_TYPE, metrics_page
from zeus.proxy._pool import Exchange, request_head
from zeus.proxy._splicing import with_member

logger = logging.getLogger(__name__)

METRICS, REQUESTS, HEALTH = "/metrics", "/zeus/requests", "/healthz"
_JSON = (b"content-type", b"application/json")
_CHARACTERS = 4  # per token, for an estimate until the back end states the number


class Proxy:
    """Passes requests on to back ends, and states the energy of their answers.

    Args:
        backends: Servers of language models.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.backends = Backends(backends)
        #: Each monitor of requests with the URLs of its back ends.
        self.monitors: dict[RequestMonitor, list[str]] = {}
        for backend in backends:
            self.monitors.setdefault(backend.requests, []).append(backend.url)
        self.connections: set[ClientConnection] = set()
        self.answering = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def connection(self) -> ClientConnection:
        """Return the protocol of a new connection."""
        return ClientConnection(self._handle, self.connections)

    def close(self) -> None:
        """Close the connections to back ends that are not in use."""
        for backend in self.backends.all:
            backend.pool.close()

    def _handle(self, client: ClientRequest) -> None:
        path = client.path
        own = client.method in ("GET", "HEAD")
        if own and path == METRICS:
            self._run(self._show_metrics(client))
        elif own and path == REQUESTS:
            client.respond(200, [_JSON], json.dumps(self._view()).encode())
        elif own and path == HEALTH:
            client.respond(200, [_JSON], b'{"status": "ok"}')
        elif own and path == MODELS and len(self.backends.all) > 1:
            self._run(self._list_models(client))
        elif not client.target.startswith("/"):
            self._refuse(client, 400, "the target must be a path, but got something else")
        else:
            self._route(client)

    def _view(self) -> dict[str, Any]:
        """Return the rolling view, for each group of GPUs."""
        return {
            "groups": [
                {
                    "backends": urls,
                    "in_flight": monitor.in_flight,
                    "last_minute": monitor.last(60.0).to_dict(),
                    "total": monitor.total().to_dict(),
                    "models": {
                        name: each.total.to_dict() for name, each in monitor.by_model().items()
                    },
                }
                for monitor, urls in self.monitors.items()
            ]
        }

    # --- routing ------------------------------------------------------------------------------

    def _route(self, client: ClientRequest) -> None:
        metered = client.method == "POST" and client.path in (CHAT, COMPLETIONS)
        data = parsed(client.body) if client.body and (metered or self._several) else None
        model = data.get("model") if data is not None else None
        model = model if isinstance(model, str) else None
        if not self.backends.known(model) and self.backends.due():
            self._run(self._route_later(client, data if metered else None, model))
        else:
            self._send(client, data if metered else None, model)

    @property
    def _several(self) -> bool:
        return len(self.backends.all) > 1

    async def _route_later(
        self, client: ClientRequest, data: dict[str, Any] | None, model: str | None
    ) -> None:
        await self.backends.list_models()
        self._send(client, data, model)

    def _send(self, client: ClientRequest, data: dict[str, Any] | None, model: str | None) -> None:
        backend = self.backends.choose(model)
        if backend is None:
            message = f"the model {model!r} does not exist on any back end"
            self._refuse(client, 404, message, "model_not_found")
        elif data is None:
            self._relay(client, backend)
        else:
            self._meter(client, backend, data, model)

    # --- passing on -----------------------------------------------------------------------------

    def _relay(self, client: ClientRequest, backend: Backend) -> None:
        """Pass a request on unchanged."""
        answer = MeteredAnswer(client, None, Exchange(), ended=self._count(backend))
        headers = passed_on(client.headers, b"host", b"content-length", b"expect")
        self._transmit(client, backend, answer, headers, client.body)

    def _meter(
        self,
        client: ClientRequest,
        backend: Backend,
        data: dict[str, Any],
        model: str | None,
        *,
        again: Request | None = None,
    ) -> None:
        """Pass on a request for text, and measure it; or `again`, without asking for usage."""
        streams = data.get("stream") is True
        options = data.get("stream_options")
        asked = streams and isinstance(options, dict) and options.get("include_usage") is True
        body = client.body
        adds = streams and not asked and again is None
        adds = adds and (options is None or isinstance(options, dict))
        if adds:
            try:
                body = _asking_for_usage(client.body, options)
            except ValueError:  # in another encoding than UTF-8
                adds = False
        choices = data.get("n")
        request = again or backend.requests.begin(
            estimated_tokens(data), streams=streams, model=backend.counted_as(model)
        )
        answer = MeteredAnswer(
            client,
            request,
            Exchange(),
            ended=self._count(backend),
            usage_asked=asked,
            choices=choices if isinstance(choices, int) and choices > 0 else 1,
        )
        if model is not None and request.model != model:

            def accepted() -> None:
                backend.has_answered(model)
                request.model = model

            answer.accepted = accepted
        if adds:
            answer.refused = lambda status: (
                status in (400, 422) and self._again(client, backend, data, model, answer)
            )
        without = (b"host", b"content-length", b"expect", b"accept-encoding")
        self._transmit(client, backend, answer, passed_on(client.headers, *without), body)

    def _again(
        self,
        client: ClientRequest,
        backend: Backend,
        data: dict[str, Any],
        model: str | None,
        answer: MeteredAnswer,
    ) -> bool:
        """Repeat a refused request as the client has sent it: it may be the proxy's addition."""
        request = answer.withdraw()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: self._meter(client, backend, data, model, again=request))
        return True

    def _transmit(
        self,
        client: ClientRequest,
        backend: Backend,
        answer: MeteredAnswer,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        origin, exchange = backend.pool.origin, answer.exchange
        head = request_head(origin, client.method, client.target, headers, len(body))
        backend.in_flight += 1
        self.answering += 1
        if not backend.pool.send_now((head, body), answer, exchange):
            self._run(backend.pool.send((head, body), answer, exchange))

    def _count(self, backend: Backend) -> Any:
        def ended() -> None:
            backend.in_flight -= 1
            self.answering -= 1

        return ended

    # --- own answers ------------------------------------------------------------------------------

    async def _show_metrics(self, client: ClientRequest) -> None:
        page = await asyncio.to_thread(metrics_page, self.monitors)  # tokens do not wait for it
        client.respond(200, [(b"content-type", CONTENT_TYPE)], page)

    async def _list_models(self, client: ClientRequest) -> None:
        await self.backends.list_models()
        names = sorted({name for each in self.backends.all for name in each.models or ()})
        listed = [{"id": name, "object": "model", "owned_by": "zeus-proxy"} for name in names]
        body = json.dumps({"object": "list", "data": listed}).encode()
        client.respond(200, [_JSON], body)

    @staticmethod
    def _refuse(client: ClientRequest, status: int, message: str, code: str | None = None) -> None:
        client.respond(status, [_JSON], error_body(message, "invalid_request_error", code))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop keeps no reference
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a request failed unexpectedly: %r", task.exception())


def _asking_for_usage(body: bytes, options: dict[str, Any] | None) -> bytes:
    if options is None:
        return with_member(body, ("stream_options",), b'{"include_usage":true}')
    return with_member(body, ("stream_options", "include_usage"), b"true")


def estimated_tokens(data: dict[str, Any]) -> int:
    """Return about how many tokens a prompt has, by its length."""
    prompt = data.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(each, int) for each in prompt):
        return len(prompt)
    messages = data.get("messages")
    texts: list[Any] = [prompt] if isinstance(prompt, str) else []
    texts += prompt if isinstance(prompt, list) else []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            texts += [part.get("text") for part in content if isinstance(part, dict)]
        else:
            texts.append(content)
    length = sum(len(text) for text in texts if isinstance(text, str))
    return max(length // _CHARACTERS, 1)

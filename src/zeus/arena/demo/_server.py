"""A minimal OpenAI-compatible server of one model, for demonstrations and tests."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from zeus.arena.demo._energy import SimulatedServer
from zeus.arena.demo._words import WordModel, tokens
from zeus.proxy import OpenAIClient

_MAX_TOKENS = 256


class Model(Protocol):
    """A language model."""

    def answer(self, prompt: str, limit: int) -> AsyncIterator[str]:
        """Yield the pieces of an answer."""
        ...


class OwnModel:
    """The model of our own, at the pace of a reader.

    Args:
        model: The model.
        seconds: Seconds per word.
    """

    def __init__(self, model: WordModel, seconds: float) -> None:
        self._model, self._seconds = model, seconds

    async def answer(self, prompt: str, limit: int) -> AsyncIterator[str]:
        """Yield the words of an answer."""
        pieces: Iterator[str] = self._model.generate(prompt, limit, secrets.randbits(32))
        for piece in pieces:
            await asyncio.sleep(self._seconds)
            yield piece


class RelayedModel:
    """A model of another OpenAI-compatible server.

    Args:
        client: Client of that server.
    """

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client

    async def answer(self, prompt: str, limit: int) -> AsyncIterator[str]:
        """Yield the pieces of an answer."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": "any", "messages": messages, "max_tokens": limit}
        async with self._client.stream(body) as stream:
            async for chunk in stream:
                if chunk.text:
                    yield chunk.text


def create_model_app(name: str, model: Model, energy: SimulatedServer) -> Starlette:
    """Return the application of a server.

    Args:
        name: Name of the model.
        model: The model.
        energy: Simulated server that would consume the energy.
    """

    def models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"}]})

    async def chat(request: Request) -> Response:
        try:
            body = await request.json()
            prompt = str(body["messages"][-1]["content"])
            limit = min(int(body.get("max_tokens") or _MAX_TOKENS), _MAX_TOKENS)
        except (ValueError, LookupError, TypeError):
            said = "the body must be a chat completion request"
            return JSONResponse({"error": {"message": said}}, 400)

        def usage(count: int) -> dict[str, Any]:
            return energy.usage(len(tokens(prompt)), count)

        if body.get("stream"):
            events = _events(name, model.answer(prompt, limit), usage)
            return StreamingResponse(events, media_type="text/event-stream")
        pieces = [piece async for piece in model.answer(prompt, limit)]
        message = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {"object": "chat.completion", "model": name, "choices": [choice]}
        return JSONResponse({**whole, "usage": await run_sync(usage, len(pieces))})

    return Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ]
    )


async def _events(
    name: str, pieces: AsyncIterator[str], usage: Callable[[int], dict[str, Any]]
) -> AsyncIterator[str]:
    count = 0
    async for piece in pieces:
        count += 1
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        yield _event(name, [choice])
    yield _event(name, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield _event(name, [], usage=await run_sync(usage, count))
    yield "data: [DONE]\n\n"


def _event(name: str, choices: list[dict[str, Any]], **more: object) -> str:
    data = {"object": "chat.completion.chunk", "model": name, "choices": choices, **more}
    return f"data: {json.dumps(data)}\n\n"

"""Fast path around the web framework for the commands that are marked so.

Nearly all requests are decisions and reports of epochs, and the framework would take half of their
time. Their regular routes do the same: they document them, and answer all requests that are not
plainly valid, so that validation errors are worded in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.errors import ZeusError
from zeus.optimizer.batch_size.api._commands import JobCommand
from zeus.server._command_routes import answered, body_of
from zeus.server._responses import refused
from zeus.server._writer import Writer


class _FastRoute:
    """A route with a fast path; `path` is its label in the metrics."""

    def __init__(self, command: type[JobCommand[Any]]) -> None:
        self.command = command
        self.path, self.method = command.path, command.method
        (self.field,) = command.in_path().values()
        self.pattern = re.compile(re.sub(r"{\w+}", "([^/]+)", command.path))
        body = body_of(command)
        assert body is not None
        self.body = body


class FastPath:
    """ASGI middleware; all other requests are passed to the application.

    Args:
        app: The application.
        writer: Executes commands.
        commands: Those that are marked as `fast` are answered.
    """

    def __init__(
        self, app: ASGIApp, writer: Writer, commands: Iterable[type[JobCommand[Any]]]
    ) -> None:
        self._app = app
        self._writer = writer
        self._routes = [_FastRoute(command) for command in commands if command.fast]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application."""
        if scope["type"] == "http" and scope["method"] in ("POST", "PUT") and _is_json(scope):
            for route in self._routes:
                found = route.pattern.fullmatch(scope["path"])
                if found is not None and route.method == scope["method"]:
                    await self._answer(route, found[1], scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answer(
        self, route: _FastRoute, name: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        messages: list[Message] = []
        try:
            content = await _read(receive, messages)
            body = route.body.model_validate_json(content)
        except (ValidationError, HTTPException):
            await self._app(scope, _again(messages, receive), send)
            return
        scope["route"] = route
        command = route.command(scope=scope["state"]["scope"], **{route.field: name}, **vars(body))
        try:
            answer = await self._writer.do(command)
        except ZeusError as error:
            await refused(error, scope)(scope, receive, send)
            return
        await answered(answer)(scope, receive, send)


def _is_json(scope: Scope) -> bool:
    return any(
        name == b"content-type" and value.split(b";")[0].strip() == b"application/json"
        for name, value in scope["headers"]
    )


async def _read(receive: Receive, messages: list[Message]) -> bytes:
    """Return the whole body; append its ASGI messages to `messages`."""
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            raise HTTPException(400)  # the client has disconnected; the application handles that
        if not message.get("more_body", False):
            return b"".join(each.get("body", b"") for each in messages)


def _again(messages: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that replays these messages first."""
    left = iter(messages)

    async def replayed() -> Message:
        for message in left:
            return message
        return await receive()

    return replayed

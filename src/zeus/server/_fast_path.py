"""Fast path around the web framework for decisions and epoch reports.

Nearly all requests are one of these two, and the framework would take half of their time. Their
regular routes (`routes.py`) do the same: they document them, and answer all requests that are not
plainly valid, so that validation errors are worded in one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.errors import ZeusError
from zeus.optimizer.batch_size.api._commands import Command, Decide, ReportEpoch
from zeus.server._bodies import DecideBody, EpochBody
from zeus.server._responses import Json, refused
from zeus.server._writer import Writer


@dataclass(frozen=True)
class _Lane:
    """A route with a fast path; `path` is its label in the metrics."""

    path: str
    pattern: re.Pattern[str]
    body: type[BaseModel]
    command: Callable[..., Command]
    names: str


_LANES = (
    _Lane(
        "/api/trials/{trial}/epochs",
        re.compile(r"/api/trials/([^/]+)/epochs"),
        EpochBody,
        ReportEpoch,
        "trial",
    ),
    _Lane(
        "/api/jobs/{name}/trials",
        re.compile(r"/api/jobs/([^/]+)/trials"),
        DecideBody,
        Decide,
        "job",
    ),
)


class FastPath:
    """ASGI middleware; all other requests are passed to the application.

    Args:
        app: The application.
        writer: Executes commands.
    """

    def __init__(self, app: ASGIApp, writer: Writer) -> None:
        self._app = app
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application."""
        if scope["type"] == "http" and scope["method"] == "POST" and _is_json(scope):
            for lane in _LANES:
                found = lane.pattern.fullmatch(scope["path"])
                if found is not None:
                    await self._answer(lane, found[1], scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answer(
        self, lane: _Lane, name: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        messages: list[Message] = []
        try:
            content = await _read(receive, messages)
            body = lane.body.model_validate_json(content)
        except (ValidationError, HTTPException):
            await self._app(scope, _again(messages, receive), send)
            return
        scope["route"] = lane
        command = lane.command(**{lane.names: name}, scope=scope["state"]["scope"], **vars(body))
        try:
            answer = await self._writer.do(command)
        except ZeusError as error:
            await refused(error, scope)(scope, receive, send)
            return
        await Json(answer.to_dict())(scope, receive, send)


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

"""Answers as JSON, errors among them; none tells how the server is built inside.

Whoever looks at a page gets errors as pages.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from zeus.errors import (
    DamagedJobError,
    JobConflictError,
    ServerError,
    StorageError,
    TokenError,
    UnknownJobError,
    ZeusError,
)
from zeus.server.pages.faults import fault_page, wants_page

logger = logging.getLogger(__name__)

_MOST_MESSAGE = 2_000  # characters
_STATUS: tuple[tuple[type[ZeusError], int], ...] = (
    (UnknownJobError, 404),
    (JobConflictError, 409),
    (TokenError, 403),
    (StorageError, 503),
    (DamagedJobError, 500),
    (ServerError, 503),
    (ZeusError, 422),
)


class Fault(BaseModel):
    """What was wrong."""

    kind: str
    message: str


class FaultBody(BaseModel):
    """The body of every answer that is not the one asked for."""

    error: Fault


def documented(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Errors for the OpenAPI document, besides those that every request may meet."""
    return {code: {"model": FaultBody, "description": _WORDS[code]} for code in codes}


_WORDS = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    403: "The token is not for this job, or the request is not for this server.",
    404: "There is no such job or trial.",
    409: "It contradicts what is recorded.",
    413: "The request is too large.",
    415: "The body is not JSON.",
    422: "A value breaks a rule.",
    500: "What is recorded of the job is damaged, or the server has failed.",
    503: "The store cannot be used just now, or plans are made again.",
}
ALWAYS = documented(401, 403, 503)
# Errors of routes that otherwise answer with text: the framework would take them for text, too.
_FAULT = {"application/json": {"schema": {"$ref": "#/components/schemas/FaultBody"}}}
ALWAYS_OF_TEXT: dict[int | str, dict[str, Any]] = {
    code: {"description": each["description"], "content": _FAULT} for code, each in ALWAYS.items()
}


class Json(Response):
    """JSON in ASCII, so that any text can be sent back."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def fault(status: int, kind: str, message: str, **headers: str) -> Json:
    """An error."""
    if len(message) > _MOST_MESSAGE:
        message = message[: _MOST_MESSAGE - 1] + "…"
    return Json({"error": {"kind": kind, "message": message}}, status, headers)


def refusal_of(scope: Scope, status: int, kind: str, message: str, **headers: str) -> Response:
    """An error, for whoever asked: a program or a person."""
    if wants_page(scope):
        return fault_page(Request(scope), status, message, headers)
    return fault(status, kind, message, **headers)


def add_handlers(app: FastAPI) -> None:
    """Have the application answer errors this way."""
    app.add_exception_handler(ZeusError, _zeus)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def refused(error: Exception, scope: Scope) -> Response:
    """The answer to who has met one of our errors."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    if isinstance(error, StorageError):
        logger.error("%s", error)
        # Where the store is and what it said concerns only those who run it.
        message = "the store of this server cannot be used just now"
        return refusal_of(scope, status, "StorageError", message, **{"Retry-After": "1"})
    if isinstance(error, DamagedJobError):
        logger.error("%s", error)
    again = {"Retry-After": "1"} if isinstance(error, ServerError) else {}
    return refusal_of(scope, status, type(error).__name__, str(error), **again)


async def _zeus(request: Request, error: Exception) -> Response:
    return refused(error, request.scope)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
        for each in error.errors()[:10]
    ]
    return refusal_of(request.scope, 422, "RequestError", "; ".join(found))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = str(error.detail)
    if error.status_code == 404 and wants_page(request.scope):
        said = "there is nothing at this address"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed(request))
    return refusal_of(request.scope, error.status_code, "HTTPError", said, **headers)


def _allowed(request: Request) -> list[str]:
    """Methods of an address; each of its routes knows only its own."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found.update(getattr(route, "methods", None) or ())
    return sorted(found)


async def _unexpected(request: Request, _error: Exception) -> Response:
    # The traceback goes to the log of the server, by whoever called us.
    said = "the server has failed; its log says why"
    return refusal_of(request.scope, 500, "InternalError", said)

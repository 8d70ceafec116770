"""JSON responses, including errors, none of which exposes internals of the server.

Browsers that ask for a page get errors as pages.
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
    ArenaConflictError,
    DamagedJobError,
    JobConflictError,
    ServerError,
    StorageError,
    TokenError,
    UnknownJobError,
    UnknownRoundError,
    ZeusError,
)
from zeus.server.pages._faults import fault_page, wants_page

logger = logging.getLogger(__name__)

_MAX_MESSAGE = 2_000  # characters
_STATUS: tuple[tuple[type[ZeusError], int], ...] = (
    (UnknownJobError, 404),
    (UnknownRoundError, 404),
    (JobConflictError, 409),
    (ArenaConflictError, 409),
    (TokenError, 403),
    (StorageError, 503),
    (DamagedJobError, 500),
    (ServerError, 503),
    (ZeusError, 422),
)


class Fault(BaseModel):
    """An error: its kind and a message."""

    kind: str
    message: str


class FaultBody(BaseModel):
    """The body of every error response."""

    error: Fault


def documented(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return error responses for the OpenAPI document, besides those of every route."""
    return {code: {"model": FaultBody, "description": _WORDS[code]} for code in codes}


_WORDS = {
    400: "The request is malformed.",
    401: "A valid token is required.",
    403: "The token is not valid for this job, or the request is not for this server.",
    404: "There is no such job or trial.",
    409: "The request conflicts with the recorded state.",
    413: "The request is too large.",
    415: "The body is not JSON.",
    422: "A value is invalid.",
    500: "The record of the job is damaged, or the server has failed.",
    503: "The store is unavailable for now, or plans are being recomputed.",
}
ALWAYS = documented(401, 403, 503)
# For routes that return text: the framework would document their errors as text, too.
_FAULT = {"application/json": {"schema": {"$ref": "#/components/schemas/FaultBody"}}}
ALWAYS_OF_TEXT: dict[int | str, dict[str, Any]] = {
    code: {"description": each["description"], "content": _FAULT} for code, each in ALWAYS.items()
}


class Json(Response):
    """A JSON response in ASCII, so that it can echo any text."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the encoded body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def fault(status: int, kind: str, message: str, **headers: str) -> Json:
    """Return an error as JSON; long messages are truncated."""
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    return Json({"error": {"kind": kind, "message": message}}, status, headers)


def refusal_of(scope: Scope, status: int, kind: str, message: str, **headers: str) -> Response:
    """Return an error as a page for browsers, as JSON for other clients."""
    if wants_page(scope):
        return fault_page(Request(scope), status, message, headers)
    return fault(status, kind, message, **headers)


def add_handlers(app: FastAPI) -> None:
    """Install the exception handlers of the application."""
    app.add_exception_handler(ZeusError, _zeus)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def refused(error: Exception, scope: Scope) -> Response:
    """Return the response to a `ZeusError`."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    if isinstance(error, StorageError):
        logger.error("%s", error)
        # Location and error message of the store are for the operator only.
        message = "the store of this server is unavailable for now"
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
        said = "there is no page at this URL"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed(request))
    return refusal_of(request.scope, error.status_code, "HTTPError", said, **headers)


def _allowed(request: Request) -> list[str]:
    """Return the methods of a URL; each of its routes knows only its own."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found.update(getattr(route, "methods", None) or ())
    return sorted(found)


async def _unexpected(request: Request, _error: Exception) -> Response:
    # The caller of this handler logs the traceback.
    said = "internal server error; see the log of the server"
    return refusal_of(request.scope, 500, "InternalError", said)

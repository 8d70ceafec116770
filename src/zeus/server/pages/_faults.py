"""Error pages, which explain the error without exposing internals of the server."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from zeus.drawing._markup import join, tag
from zeus.server.pages._layout import heading, respond, site_of

_MACHINES = ("/api/", "/metrics", "/healthz", "/openapi.json")
_TITLES = {
    400: "Bad request",
    401: "Token required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    413: "Too large",
    409: "Conflict",
    422: "Invalid request",
    429: "Too many requests",
    503: "Temporarily unavailable",
}


def wants_page(scope: Scope) -> bool:
    """Return whether a request is by a browser that expects a page."""
    if scope["type"] != "http" or scope["path"].startswith(_MACHINES):
        return False
    return any(
        name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"]
    )


def fault_page(
    request: Request, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as a page."""
    title = _TITLES.get(status, "Something went wrong")
    said = message[:1].upper() + message[1:].rstrip(".") + "."
    again = tag("a", "Try again", class_="button", href="") if status >= 500 else None
    home = site_of(request).home
    title_of_home = "All jobs" if home.path == "/jobs" else home.title
    links = join(again, tag("a", title_of_home, class_="button", href=home.path), between=" ")
    content = join(heading(title, said), tag("p", links))
    return respond(request, title, content, status=status, headers=headers)

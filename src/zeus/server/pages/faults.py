"""Errors for people: pages like any other, which say what is wrong and nothing of the inside."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from zeus.server.pages.layout import heading, respond
from zeus.server.pages.markup import join, tag

_MACHINES = ("/api/", "/metrics", "/healthz", "/openapi.json")
_TITLES = {
    400: "This cannot be read",
    401: "A token is needed",
    403: "Not for you",
    404: "Not found",
    405: "Not like this",
    413: "Too large",
    422: "This address is not right",
    503: "Not available just now",
}


def wants_page(scope: Scope) -> bool:
    """Whether a request is by a person, who looks at a page."""
    if scope["type"] != "http" or scope["path"].startswith(_MACHINES):
        return False
    return any(
        name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"]
    )


def fault_page(
    request: Request, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An error as a page."""
    title = _TITLES.get(status, "Something went wrong")
    said = message[:1].upper() + message[1:].rstrip(".") + "."
    again = tag("a", "Try again", class_="button", href="") if status >= 500 else None
    links = join(again, tag("a", "All jobs", class_="button", href="/jobs"), between=" ")
    content = join(heading(title, said), tag("p", links))
    return respond(request, title, content, status=status, headers=headers)

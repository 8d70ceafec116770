"""Style, script and icon of the pages: files of this package, and nothing from anywhere else.

Their addresses name what is in them, so that a browser keeps them and yet never has an old one.
"""

from __future__ import annotations

import hashlib
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing.pages import resource, style

PREFIX = "/assets/"
_TYPES = {
    "zeus.css": "text/css; charset=utf-8",
    "zeus.js": "text/javascript; charset=utf-8",
    "zeus.svg": "image/svg+xml",
}


@cache
def content(name: str) -> bytes:
    """What a file holds."""
    text = resource("zeus.server.pages", "assets", name)
    return (style(text) if name == "zeus.css" else text).encode()


@cache
def address(name: str) -> str:
    """Where a file is served."""
    return f"{PREFIX}{name}?v={hashlib.sha256(content(name)).hexdigest()[:12]}"


def serve(request: Request) -> Response:
    """A file, for anybody: there is nothing secret in it."""
    name = request.path_params["name"]
    if name not in _TYPES:
        return Response("there is no such file\n", 404, media_type="text/plain")
    current = address(name).endswith(f"?{request.url.query}")
    return Response(
        content(name),
        headers={
            "Content-Type": _TYPES[name],
            "Cache-Control": "public, max-age=31536000, immutable" if current else "no-cache",
            "X-Content-Type-Options": "nosniff",
        },
    )

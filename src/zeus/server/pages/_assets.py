"""Style sheet, script and icon of the pages: files of this package, nothing external.

Their URLs contain a hash of the content, so that browsers cache them but never use an old version.
"""

from __future__ import annotations

import hashlib
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._pages import resource, style

PREFIX = "/assets/"
_TYPES = {
    "zeus.css": "text/css; charset=utf-8",
    "zeus.js": "text/javascript; charset=utf-8",
    "arena.css": "text/css; charset=utf-8",
    "arena.js": "text/javascript; charset=utf-8",
    "zeus.svg": "image/svg+xml",
}


@cache
def content(name: str) -> bytes:
    """Return the content of a file."""
    text = resource("zeus.server.pages", "assets", name)
    return (style(text) if name == "zeus.css" else text).encode()


@cache
def address(name: str) -> str:
    """Return the URL of a file."""
    return f"{PREFIX}{name}?v={hashlib.sha256(content(name)).hexdigest()[:12]}"


def serve(request: Request) -> Response:
    """Serve a file to any client: the files hold no secrets."""
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

"""One HTTP application: recurring jobs for clients that are elsewhere.

`create_app` makes it; `serve` runs it until it is told to stop.
"""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import fastapi  # noqa: F401
    import httptools  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtraError("the server", "server") from None

from zeus.server.app import create_app
from zeus.server.serve import listen, serve

__all__ = ["create_app", "listen", "serve"]

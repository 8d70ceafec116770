"""HTTP server for recurring jobs and pipeline jobs of clients in other processes.

`create_app` builds the application; `serve` runs it until SIGTERM or SIGINT.
"""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import fastapi  # noqa: F401
    import httptools  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtraError("the server", "server") from None

from zeus.server._app import create_app
from zeus.server._serve import listen, serve

__all__ = ["create_app", "listen", "serve"]

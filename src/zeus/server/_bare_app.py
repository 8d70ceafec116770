"""An application without routes, as all servers of Zeus begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI

from zeus import __version__


def bare_app(
    title: str, description: str, lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]
) -> FastAPI:
    """Return an application that loads nothing from the internet and exports nothing.

    Args:
        title: Title of its OpenAPI document.
        description: Description there.
        lifespan: Starts and stops what the application needs.
    """
    return FastAPI(
        title=title,
        version=__version__,
        description=description,
        lifespan=lifespan,
        # These pages would load scripts from the internet.
        docs_url=None,
        redoc_url=None,
        # Zeus has its own metrics; this would slow every request and might export bodies.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )


def document_tokens(app: FastAPI, *, required: bool, open_to_all: Iterable[str] = ()) -> None:
    """Document the bearer token in the OpenAPI document.

    Args:
        app: The application, with its routes.
        required: Whether clients need a token.
        open_to_all: Paths whose GET needs none in any case.
    """
    whole = app.openapi

    def openapi() -> dict[str, Any]:
        document = whole()
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer"}
        document["security"] = [{"token": []}] if required else [{}, {"token": []}]
        for path in open_to_all:
            document["paths"][path]["get"]["security"] = []
        return document

    app.openapi = openapi  # type: ignore[method-assign]

"""Builds the ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI

from zeus import __version__
from zeus.optimizer.batch_size.api._commands import COMMANDS
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._overview import Overviews
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.optimizer.pipeline_frequency.storage._service import PLANNING_SECONDS, Pipelines
from zeus.server._auth import AuthMiddleware, TokenCache
from zeus.server._fast_path import FastPath
from zeus.server._health import Health
from zeus.server._local_access import SignInCode
from zeus.server._metrics import Metrics, StateCollector
from zeus.server._pipelines import router as pipeline_router
from zeus.server._planner import Hub, Planner
from zeus.server._responses import add_handlers
from zeus.server._routes import router
from zeus.server._writer import Writer
from zeus.server.pages._routes import routes as pages
from zeus.store import Store, Tokens


def create_app(
    store: Store,
    *,
    require_token: bool = True,
    host: str = "localhost",
    sign_in: SignInCode | None = None,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    planning_seconds: float = PLANNING_SECONDS,
) -> FastAPI:
    """Build the application, which closes the store at shutdown.

    Args:
        store: Store of the jobs.
        require_token: Whether all clients need a token.
        host: Name or address that the server listens on; used if no token is required.
        sign_in: Signs in a browser of the user who started the server on a loopback address.
        now: Clock, in seconds since 1970.
        clock: Monotonic clock in seconds, for leases.
        planning_seconds: Time limit for the plans of one pipeline job.
    """
    jobs = Jobs(store, now, WatchedLeases(clock))
    writer = Writer(jobs)
    metrics = Metrics()
    hub, planner = Hub(), Planner()
    pipelines = Pipelines(
        store,
        now,
        clock=clock,
        plan_soon=planner.soon,
        changed=hub.tell,
        planning_seconds=planning_seconds,
    )
    metrics.registry.register(StateCollector(jobs, writer, pipelines, planner))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        writer.start()
        hub.start()
        planner.start(pipelines)
        yield
        await run_sync(planner.stop)
        await run_sync(writer.stop)
        jobs.close()

    app = FastAPI(
        title="Zeus",
        version=__version__,
        description="Recurring jobs: the batch size of the next training run. Pipeline jobs: the "
        "GPU clock of each computation.",
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
    doorkeeper = TokenCache(Tokens(store), now) if require_token else None
    app.state.jobs, app.state.writer, app.state.metrics = jobs, writer, metrics
    app.state.health = Health(writer)
    app.state.overviews, app.state.doorkeeper, app.state.now = Overviews(store), doorkeeper, now
    app.state.sign_in = sign_in
    app.state.pipelines, app.state.hub, app.state.planner = pipelines, hub, planner
    # Flat rather than nested routers, which cost every request an extra lookup.
    app.router.routes.extend([*router.routes, *pipeline_router.routes, *pages])
    add_handlers(app)
    app.add_middleware(FastPath, writer=writer, commands=COMMANDS)
    # Added last, so that it is the outermost.
    local = sign_in is not None
    app.add_middleware(
        AuthMiddleware, metrics=metrics, doorkeeper=doorkeeper, host=host, local=local
    )
    _document_tokens(app, required=require_token)
    return app


def _document_tokens(app: FastAPI, *, required: bool) -> None:
    """Document the bearer token in the OpenAPI document."""
    whole = app.openapi

    def openapi() -> dict[str, Any]:
        document = whole()
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer"}
        document["security"] = [{"token": []}] if required else [{}, {"token": []}]
        document["paths"]["/healthz"]["get"]["security"] = []  # open to all clients
        return document

    app.openapi = openapi  # type: ignore[method-assign]

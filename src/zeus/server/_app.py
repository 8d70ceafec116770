"""Builds the ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from anyio.to_thread import run_sync
from fastapi import FastAPI

from zeus.optimizer.batch_size.api._commands import COMMANDS
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._overview import Overviews
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.optimizer.pipeline_frequency.storage._service import PLANNING_SECONDS, Pipelines
from zeus.optimizer.serving.storage._service import Services
from zeus.server._auth import AuthMiddleware, TokenCache
from zeus.server._bare_app import bare_app, document_tokens
from zeus.server._fast_path import FastPath
from zeus.server._health import Health
from zeus.server._local_access import SignInCode
from zeus.server._metrics import Metrics, StateCollector
from zeus.server._pipelines import router as pipeline_router
from zeus.server._planner import Hub, Planner
from zeus.server._responses import add_handlers
from zeus.server._routes import router
from zeus.server._services import router as service_router
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
    services = Services(store, now)
    metrics.registry.register(StateCollector(jobs, writer, pipelines, planner, services))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        writer.start()
        hub.start()
        planner.start(pipelines)
        yield
        await run_sync(planner.stop)
        await run_sync(pipelines.close)
        await run_sync(writer.stop)
        jobs.close()

    app = bare_app(
        "Zeus",
        "Recurring jobs: the batch size of the next training run. Pipeline jobs: the "
        "GPU clock of each computation. Services: what their controllers report.",
        lifespan,
    )
    doorkeeper = TokenCache(Tokens(store), now) if require_token else None
    app.state.jobs, app.state.writer, app.state.metrics = jobs, writer, metrics
    app.state.health = Health(writer)
    app.state.overviews, app.state.doorkeeper, app.state.now = Overviews(store), doorkeeper, now
    app.state.sign_in = sign_in
    app.state.services = services
    app.state.pipelines, app.state.hub, app.state.planner = pipelines, hub, planner
    # Flat rather than nested routers, which cost every request an extra lookup.
    routers = (router, pipeline_router, service_router)
    app.router.routes.extend([*(route for each in routers for route in each.routes), *pages])
    add_handlers(app)
    app.add_middleware(FastPath, writer=writer, commands=COMMANDS)
    # Added last, so that it is the outermost.
    local = sign_in is not None
    app.add_middleware(
        AuthMiddleware, metrics=metrics, doorkeeper=doorkeeper, host=host, local=local
    )
    document_tokens(app, required=require_token, open_to_all=["/healthz"])
    return app

"""Routes of recurring jobs, health and metrics."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from zeus.optimizer.batch_size.api._commands import COMMANDS, JobCommand
from zeus.server._command_routes import add_routes
from zeus.server._metrics import Metrics
from zeus.server._responses import ALWAYS, ALWAYS_OF_TEXT, refusal_of

router = APIRouter(responses=ALWAYS)


async def _execute(request: Request, command: JobCommand[Any]) -> Any:
    if command.method == "GET":
        return await run_sync(request.app.state.jobs.do, command)
    return await request.app.state.writer.do(command)


add_routes(router, COMMANDS, _execute)


@router.get("/healthz", response_class=PlainTextResponse, responses=ALWAYS_OF_TEXT)
async def health(request: Request) -> Response:
    """Check that the server can write to its store."""
    trouble = await request.app.state.health.trouble()
    if trouble:
        said = f"the store of this server is not writable: {trouble}"
        return refusal_of(request.scope, 503, "StorageError", said, **{"Retry-After": "2"})
    return PlainTextResponse("ok\n")


@router.get("/metrics", response_class=PlainTextResponse, responses=ALWAYS_OF_TEXT)
def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    found: Metrics = request.app.state.metrics
    return found.response()

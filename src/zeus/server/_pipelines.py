"""Routes of pipeline jobs.

Commands run in the thread pool, except long polling for a plan: it awaits an event, so that
thousands of ranks can wait.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request

from zeus.errors import ServerError, TokenError
from zeus.optimizer.pipeline_frequency.api._commands import (
    COMMANDS,
    Leave,
    PipelineCommand,
    PutMeasurements,
    ShowPlan,
)
from zeus.optimizer.pipeline_frequency.job._messages import Directive
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.server._command_routes import add_routes
from zeus.server._planner import Hub
from zeus.server._responses import ALWAYS

router = APIRouter(responses=ALWAYS)

_LOOK_AGAIN = 5.0  # seconds between checks for changes by another server on the same store
_MADE_AGAIN = 5.0  # seconds to wait for plans that must be recomputed


async def _execute(request: Request, command: PipelineCommand[Any]) -> Any:
    pipelines: Pipelines = request.app.state.pipelines
    if isinstance(command, ShowPlan):
        if request.state.read_only:  # this request counts as a heartbeat of the rank
            raise TokenError("this token is read-only, and only a rank may ask for its plan")
        return await _poll(pipelines, request.app.state.hub, command)
    if isinstance(command, PutMeasurements | Leave):
        # The tenant must be known before the job is planned; tokens for all jobs are one tenant.
        command.permit(command.job)
        request.app.state.planner.owned_by(command.job, command.scope or "")
    return await run_sync(pipelines.do, command)


async def _poll(pipelines: Pipelines, hub: Hub, command: ShowPlan) -> Directive:
    """Return the plan of a rank, as soon as there is another one."""
    command.permit(command.job)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + command.wait
    patience = loop.time() + max(command.wait, _MADE_AGAIN)
    at_once = replace(command, wait=0.0)
    while True:
        with hub.listening(command.job) as news:
            try:
                directive = await run_sync(pipelines.do, at_once)
            except ServerError:
                left = patience - loop.time()
                if left <= 0 or hub.stopping:
                    raise
            else:
                left = deadline - loop.time()
                if directive.version != command.version or left <= 0 or hub.stopping:
                    return directive
            try:
                await asyncio.wait_for(news.wait(), min(left, _LOOK_AGAIN))
            except TimeoutError:
                continue


add_routes(router, COMMANDS, _execute)

"""Routes of services."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request

from zeus.optimizer.serving.api._commands import COMMANDS, ServiceCommand
from zeus.server._command_routes import add_routes
from zeus.server._responses import ALWAYS

router = APIRouter(responses=ALWAYS)


async def _execute(request: Request, command: ServiceCommand[Any]) -> Any:
    return await run_sync(request.app.state.services.do, command)


add_routes(router, COMMANDS, _execute)

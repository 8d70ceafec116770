"""Builds the ASGI application of the arena, with the middleware and error pages of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from anyio.to_thread import run_sync
from fastapi import FastAPI

from zeus.arena._api import router
from zeus.arena._arena import Arena, ArenaSettings
from zeus.arena._contenders import Contender
from zeus.arena._standings_cache import BoardCache
from zeus.arena._storage import ArenaStorage
from zeus.arena.pages._routes import routes
from zeus.server._auth import AuthMiddleware, TokenCache
from zeus.server._bare_app import bare_app, document_tokens
from zeus.server._metrics import Metrics
from zeus.server._responses import add_handlers
from zeus.server.pages._layout import ARENA_SECTIONS, Site
from zeus.store import Store, Tokens

SIMULATED = "Energy on these pages is simulated: no GPU was measured."


class _Hub:
    """Ends the rounds when the server stops, and with them their streams.

    Args:
        arena: The arena.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Note the event loop of the server."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """End all rounds soon; called by a signal handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._closing = asyncio.ensure_future(self._arena.close())


def create_app(
    store: Store,
    contenders: Sequence[Contender],
    *,
    settings: ArenaSettings | None = None,
    require_token: bool = False,
    host: str = "localhost",
    any_host: bool = False,
    warn: Callable[[str], None] = lambda _: None,
    now: Callable[[], float] = time.time,
) -> FastAPI:
    """Build the application, which closes the store at shutdown.

    Args:
        store: Store of rounds and rows.
        contenders: The models.
        settings: Limits of the arena.
        require_token: Whether all clients need a token.
        host: Name or address that the server listens on; used if no token is required.
        any_host: Whether all clients that reach the server may use it without a token.
        warn: Called with what is wrong with a model's server at the start.
        now: Clock, in seconds since 1970.
    """
    storage = ArenaStorage(store)
    arena = Arena(storage, contenders, settings, now)
    hub = _Hub(arena)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        hub.start()
        for trouble in await arena.resolve():
            warn(trouble)
        yield
        await arena.close()
        await run_sync(store.close)

    app = bare_app(
        "Zeus arena",
        "Two anonymous models answer, a person votes, then sees the energy.",
        lifespan,
    )
    doorkeeper = TokenCache(Tokens(store), now) if require_token else None
    app.state.arena, app.state.board = arena, BoardCache(storage)
    app.state.doorkeeper, app.state.sign_in, app.state.now = doorkeeper, None, now
    app.state.hub = hub
    notice = SIMULATED if arena.settings.simulated else ""
    app.state.site = Site(ARENA_SECTIONS, ("arena.css", "arena.js"), notice)
    app.router.routes.extend([*router.routes, *routes])
    add_handlers(app)
    app.add_middleware(
        AuthMiddleware, metrics=Metrics(), doorkeeper=doorkeeper, host=host, any_host=any_host
    )
    document_tokens(app, required=require_token)
    return app

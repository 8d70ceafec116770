"""Runs the proxy on a socket until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Callable

from zeus.proxy._proxy import Proxy

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_CHECK = 0.05  # seconds
_COLLECT_AFTER = 100_000  # objects
_SWITCH_INTERVAL = 0.001  # seconds; the thread that reads sensors must not hold up tokens


def run_proxy(
    proxy: Proxy, listening: socket.socket, ready: Callable[[], None], grace: float
) -> None:
    """Serve until SIGTERM or SIGINT; then let the requests in progress end.

    Args:
        proxy: The proxy.
        listening: Socket that listens.
        ready: Called once requests are accepted.
        grace: Seconds for requests in progress at the end; then they are broken off.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    # What is there now stays, and tokens make no cycles: look for garbage less often.
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    try:
        import uvloop  # noqa: PLC0415  (not on every platform)
    except ImportError:
        asyncio.run(_serve(proxy, listening, ready, grace))
    else:
        uvloop.run(_serve(proxy, listening, ready, grace))


async def _serve(
    proxy: Proxy, listening: socket.socket, ready: Callable[[], None], grace: float
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _STOPPING:
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(proxy.connection, sock=listening)
    listing = asyncio.create_task(proxy.backends.list_models())
    ready()
    try:
        await stop.wait()
        server.close()
        for connection in list(proxy.connections):
            connection.close_when_idle()
        deadline = loop.time() + grace
        while proxy.connections and loop.time() < deadline:
            await asyncio.sleep(_CHECK)
    finally:
        for connection in list(proxy.connections):
            connection.abort()
        proxy.close()
        listing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listing
        await asyncio.sleep(0)  # the loop closes the sockets

"""Runs one model of the demonstration until its standard input is closed.

    python -m zeus.arena.demo NAME

Prints the URL of its server once it takes requests.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import uvicorn

from zeus.arena.demo._models import MODELS
from zeus.server._serve import address, listen


def main(name: str) -> None:
    """Serve the model of this name."""
    app = MODELS[name].build()
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with listen("127.0.0.1", 0) as listening:
        sys.stdout.write(f"{address(listening)}\n")
        sys.stdout.flush()
        asyncio.run(server.serve(sockets=[listening]))


def _end_with_parent() -> None:
    # However the parent ends, its end of the pipe is closed.
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])

"""A line on the terminal that says how far the solver has come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from zeus.cli._terminal import Console
from zeus.optimizer.pipeline_frequency._limit import Limit

_EVERY = 0.2  # seconds
_FIRST = 0.5  # seconds after which it is worth a line
_CLEAR = "\r\x1b[K"


@contextmanager
def showing(limit: Limit, stream: TextIO | None) -> Iterator[None]:
    """Show the progress of a solver run meanwhile, if the stream is a terminal; then clear it."""
    console = Console(stream)
    if not console.can_be_steered:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(limit, console.stream, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(limit: Limit, stream: TextIO, done: threading.Event) -> None:
    shown = ""
    pause = _FIRST
    while not done.wait(pause):
        pause = _EVERY
        if limit.progress and limit.progress != shown:
            shown = limit.progress
            stream.write(f"{_CLEAR}Planning, {shown}")
            stream.flush()
    if shown:
        stream.write(_CLEAR)
        stream.flush()

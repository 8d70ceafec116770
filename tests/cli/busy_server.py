"""A server with metrics for `zeus slo`, whose clients are content."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.cli.support import LONG_ENOUGH
from tests.optimizer.serving.pages import SERVERS, ServerCounts, page


class BusyServer:
    """Answers a few requests before each page; its clients are content."""

    def __init__(self, server: str = "vLLM") -> None:
        self.counts = ServerCounts(running=4)
        self.names = SERVERS[server]
        self.down = threading.Event()
        self.lock = threading.Lock()

    def __call__(self) -> bytes:
        with self.lock:
            self.counts.serve(8)
            return page(self.counts, self.names).encode()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_ENOUGH
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

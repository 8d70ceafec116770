"""Beside the requests: makes plans in a thread, and wakes those who wait for one.

The solver runs for milliseconds to seconds, most of it outside the interpreter, so one thread is
enough and the other requests go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator

from zeus.errors import StorageError, ZeusError
from zeus.optimizer.pipeline_frequency.running.service import Pipelines
from zeus.server.metrics import gauge

logger = logging.getLogger(__name__)

_SWEEP_PERIOD = 5.0  # seconds


class Hub:
    """Who waits for news of which job."""

    def __init__(self) -> None:
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def start(self) -> None:
        """News are told in the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def tell(self, name: str) -> None:
        """There is news of a job; from any thread."""
        self._soon(lambda: self._wake(self._waiting.get(name, set())))

    def stop(self) -> None:
        """Nobody has to wait any more; from any thread, or a signal handler."""
        self.stopping = True
        self._soon(self._wake_all)

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set when there is news of a job from now on."""
        event = asyncio.Event()
        events = self._waiting.setdefault(name, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events and self._waiting.get(name) is events:
                del self._waiting[name]

    def _soon(self, action: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                self._loop.call_soon_threadsafe(action)

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            self._wake(events)

    def _wake(self, events: set[asyncio.Event]) -> None:
        for event in events:
            event.set()


class Planner:
    """The thread that makes plans, from `start` to `stop`.

    Attributes:
        plans: How many were made; `seconds` how long that took.
    """

    def __init__(self) -> None:
        self.plans = 0
        self.seconds = 0.0
        self._pipelines: Pipelines | None = None
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="zeus-planner", daemon=True)

    def start(self, pipelines: Pipelines) -> None:
        """Plan these jobs when asked to."""
        self._pipelines = pipelines
        self._thread.start()

    def soon(self, name: str) -> None:
        """Have a job planned."""
        self._queue.put(name)

    def stop(self) -> None:
        """End after what is being planned."""
        self._queue.put(None)
        self._thread.join()

    def lines(self) -> list[str]:
        """Counters for Prometheus."""
        assert self._pipelines is not None
        jobs, ranks = self._pipelines.numbers()
        return [
            *gauge("zeus_pipelines", jobs, "Pipeline jobs."),
            *gauge("zeus_pipeline_ranks_heard", ranks, "Ranks of them that are alive."),
            *gauge(
                "zeus_pipeline_plans_total", self.plans, "Times that plans were made.", "counter"
            ),
            *gauge(
                "zeus_pipeline_planning_seconds_total",
                self.seconds,
                "Seconds that took.",
                "counter",
            ),
        ]

    def _run(self) -> None:
        assert self._pipelines is not None
        with contextlib.suppress(ZeusError):
            # After a restart: what was planned before is planned again before anybody asks.
            for known in self._pipelines.waiting_for_plan():
                self._plan(known)
        while True:
            try:
                name = self._queue.get(timeout=_SWEEP_PERIOD)
            except queue.Empty:
                self._sweep()
                continue
            if name is None:
                return
            self._plan(name)

    def _plan(self, name: str) -> None:
        assert self._pipelines is not None
        began = time.perf_counter()
        try:
            self._pipelines.solve(name)
            self._pipelines.planned(name)
        except ZeusError as error:
            logger.warning("pipeline job %r cannot be planned just now: %s", name, error)
        except Exception:
            logger.exception("planning pipeline job %r fails", name)
        self.plans += 1
        self.seconds += time.perf_counter() - began

    def _sweep(self) -> None:
        assert self._pipelines is not None
        try:
            self._pipelines.sweep()
        except StorageError as error:
            logger.warning("ranks that are gone cannot be looked for: %s", error)
        except Exception:  # it goes on with the rest
            logger.exception("looking for ranks that are gone fails")

"""Computes plans in two background threads, and wakes requests that wait for one.

The solver runs for milliseconds to seconds, mostly without the GIL, so requests are served
meanwhile. One thread takes any job, the other only small ones, so that a large pipeline does not
delay them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from zeus.errors import StorageError, ZeusError
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.server._planning_queue import PlanningQueue

logger = logging.getLogger(__name__)

_SWEEP_PERIOD = 5.0  # seconds
_PATIENCE = 5.0  # seconds to wait for each thread at shutdown
_MAX_TENANTS = 10_000


class Hub:
    """Notifies waiting requests of changes of their job."""

    def __init__(self) -> None:
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def start(self) -> None:
        """Deliver notifications in the running event loop."""
        self._loop = asyncio.get_running_loop()

    def tell(self, name: str) -> None:
        """Notify the waiters of a job. Thread-safe."""
        self._soon(lambda: self._wake(self._waiting.get(name, set())))

    def stop(self) -> None:
        """Wake all waiters for shutdown. Safe in any thread or signal handler."""
        self.stopping = True
        self._soon(self._wake_all)

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set at the next change of a job."""
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
            with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits any more
                self._loop.call_soon_threadsafe(action)

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            self._wake(events)

    def _wake(self, events: set[asyncio.Event]) -> None:
        for event in events:
            event.set()


class Planner:
    """The threads that compute plans, from `start` to `stop`.

    Attributes:
        plans: Number of planning runs.
        seconds: Their total duration.
    """

    def __init__(self) -> None:
        self.plans = 0
        self.seconds = 0.0
        self._pipelines: Pipelines | None = None
        self._queue = PlanningQueue(time.monotonic)
        self._lock = threading.Lock()
        self._tenants: dict[str, str] = {}
        self._limits: set[Limit] = set()
        self._stopping = False
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("zeus-planner", self._run), ("zeus-planner-small", self._run_small))
        ]

    def start(self, pipelines: Pipelines) -> None:
        """Start the threads; `soon` then plans these jobs."""
        self._pipelines = pipelines
        for thread in self._threads:
            thread.start()

    def owned_by(self, name: str, tenant: str) -> None:
        """Record the tenant of a job: tenants take turns at planning."""
        if len(self._tenants) >= _MAX_TENANTS:
            self._tenants.clear()  # each job is its own tenant until this is called again
        self._tenants[name] = tenant

    def soon(self, name: str) -> None:
        """Enqueue a job for planning; jobs that are quick to plan come first."""
        assert self._pipelines is not None
        # While its tenant is unknown, as after a restart, a job is its own tenant.
        self._queue.put(name, self._tenants.get(name, name), self._pipelines.work(name))

    def stop(self) -> None:
        """Cancel planning: the jobs are planned again after the next start."""
        with self._lock:
            self._stopping = True
            for limit in self._limits:
                limit.cancel()
        self._queue.close()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _run(self) -> None:
        assert self._pipelines is not None
        with contextlib.suppress(ZeusError):
            # After a restart, jobs that had plans are planned again before a rank asks.
            for known in self._pipelines.waiting_for_plan():
                with contextlib.suppress(ZeusError):  # deleted meanwhile
                    self.soon(known)
        while (name := self._queue.take()) is not None:
            self._plan(name)

    def _run_small(self) -> None:
        swept = time.monotonic()
        while True:
            left = swept + _SWEEP_PERIOD - time.monotonic()
            if left <= 0:
                self._sweep()
                swept = time.monotonic()
                continue
            try:
                name = self._queue.take(small=True, timeout=left)
            except TimeoutError:
                continue
            if name is None:
                return
            self._plan(name)

    def _plan(self, name: str) -> None:
        assert self._pipelines is not None
        began = time.perf_counter()
        limit = self._pipelines.limit()
        with self._lock:
            self._limits.add(limit)
            if self._stopping:
                limit.cancel()
        again = False
        try:
            again = self._pipelines.make(name, limit)
        except SolvingCancelledError:
            pass
        except ZeusError as error:
            if not self._stopping:  # else the store may be closed already
                logger.warning("cannot plan pipeline job %r for now: %s", name, error)
        except Exception:
            if not self._stopping:
                logger.exception("planning pipeline job %r failed", name)
        with self._lock:
            self._limits.discard(limit)
            self.plans += 1
            self.seconds += time.perf_counter() - began
        self._queue.done(name)
        if again:
            with contextlib.suppress(ZeusError):
                self.soon(name)

    def _sweep(self) -> None:
        assert self._pipelines is not None
        try:
            self._pipelines.sweep()
        except StorageError as error:
            logger.warning("cannot check for lost ranks: %s", error)
        except Exception:  # the other jobs go on
            logger.exception("checking for lost ranks failed")

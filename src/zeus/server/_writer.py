"""Group commit: many requests share one transaction.

One thread executes all commands. Those that arrive while it writes form its next batch. So no
request waits longer than for two transactions, and the busier the server is, the less each request
costs. A response is sent only after the transaction is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from typing import Any

from zeus.errors import StorageError
from zeus.optimizer.batch_size.api._commands import JobCommand
from zeus.optimizer.batch_size.storage._service import Jobs

logger = logging.getLogger(__name__)

_MAX_AT_ONCE = 128
_SWEEP_PERIOD = 10.0  # seconds

# An entry without a command is a rehearsal.
_Pending = tuple[JobCommand[Any] | None, "asyncio.Future[Any]"]


class Writer:
    """The thread that executes commands, from `start` to `stop`.

    Attributes:
        commands: Number of executed commands.
        batches: Number of transactions that committed them.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="zeus-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.commands = 0
        self.batches = 0

    def start(self) -> None:
        """Start the thread; results are delivered in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Execute the queued commands, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    async def do(self, command: JobCommand[Any]) -> Any:
        """Execute a command and return its result.

        Raises:
            ZeusError: If the command fails.
        """
        return await self._ask(command)

    async def rehearse(self) -> None:
        """Commit a write that leaves no trace, in the same way as a command.

        Raises:
            StorageError: If the store is not writable.
        """
        await self._ask(None)

    async def _ask(self, command: JobCommand[Any] | None) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((command, future))
        return await future

    def _run(self) -> None:
        more, due = True, time.monotonic() + _SWEEP_PERIOD
        while more:
            pending, more = self._next(due - time.monotonic())
            # In a separate transaction, so that its failure affects no command.
            rehearsals = [future for command, future in pending if command is None]
            commands = [(each, future) for each, future in pending if each is not None]
            if commands:
                self._carry_out(commands)
            if rehearsals:
                self._rehearse(rehearsals)
            if more and time.monotonic() >= due:
                self._sweep()
                due = time.monotonic() + _SWEEP_PERIOD

    def _next(self, patience: float) -> tuple[list[_Pending], bool]:
        """Return the queued entries, waiting up to `patience` s; and whether to go on."""
        pending: list[_Pending] = []
        with contextlib.suppress(queue.Empty):
            entry = self._queue.get(timeout=max(patience, 0.0))
            while entry is not None:
                pending.append(entry)
                if len(pending) == _MAX_AT_ONCE:
                    return pending, True
                entry = self._queue.get_nowait()
            return pending, False
        return pending, True

    def _rehearse(self, futures: list[asyncio.Future[Any]]) -> None:
        answer: Exception | None = None
        try:
            self._jobs.rehearse()
        except Exception as error:
            answer = error
        self._answer([(future, answer) for future in futures])

    def _carry_out(self, pending: list[tuple[JobCommand[Any], asyncio.Future[Any]]]) -> None:
        try:
            answers = self._jobs.execute([command for command, _ in pending])
        except Exception as error:
            if not isinstance(error, StorageError):
                logger.exception("executing a batch of requests failed")
            answers = [error] * len(pending)
        self.commands += len(pending)
        self.batches += 1
        self._answer([(future, a) for (_, future), a in zip(pending, answers, strict=True)])

    def _answer(self, results: list[tuple[asyncio.Future[Any], Any]]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits any more
            self._loop.call_soon_threadsafe(_give, results)

    def _sweep(self) -> None:
        try:
            self._jobs.sweep()
        except StorageError as error:
            logger.warning("cannot check for trials whose lease has expired: %s", error)
        except Exception:  # in one job; the others go on
            logger.exception("ending trials whose lease has expired failed")


def _give(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in results:
        if future.done():  # the client has disconnected
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

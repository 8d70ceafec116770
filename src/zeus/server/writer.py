"""Lets many requests share one transaction.

Requests that change something are handed to one thread. While it carries some out, others come in;
they are its next batch. So nobody waits longer than for two transactions, and the busier the server
is, the less each request costs. An answer is given only after the transaction is on disk.
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
from zeus.optimizer.batch_size.commands import Command
from zeus.optimizer.batch_size.service import Jobs

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 128
_SWEEP_PERIOD = 10.0  # seconds

# Without a command it is a rehearsal.
_Pending = tuple[Command | None, "asyncio.Future[Any]"]


class Writer:
    """The thread, from `start` to `stop`.

    Attributes:
        commands: How many were carried out; `batches` in how many transactions.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="zeus-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.commands = 0
        self.batches = 0

    def start(self) -> None:
        """Start it; answers are given in the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Carry out what is waiting, and end."""
        self._queue.put(None)
        self._thread.join()

    async def do(self, command: Command) -> Any:
        """Carry out a command; its answer.

        Raises:
            ZeusError: Whatever it is answered with.
        """
        return await self._ask(command)

    async def rehearse(self) -> None:
        """Write something that leaves no trace, as the next command would be written.

        Raises:
            StorageError: If nothing can be written.
        """
        await self._ask(None)

    async def _ask(self, command: Command | None) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((command, future))
        return await future

    def _run(self) -> None:
        more, due = True, time.monotonic() + _SWEEP_PERIOD
        while more:
            pending, more = self._next(due - time.monotonic())
            # In a transaction of its own: what it brings to light concerns nobody else.
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
        """What is waiting, or comes within so many seconds; and whether to go on."""
        pending: list[_Pending] = []
        with contextlib.suppress(queue.Empty):
            entry = self._queue.get(timeout=max(patience, 0.0))
            while entry is not None:
                pending.append(entry)
                if len(pending) == _MOST_AT_ONCE:
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

    def _carry_out(self, pending: list[tuple[Command, asyncio.Future[Any]]]) -> None:
        try:
            answers = self._jobs.execute([command for command, _ in pending])
        except Exception as error:
            if not isinstance(error, StorageError):
                logger.exception("a request fails")
            answers = [error] * len(pending)
        self.commands += len(pending)
        self.batches += 1
        self._answer([(future, a) for (_, future), a in zip(pending, answers, strict=True)])

    def _answer(self, results: list[tuple[asyncio.Future[Any], Any]]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            self._loop.call_soon_threadsafe(_give, results)

    def _sweep(self) -> None:
        try:
            self._jobs.sweep()
        except StorageError as error:
            logger.warning("trials whose lease has passed cannot be looked for: %s", error)
        except Exception:  # of one job; the others go on
            logger.exception("ending trials whose lease has passed fails")


def _give(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in results:
        if future.done():  # whoever asked has left
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

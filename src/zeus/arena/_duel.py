"""A running round: two models answer, and readers get both answers in step.

The round runs whether anyone reads or not; a reader whose connection broke gets everything from the
beginning. Without readers for a while it is abandoned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from zeus.arena._contenders import Contender
from zeus.arena._events import Answer, Answered, Ended
from zeus.arena._pacing import TICK, Pacer, frame
from zeus.errors import BackendError, StorageError

logger = logging.getLogger(__name__)

ANSWERED, ENDED = "answered", "ended"


class Duel:
    """Two models that answer the same prompt.

    Args:
        prompt: The prompt.
        contenders: Models on the left and on the right.
        record: Stores how it ended.
        max_tokens: Length limit of an answer.
        answer_seconds: Time limit for an answer.
        patience: Seconds without a reader after which it is abandoned.
        simulated: Whether energies are those of simulated GPUs.
    """

    def __init__(
        self,
        prompt: str,
        contenders: tuple[Contender, Contender],
        record: Callable[[Answered | Ended], Awaitable[None]],
        *,
        max_tokens: int,
        answer_seconds: float,
        patience: float,
        simulated: bool = False,
    ) -> None:
        self._prompt = prompt
        self._contenders = contenders
        self._record = record
        self._max_tokens = max_tokens
        self._answer_seconds = answer_seconds
        self._patience = patience
        self._simulated = simulated
        self._pacer = Pacer()
        self._frames: list[tuple[str, str]] = []
        self._state = ""
        self._readers = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether it has ended, one way or another."""
        return bool(self._state)

    def start(self) -> asyncio.Task[None]:
        """Start it."""
        self._task = asyncio.create_task(self._run())
        return self._task

    async def stop(self) -> None:
        """End it now, if it has not ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def read(self) -> AsyncIterator[bytes]:
        """Yield all frames from the beginning, and each new one when it is made."""
        self._readers += 1
        sent = 0
        try:
            while True:
                while sent < len(self._frames):
                    yield frame(*self._frames[sent])
                    sent += 1
                if self._state:
                    yield frame("", "", self._state)
                    return
                changed = self._changed
                await changed.wait()
        finally:
            self._readers -= 1

    # --- internal ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        answers = [asyncio.create_task(self._ask(side)) for side in (0, 1)]
        end: Answered | Ended = Ended("stopped with the server")
        try:
            end = await self._show(answers)
        finally:
            for task in answers:
                task.cancel()
            await asyncio.gather(*answers, return_exceptions=True)
            try:
                await asyncio.shield(self._record(end))
                self._finish(ANSWERED if isinstance(end, Answered) else ENDED)
            except StorageError as error:
                logger.error("%s", error)
                self._finish(ENDED)

    async def _show(self, answers: list[asyncio.Task[Answer]]) -> Answered | Ended:
        """Make a frame each tick until both answers are shown, or one fails."""
        loop = asyncio.get_running_loop()
        began = alone_since = loop.time()
        number = 0
        while True:
            number += 1
            # Ticks are at fixed times, however long anything took.
            await asyncio.sleep(max(began + number * TICK - loop.time(), 0.0))
            for contender, task in zip(self._contenders, answers, strict=True):
                if task.done() and task.exception() is not None:
                    return self._failure(contender, task.exception())
            if self._pacer.finished and all(task.done() for task in answers):
                return Answered(answers[0].result(), answers[1].result())
            self._frames.append(self._pacer.tick())
            self._notify()
            alone_since = loop.time() if self._readers else alone_since
            if loop.time() - alone_since > self._patience:
                return Ended("abandoned: no reader")

    async def _ask(self, side: int) -> Answer:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(
            self._contenders[side].answer(
                self._prompt,
                lambda text: self._pacer.feed(side, text, loop.time()),
                complete=lambda: self._pacer.end(side, loop.time()),
                max_tokens=self._max_tokens,
                simulated=self._simulated,
            ),
            self._answer_seconds,
        )

    def _failure(self, contender: Contender, error: BaseException | None) -> Ended:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, TimeoutError):
            reason = f"no complete answer within {self._answer_seconds:g} s"
        elif isinstance(error, BackendError):
            reason = str(error)
        logger.warning("the model %s failed: %s", contender.name, reason)
        return Ended(reason[:500], contender.name)

    def _finish(self, state: str) -> None:
        self._state = state
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

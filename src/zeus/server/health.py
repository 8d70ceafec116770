"""Whether the server can write, found out by writing.

Reading says nothing of a full disk, and neither does a transaction that is undone. So the thread
that writes carries out a rehearsal when somebody asks, which is committed and leaves no trace.
Everybody may ask, as often as they like: one rehearsal answers all who ask within two seconds.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic as clock

from zeus.errors import StorageError
from zeus.optimizer.batch_size.store.engine import reason
from zeus.server.writer import Writer

logger = logging.getLogger(__name__)

_BELIEVED = 2.0  # seconds
MAX_SECONDS = 5.0  # for a rehearsal; beyond, nothing can be written


class Health:
    """Knows whether the server can write. Used in the event loop only.

    Args:
        writer: The thread that writes.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rehearsal: asyncio.Task[None] | None = None
        self._began = 0.0
        self._believed_until = 0.0
        self._trouble = ""

    async def trouble(self) -> str:
        """Why nothing can be written, in words; empty if it can."""
        if self._rehearsal is None and clock() >= self._believed_until:
            self._began = clock()
            self._rehearsal = asyncio.create_task(self._rehearse())
        if self._rehearsal is not None:
            left = self._began + MAX_SECONDS - clock()
            # It is left to go on: another one would hang as well.
            await asyncio.wait({self._rehearsal}, timeout=max(left, 0.0))
        if self._rehearsal is not None:
            self._note(f"a write has not ended after {MAX_SECONDS:g} s")
        return self._trouble

    async def _rehearse(self) -> None:
        try:
            await self._writer.rehearse()
            self._note("")
        except StorageError as error:
            self._note(reason(error), error)
        except Exception as error:
            logger.debug("why", exc_info=True)
            self._note("the server fails; its log says why", error)
        finally:
            self._believed_until = clock() + _BELIEVED
            self._rehearsal = None

    def _note(self, trouble: str, error: Exception | None = None) -> None:
        before, self._trouble = self._trouble, trouble
        if trouble and trouble != before:
            logger.error("nothing can be written: %s", trouble if error is None else error)
        elif before and not trouble:
            logger.warning("the store can be written to again")

"""Health check: tests whether the server can write, by writing.

A read does not detect a full disk, and neither does a transaction that is rolled back. So a health
check makes the writer thread commit a rehearsal, which leaves no trace. Any client may check, as
often as it likes: one rehearsal answers all requests within two seconds.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic as clock

from zeus.errors import StorageError
from zeus.server._writer import Writer
from zeus.store._engine import reason

logger = logging.getLogger(__name__)

_BELIEVED = 2.0  # seconds for which a result is cached
MAX_SECONDS = 5.0  # for a rehearsal; a longer one counts as a failure


class Health:
    """Checks whether the server can write. To be used in the event loop only.

    Args:
        writer: The writer thread.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rehearsal: asyncio.Task[None] | None = None
        self._began = 0.0
        self._believed_until = 0.0
        self._trouble = ""

    async def trouble(self) -> str:
        """Return why the store is not writable; empty if it is."""
        if self._rehearsal is None and clock() >= self._believed_until:
            self._began = clock()
            self._rehearsal = asyncio.create_task(self._rehearse())
        if self._rehearsal is not None:
            left = self._began + MAX_SECONDS - clock()
            # It keeps running: another one would hang as well.
            await asyncio.wait({self._rehearsal}, timeout=max(left, 0.0))
        if self._rehearsal is not None:
            self._note(f"a write has not finished after {MAX_SECONDS:g} s")
        return self._trouble

    async def _rehearse(self) -> None:
        try:
            await self._writer.rehearse()
            self._note("")
        except StorageError as error:
            self._note(reason(error), error)
        except Exception as error:
            logger.debug("the rehearsal failed", exc_info=True)
            self._note("internal server error; see the log of the server", error)
        finally:
            self._believed_until = clock() + _BELIEVED
            self._rehearsal = None

    def _note(self, trouble: str, error: Exception | None = None) -> None:
        before, self._trouble = self._trouble, trouble
        if trouble and trouble != before:
            logger.error("the store is not writable: %s", trouble if error is None else error)
        elif before and not trouble:
            logger.warning("the store is writable again")

"""Finds out quickly whether all processes of a job take part.

Collectives wait for every process, for minutes, and one that never comes would stall the training.
So each announces itself in the key-value store of `torch.distributed` when its optimizer is
created, which needs no other process; and only if all have done so do they wait for each other.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import Any

from zeus.errors import RanksError
from zeus.optimizer.training._ranks import Ranks, job_ranks, torch_distributed

#: Seconds to wait for processes that have not announced themselves.
PRESENCE_TIMEOUT = 15.0

_LONGEST_PAUSE = 0.25  # seconds between checks of the store
_MAX_NAMED = 8  # missing ranks in a message

_meetings: Counter[str] = Counter()  # of each kind, in this process


class Rendezvous:
    """Where processes meet that all have an optimizer, or another part of Zeus.

    All of them decide the same: to go on together, or that some are missing.

    Args:
        part: What each process must have, as in "every process needs its own ...".
        timeout: Seconds to wait for processes that have announced themselves.
        presence_timeout: Seconds to wait for all of them to do so.
    """

    def __init__(
        self, part: str, timeout: float, presence_timeout: float = PRESENCE_TIMEOUT
    ) -> None:
        self._part = part
        self._timeout = timeout
        self._presence_timeout = min(presence_timeout, timeout)
        self._store: Any = None
        self.announce()

    def announce(self) -> None:
        """Announce this process, as soon as `torch.distributed` is initialized."""
        distributed = None if self._store is not None else torch_distributed()
        store = None if distributed is None else _store_of(distributed)
        if distributed is None or store is None:
            return
        self._size = distributed.get_world_size()
        with contextlib.suppress(RuntimeError):  # `join` fails, too, and says why
            self._key = self._next_key()
            while store.check([f"{self._key}/decision"]):  # the others have met without this one
                self._key = self._next_key()
            store.set(f"{self._key}/{distributed.get_rank()}", "announced")
            self._store = store
            if store.add(f"{self._key}/announced", 1) == self._size:
                self._decide([])

    def _next_key(self) -> str:
        _meetings[self._part] += 1
        return f"zeus/{self._part}/{_meetings[self._part]}"

    def join(self) -> Ranks:
        """Return the processes of the job, once all of them have joined.

        Raises:
            RanksError: If one has not announced itself, or not joined, in time.
        """
        self.announce()
        if self._store is not None:
            try:
                missing = self._missing()
            except RuntimeError as error:
                raise RanksError(f"the store of torch.distributed failed: {error}") from error
            if missing:
                raise RanksError(
                    f"every process of the job needs its own {self._part}, but "
                    f"{_named(missing)} of {self._size} had none after "
                    f"{self._presence_timeout:g} s"
                )
        return job_ranks(self._timeout)

    def _missing(self) -> list[int]:
        """Return the missing ranks, as all processes have decided."""
        decision = f"{self._key}/decision"
        deadline = time.monotonic() + self._presence_timeout
        pause = 0.001
        while not self._store.check([decision]):
            if time.monotonic() > deadline:
                ranks = range(self._size)
                self._decide([r for r in ranks if not self._store.check([f"{self._key}/{r}"])])
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return [int(rank) for rank in self._store.get(decision).decode().split()]

    def _decide(self, missing: list[int]) -> None:
        """Decide for all processes, unless another one has."""
        if self._store.add(f"{self._key}/decided", 1) == 1:
            self._store.set(f"{self._key}/decision", " ".join(map(str, missing)))


def _store_of(distributed: Any) -> Any:
    """Return the store of the default process group; `None` if there is no access to it."""
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        return distributed.group.WORLD.get_group_store()
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):  # PyTorch before 2.8
        return distributed.distributed_c10d._get_default_store()
    return None


def _named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MAX_NAMED]))
    if len(ranks) > _MAX_NAMED:
        return f"ranks {shown} and {len(ranks) - _MAX_NAMED} more"
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"

"""How the processes of a run agree on what only the first of them asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zeus.errors import RunError, ZeusError
from zeus.optimizer.batch_size.running._spool import REFUSALS
from zeus.optimizer.training._ranks import Ranks

T = TypeVar("T")


def from_first(ranks: Ranks, rank: int, ask: Callable[[], T], otherwise: T) -> T:
    """Return the answer that rank 0 gets, in all processes.

    Args:
        ranks: The processes.
        rank: Rank of this one.
        ask: Called in rank 0.
        otherwise: Answer in another process that cannot receive it.

    Raises:
        ZeusError: The error that rank 0 gets.
        RanksError: If the processes do not answer each other.
    """
    answer: T | ZeusError = otherwise
    if rank == 0:
        try:
            answer = ask()
        except ZeusError as error:
            # Not every error can be sent to the other ranks.
            sent = ranks.size == 1 or isinstance(error, REFUSALS)
            answer = error if sent else RunError(str(error))
    answer = ranks.share(answer)[0]
    if isinstance(answer, ZeusError):
        raise answer
    return answer

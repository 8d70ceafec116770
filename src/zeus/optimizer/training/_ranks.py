"""Communication between the processes of one job, so that all of them decide the same.

With `torch.distributed` initialized, objects are all-gathered over a separate gloo group: it has
its own timeout and does not mix with the training's traffic. Without, there is only this process.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from zeus.errors import RanksError

T = TypeVar("T")


class Ranks:
    """The processes of a job. By itself, a job of one process."""

    rank = 0
    size = 1

    def share(self, value: Any) -> list[Any]:
        """Return the objects of all processes, by rank. All must call it, in the same order.

        Raises:
            RanksError: If one of them did not respond in time, or has exited.
        """
        return [value]

    def prefixed(self, rank: int, message: str) -> str:
        """Return a message with the rank that it is from, if there are several."""
        return message if self.size == 1 else f"rank {rank}: {message}"

    def leave(self) -> None:
        """Disconnect, so that processes that wait for this one fail at once."""


class TorchRanks(Ranks):
    """The default process group of `torch.distributed`."""

    def __init__(self, distributed: Any, timeout: float) -> None:
        """Make a group with all others.

        Args:
            distributed: The module `torch.distributed`.
            timeout: Seconds to wait for the slowest process.

        Raises:
            RanksError: If one of them did not respond in time, or has exited.
        """
        self._distributed = distributed
        self._timeout = timeout
        self._group: Any = None
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()
        try:
            self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        except RuntimeError as error:
            raise self._silent(error) from error

    def share(self, value: Any) -> list[Any]:
        """Return the objects of all processes, by rank."""
        if self._group is None:
            raise RanksError("this process has left the group of its job")
        answers: list[Any] = [None] * self.size
        try:
            self._distributed.all_gather_object(answers, value, group=self._group)
        except RuntimeError as error:
            raise self._silent(error) from error
        return answers

    def leave(self) -> None:
        """Close the connections, so that processes that wait for this one stop waiting."""
        group, self._group = self._group, None
        if group is not None and self._distributed.is_initialized():
            with contextlib.suppress(RuntimeError, ValueError, AssertionError):
                self._distributed.destroy_process_group(group)

    def _silent(self, error: Exception) -> RanksError:
        first_line = str(error).strip().partition("\n")[0]
        return RanksError(
            f"all {self.size} processes must take part within {self._timeout:g} s, but not all "
            f"did ({first_line})"
        )


def merged(by_rank: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merge what processes report by GPU key: a GPU that several of them see counts once."""
    return {key: value for each in by_rank for key, value in each.items()}


def job_ranks(timeout: float) -> Ranks:
    """Return the processes of this job according to the training framework.

    Raises:
        RanksError: If they do not respond.
    """
    distributed = torch_distributed()
    return Ranks() if distributed is None else TorchRanks(distributed, timeout)


def job_size() -> int:
    """Return the number of processes of this job according to the training framework."""
    distributed = torch_distributed()
    return 1 if distributed is None else int(distributed.get_world_size())


def torch_distributed() -> Any:
    """Return the module `torch.distributed` if it joins several processes, else `None`."""
    torch = sys.modules.get("torch")  # imported already if it is in use
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None

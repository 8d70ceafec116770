"""Brains of jobs in memory, so that their logs need not be read for every decision."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from zeus.optimizer.batch_size.brain import Brain


@dataclass
class Known:
    """A job in memory.

    Attributes:
        brain: What was made of its log.
        sequence: The last event that it has seen.
        size: About how many bytes it takes; 0 until it was weighed.
        gpus: How many kinds of GPUs it knew then, on which its size depends most.
    """

    brain: Brain
    sequence: int
    size: int = 0
    gpus: int = -1


class Cache:
    """Jobs that were last used, as many as fit into some memory."""

    def __init__(self, most_bytes: int = 256 * 1024 * 1024) -> None:
        self._most = most_bytes
        self._used = 0
        self._known: OrderedDict[int, Known] = OrderedDict()

    def take(self, job: int) -> Known | None:
        """Take a job out, if it is here. Whoever has it may change it and puts it back."""
        known = self._known.pop(job, None)
        if known is not None:
            self._used -= known.size
        return known

    def put(self, job: int, known: Known) -> None:
        """Keep a job, at the expense of those that were not used for longest."""
        self.take(job)
        if known.gpus != len(known.brain.gpus):
            known.size, known.gpus = known.brain.size, len(known.brain.gpus)
        self._known[job] = known
        self._used += known.size
        while self._used > self._most and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._used -= oldest.size

"""In-memory cache of jobs' brains, so that logs need not be read for every decision."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage._tally import Tally


@dataclass
class CachedJob:
    """A job in memory.

    Attributes:
        brain: The folded log.
        sequence: Number of the last event that the brain has absorbed, and the tally.
        tally: Sums over its trials.
        size: Approximate size in bytes; 0 until estimated.
        gpus: Number of GPU configurations at that time, on which the size depends most.
    """

    brain: JobState
    sequence: int
    tally: Tally
    size: int = 0
    gpus: int = -1


class Cache:
    """LRU cache of jobs with a memory bound."""

    def __init__(self, most_bytes: int = 256 * 1024 * 1024) -> None:
        self._most = most_bytes
        self._used = 0
        self._known: OrderedDict[int, CachedJob] = OrderedDict()

    def take(self, job: int) -> CachedJob | None:
        """Remove and return a job, if cached. The caller may change it and puts it back."""
        known = self._known.pop(job, None)
        if known is not None:
            self._used -= known.size
        return known

    def put(self, job: int, known: CachedJob) -> None:
        """Cache a job, evicting the least recently used ones."""
        self.take(job)
        if known.gpus != len(known.brain.gpus):
            known.size, known.gpus = known.brain.size, len(known.brain.gpus)
        self._known[job] = known
        self._used += known.size
        while self._used > self._most and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._used -= oldest.size

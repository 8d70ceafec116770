"""Which ranks are alive: those that were heard of recently. In memory only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zeus.optimizer.pipeline_frequency.job._job import PipelineJob

LEASE = 60.0  # seconds without a request after which a rank is lost


class Presence:
    """When each rank was last heard of. Call with the lock of the jobs held.

    Args:
        now: Returns seconds since 1970.
        clock: Returns seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._opened, self._began = now(), clock()
        self._heard: dict[tuple[str, int], float] = {}
        self._lost: set[tuple[str, int]] = set()

    def hear(self, job: str, rank: int) -> None:
        """Record a request of a rank."""
        self._heard[job, rank] = self._clock()

    def living(self, job: PipelineJob) -> Callable[[int], bool]:
        """Return a test whether a rank was seen recently; after a restart, all count as seen."""
        now = self._clock()

        def alive(rank: int) -> bool:
            record = job.ranks.get(rank)
            if record is None or record.left:
                return False
            # A rank that registered with another process after we started is new when first seen.
            unheard = now if record.registered > self._opened else self._began
            return now - self._heard.setdefault((job.name, rank), unheard) < LEASE

        return alive

    def newly_lost(self, job: PipelineJob) -> list[int]:
        """Return the ranks of a job that are not alive any more, and not recorded as lost."""
        alive = self.living(job)
        missing = {n for n, rank in job.ranks.items() if not rank.left and not alive(n)}
        self._lost -= {(job.name, number) for number in job.ranks if number not in missing}
        return sorted(number for number in missing if (job.name, number) not in self._lost)

    def record_lost(self, job: str, ranks: Iterable[int]) -> None:
        """Record that ranks are lost."""
        self._lost.update((job, rank) for rank in ranks)

    def count(self) -> int:
        """Return the number of ranks seen recently."""
        horizon = self._clock() - LEASE
        return sum(at > horizon for at in self._heard.values())

    def drop(self, job: str) -> None:
        """Forget the ranks of a job."""
        for key in [key for key in self._heard if key[0] == job]:
            del self._heard[key]

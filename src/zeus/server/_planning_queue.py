"""Queue of jobs to plan: tenants take turns, and the quickest job of a tenant comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

SMALL_WORK = 100_000  # instructions times clocks; takes up to a few seconds
_LONG = 60.0  # seconds of waiting after which a job comes before quicker ones


@dataclass(frozen=True)
class _Waiting:
    tenant: str
    work: int
    since: float


class PlanningQueue:
    """Jobs that wait to be planned, each once; thread-safe.

    A job that is put while it is being planned waits until that is done. A tenant may have any
    number of jobs in the queue; they are planned one after the other.

    Args:
        now: Monotonic clock in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._taken: set[str] = set()
        self._turns: dict[str, int] = {}  # number of the last turn of each tenant
        self._turn = 0
        self._closed = False

    def put(self, name: str, tenant: str, work: int) -> None:
        """Enqueue a job; one that is already queued keeps its place."""
        with self._changed:
            known = self._waiting.get(name)
            since = self._now() if known is None else known.since
            self._waiting[name] = _Waiting(tenant, work, since)
            self._changed.notify_all()

    def take(self, *, small: bool = False, timeout: float | None = None) -> str | None:
        """Return the next job, to be followed by `done`; `None` once the queue is closed.

        Args:
            small: Whether to take only jobs of at most `SMALL_WORK`.
            timeout: Maximum seconds to wait for a job.

        Raises:
            TimeoutError: If there was none in that time.
        """
        with self._changed:
            found: str | None = None

            def there_is() -> bool:
                nonlocal found
                found = self._next(small)
                return self._closed or found is not None

            if not self._changed.wait_for(there_is, timeout):
                raise TimeoutError
            if self._closed or found is None:
                return None
            self._turn += 1
            self._turns[self._waiting.pop(found).tenant] = self._turn
            self._taken.add(found)
            self._forget_turns()
            return found

    def done(self, name: str) -> None:
        """Mark a job from `take` as planned."""
        with self._changed:
            self._taken.discard(name)
            self._changed.notify_all()

    def close(self) -> None:
        """Close the queue: `take` returns `None` from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self, small: bool) -> str | None:
        candidates = [
            name
            for name, job in self._waiting.items()
            if name not in self._taken and not (small and job.work > SMALL_WORK)
        ]
        return min(candidates, key=self._order, default=None)

    def _order(self, name: str) -> tuple[int, bool, float]:
        job = self._waiting[name]
        late = self._now() - job.since > _LONG
        return self._turns.get(job.tenant, 0), not late, job.since if late else job.work

    def _forget_turns(self) -> None:
        """Drop the turns of tenants without queued jobs; their next job comes first."""
        if len(self._turns) > 2 * len(self._waiting) + 100:
            here = {job.tenant for job in self._waiting.values()}
            self._turns = {tenant: turn for tenant, turn in self._turns.items() if tenant in here}

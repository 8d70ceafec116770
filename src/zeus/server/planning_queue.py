"""Which job is planned next: tenants take turns, and of each the quickest job comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

SMALL_WORK = 100_000  # instructions times clocks: up to a few seconds
_LONG = 60.0  # seconds after which a job comes before quicker ones


@dataclass(frozen=True)
class _Waiting:
    tenant: str
    work: int
    since: float


class PlanningQueue:
    """Jobs that wait to be planned, each once; safe to use from several threads.

    A job that is put while it is being planned waits until that is done. Each tenant may have any
    number of jobs here, which wait for each other.

    Args:
        now: Seconds that go on.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._taken: set[str] = set()
        self._turns: dict[str, int] = {}  # of each tenant, the last that it had
        self._turn = 0
        self._closed = False

    def put(self, name: str, tenant: str, work: int) -> None:
        """Have a job wait for its turn; it keeps its place if it does already."""
        with self._changed:
            known = self._waiting.get(name)
            since = self._now() if known is None else known.since
            self._waiting[name] = _Waiting(tenant, work, since)
            self._changed.notify_all()

    def take(self, *, small: bool = False, timeout: float | None = None) -> str | None:
        """The job whose turn it is, to be followed by `done`; `None` once the queue is closed.

        Args:
            small: Whether only small ones will do.
            timeout: Seconds to wait for one, at most.

        Raises:
            TimeoutError: If there was none.
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
        """A job that was taken has been planned."""
        with self._changed:
            self._taken.discard(name)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing is taken any more."""
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
        """Who has nothing here comes first again when there is something."""
        if len(self._turns) > 2 * len(self._waiting) + 100:
            here = {job.tenant for job in self._waiting.values()}
            self._turns = {tenant: turn for tenant, turn in self._turns.items() if tenant in here}

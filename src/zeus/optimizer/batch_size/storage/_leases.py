"""Detects expired leases by observing them on a monotonic clock.

A wall clock jumps: when it is set, when a virtual machine is moved. And the end of a lease may have
been stored by another server, whose clock differs. So a server does not compare timestamps but
observes: a lease has expired when its row has not changed for the duration of the lease. After a
restart every lease starts over when it is first seen.

The clock is `time.monotonic`, which stands still while the machine sleeps: clients could not reach
the server meanwhile, and must not expire for that. (`CLOCK_BOOTTIME` would count the sleep.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zeus.optimizer.batch_size.storage import Transaction
from zeus.optimizer.batch_size.storage._view import Lease


@dataclass(frozen=True)
class _Seen:
    until: float
    lapses: float


class WatchedLeases:
    """Leases of running trials, as observed by one process. Not thread-safe.

    Args:
        clock: Returns the seconds of a clock that never jumps.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[int, dict[int, _Seen]] = {}

    def note(self, job: int, number: int, lease: float, until: float | None) -> None:
        """Record that a lease was stored now: its end, or `None` if its trial is over."""
        trials = self._seen.setdefault(job, {})
        if until is None:
            trials.pop(number, None)
        else:
            trials[number] = _Seen(until, self._clock() + lease)

    def look(self, rows: Iterable[Lease]) -> None:
        """Update from all stored leases."""
        before, self._seen = self._seen, {}
        for row in rows:
            seen = before.get(row.job, {}).get(row.number)
            if seen is not None and seen.until == row.until:
                self._seen.setdefault(row.job, {})[row.number] = seen
            else:
                self.note(row.job, row.number, row.lease, row.until)

    def lapsed_jobs(self) -> list[int]:
        """Return jobs with trials whose lease has expired, as far as observed."""
        return [job for job in sorted(self._seen) if self._due(job)]

    def lapsed(self, transaction: Transaction, jobs: Iterable[int]) -> list[tuple[int, int]]:
        """Return the trials of these jobs whose lease has expired, as job and number."""
        found: list[tuple[int, int]] = []
        for job in sorted(jobs):
            due = self._due(job)
            if not due:
                continue
            # Another server may have renewed them since.
            stored = {row.number: row for row in transaction.leases(job)}
            for number in due:
                row = stored.get(number)
                if row is not None and row.until == self._seen[job][number].until:
                    found.append((job, number))
                else:
                    self.note(
                        job, number, *((0.0, None) if row is None else (row.lease, row.until))
                    )
        return found

    def _due(self, job: int) -> list[int]:
        now = self._clock()
        trials = self._seen.get(job, {})
        return sorted(number for number, seen in trials.items() if seen.lapses < now)

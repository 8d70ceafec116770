"""Writes of jobs to the tables of a store, without any decision logic.

Jobs are changed in a `Transaction`: it locks them, so that only one process at a time decides for
each job, and writes everything at once at the end.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import bindparam, delete, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.job._events import Event
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage._account import NONE_REACHED
from zeus.optimizer.batch_size.storage._rows_at_once import (
    find_rows,
    insert_rows,
    one_of,
    update_rows,
)
from zeus.optimizer.batch_size.storage._tally import Tally
from zeus.optimizer.batch_size.storage._view import JOB_COLUMNS, JobRow, View
from zeus.store._store import Store
from zeus.store._tables import (
    accounts,
    events,
    jobs,
    profiles,
    snapshots,
    tags,
    trials,
)


@dataclass
class Changes:
    """Changes that a transaction writes.

    Attributes:
        events: Events with the number of their job and their sequence number.
        jobs: Rows with the counters of jobs.
        new_trials: Rows of `trials`.
        trials: Rows with the columns that change while a trial runs.
        profiles: Rows of `profiles`.
        snapshots: Rows of `snapshots`.
        accounts: Rows of `accounts`.
    """

    events: list[tuple[int, int, Event]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    new_trials: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    accounts: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


@contextlib.contextmanager
def writing_jobs(store: Store) -> Iterator[Transaction]:
    """Open a transaction that may change jobs; it is rolled back if there is an error.

    Raises:
        StorageError: If the database fails.
    """
    with store.writing() as connection:
        yield Transaction(connection)


@contextlib.contextmanager
def reading_jobs(store: Store) -> Iterator[View]:
    """Open a read-only view of one state of the store.

    Raises:
        StorageError: If the database fails.
    """
    with store.reading() as connection:
        yield View(connection)


_LAPSED = (
    select(trials.c.job, trials.c.number)
    .where(
        trials.c.lease_until < bindparam("now"),
        trials.c.job.in_(bindparam("ids", expanding=True)),
    )
    .order_by(trials.c.job, trials.c.number)
)
_INSERT_EVENT = events.insert()
_INSERT_TRIAL = trials.insert()


# Of a job without trials: its tally is known to be empty, and nothing is compared.
_NEW_ACCOUNT: dict[str, Any] = {
    "sequence": 0,
    "tally": json.dumps(Tally().to_dict(), separators=(",", ":")),
    "unmeasured": 0,
    "basis": "",
    "comparison": NONE_REACHED,
    "trouble": "",
}
# An id that no job can have.
_REHEARSED = -1
_REHEARSAL: dict[str, dict[str, Any]] = {
    "job": {
        "name": "\n", "spec": "{}", "created": 0.0, "updated": 0.0, "sequence": 1, "trials": 1,
        "recurrences": 1, "running": 1,
    },
    "event": {"sequence": 1, "trial": 1, "kind": "rehearsal", "at": 0.0, "payload": "{}"},
    "trial": {
        "number": 1, "request": "rehearsal", "sequence": 1, "lease": 1.0, "recurrence": 1,
        "attempt": 0, "gpu": "", "gpus": 1, "max_power": 1.0, "batch_size": 1, "role": "default",
        "threshold": None, "began": 0.0, "state": Outcome.RUNNING.value, "lease_until": 0.0,
        "ended": None, "epochs": 0, "time": 0.0, "energy": None, "cost": 0.0, "metric": None,
        "best": None, "note": "", "reason": "",
    },
}  # fmt: skip


@cache  # making the statement takes longer than executing it
def _lock(dialect: str) -> Any:
    wanted = or_(*(one_of(dialect, each) for each in (jobs.c.name, jobs.c.id)))
    # Always in the same order, to avoid deadlocks.
    return select(*JOB_COLUMNS).where(wanted).order_by(jobs.c.id).with_for_update()


class Transaction(View):
    """Reads and writes of jobs that it has locked."""

    def lock(self, names: Iterable[str], ids: Iterable[int]) -> list[JobRow]:
        """Lock and return existing jobs; until the end, no other transaction decides for them.

        Args:
            names: Jobs by name.
            ids: Jobs by number.
        """
        wanted = {"name": sorted(set(names)), "id": sorted(set(ids))}
        if not any(wanted.values()):
            return []
        statement = _lock(self._connection.dialect.name)
        return [JobRow(*row) for row in self._connection.execute(statement, wanted)]

    def add_job(self, spec: JobSpec, at: float) -> JobRow | None:
        """Create a job; `None` if another process has just created one of that name."""
        text = json.dumps(spec.to_dict(), separators=(",", ":"), sort_keys=True)
        counters = {"sequence": 0, "trials": 0, "recurrences": 0, "running": 0}
        added = self._insert(jobs).on_conflict_do_nothing().returning(jobs.c.id)
        values = {"name": spec.name, "spec": text, "created": at, "updated": at, **counters}
        number = self._connection.execute(added, values).scalar()
        if number is None:
            return None
        self._connection.execute(accounts.insert(), {"job": number, **_NEW_ACCOUNT})
        return JobRow(number, spec.name, text, at, at, 0, 0, 0, 0)

    def tag_job(self, job: int, texts: Iterable[str]) -> None:
        """Replace the tags of a job."""
        self._connection.execute(delete(tags).where(tags.c.job == job))
        rows = [{"job": job, "tag": text} for text in texts]
        if rows:
            self._connection.execute(tags.insert(), rows)

    def delete_job(self, job: int) -> None:
        """Delete a job with everything that belongs to it."""
        self._connection.execute(delete(jobs).where(jobs.c.id == job))

    def requested(self, pairs: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
        """Return numbers of existing trials, by job and request."""
        if not pairs:
            return {}
        asked = [{"job": job, "request": request} for job, request in pairs]
        found = find_rows(self._connection, trials, asked, ("job", "request", "number"))
        return {(job, request): number for job, request, number in found}

    def lapsed(self, ids: Iterable[int], now: float) -> list[tuple[int, int]]:
        """Return trials of these jobs whose lease has expired, as job and number."""
        found = self._connection.execute(_LAPSED, {"now": now, "ids": sorted(ids)})
        return [(job, number) for job, number in found]

    def rehearse(self) -> None:
        """Write a job with a trial and an event, and delete them; other transactions never see it.

        A transaction that is rolled back would not reach the disk, so this one is committed: if it
        succeeds, the store can be written.
        """
        insert = self._insert(jobs).on_conflict_do_nothing()
        self._connection.execute(insert, {"id": _REHEARSED, **_REHEARSAL["job"]})
        self._connection.execute(_INSERT_EVENT, {"job": _REHEARSED, **_REHEARSAL["event"]})
        self._connection.execute(_INSERT_TRIAL, {"job": _REHEARSED, **_REHEARSAL["trial"]})
        self.delete_job(_REHEARSED)

    def write(self, changes: Changes) -> None:
        """Write all changes."""
        connection = self._connection
        if changes.events:
            insert_rows(connection, events, [_event_row(*each) for each in changes.events])
        if changes.new_trials:
            insert_rows(connection, trials, changes.new_trials)
        if changes.trials:
            update_rows(connection, trials, changes.trials, ("job", "number"))
        if changes.jobs:
            update_rows(connection, jobs, changes.jobs, ("id",))
        if changes.profiles:
            key = ("job", "gpu", "gpus", "batch_size")
            insert_rows(connection, profiles, changes.profiles, key)
        if changes.snapshots:
            insert_rows(connection, snapshots, changes.snapshots, ("job",))
        if changes.accounts:
            insert_rows(connection, accounts, changes.accounts, ("job",))

    def _insert(self, table: Any) -> Any:
        dialect = self._connection.dialect.name
        return (sqlite if dialect == "sqlite" else postgresql).insert(table)


def _event_row(job: int, sequence: int, event: Event) -> dict[str, Any]:
    return {
        "job": job,
        "sequence": sequence,
        "trial": event.trial,
        "kind": event.kind,
        "at": event.at,
        "payload": json.dumps(event.payload(), separators=(",", ":")),
    }

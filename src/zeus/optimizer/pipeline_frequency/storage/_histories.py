"""Histories of jobs, kept in the store, so that they survive a restart.

A history is written every now and then, not with every report: ranks report sums, so that what a
server missed when it ended is in the next report to its successor.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert, select, update

from zeus.errors import StorageError
from zeus.optimizer.pipeline_frequency.storage._history import History, PlanHistory, RankReport
from zeus.store._store import Store
from zeus.store._tables import pipeline_histories, pipelines

logger = logging.getLogger(__name__)

_SAVE_EVERY = 15.0  # seconds
_MAX_JOBS = 256  # in memory

_DAMAGED = -1  # in place of the number of changes


@dataclass
class _Kept:
    """The history of a job in memory.

    Attributes:
        number: Row id of the job; another one has another job of the same name.
        changes: How often it had been written when it was read or written here; `_DAMAGED` if it
            cannot be read, and must not be overwritten.
        history: The history.
        reports: Latest reports that are not written yet, by rank and version.
        expected: Expectations likewise, by version.
        saved: When it was last read or written, on a monotonic clock.
    """

    number: int
    changes: int
    history: PlanHistory
    saved: float
    reports: dict[tuple[int, int], RankReport] = field(default_factory=dict)
    expected: dict[int, tuple[float, float]] = field(default_factory=dict)


class Histories:
    """Histories by job. Call with the lock of the jobs held.

    Args:
        store: Their store.
        clock: Returns seconds of a monotonic clock.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._jobs: dict[str, _Kept] = {}

    def take(self, name: str, number: int, reported: RankReport) -> None:
        """Take the latest report of a rank.

        Args:
            name: Name of the job.
            number: Its row id.
            reported: The report.
        """
        kept = self._of(name, number)
        kept.reports[reported.rank, reported.report.version] = reported
        kept.history.take(reported)
        if self._clock() - kept.saved >= _SAVE_EVERY:
            self._save_or_warn(name, kept)

    def expect(self, name: str, version: int, time: float, energy: float) -> None:
        """Set what the plan of a version expects, once steps of it were reported."""
        kept = self._jobs.get(name)
        if kept is not None and version not in kept.expected:
            kept.expected[version] = time, energy
            kept.history.expect(version, time, energy)

    def summary(self, name: str, number: int) -> History:
        """Return the history of a job, with what other servers on the same store have written."""
        kept = self._of(name, number)
        if not kept.reports and kept.changes != _DAMAGED:
            with self._store.reading() as connection:
                if _changes(connection, number) != kept.changes:
                    del self._jobs[name]
                    kept = self._of(name, number)
        return kept.history.summary()

    def save(self) -> None:
        """Write all that is not written yet; a failure is logged, and tried again later."""
        for name, kept in list(self._jobs.items()):
            if kept.reports:
                self._save_or_warn(name, kept)

    def drop(self, name: str) -> None:
        """Drop the history of a job from memory: the job was deleted."""
        self._jobs.pop(name, None)

    def _of(self, name: str, number: int) -> _Kept:
        known = self._jobs.get(name)
        if known is not None and known.number == number:
            return known
        with self._store.reading() as connection:
            changes, history = _load(connection, name, number)
        for other in [each for each, kept in self._jobs.items() if not kept.reports]:
            if len(self._jobs) < _MAX_JOBS:
                break
            del self._jobs[other]  # read again when needed
        self._jobs[name] = _Kept(number, changes, history, self._clock())
        return self._jobs[name]

    def _save_or_warn(self, name: str, kept: _Kept) -> None:
        kept.saved = self._clock()
        if kept.changes == _DAMAGED:
            kept.reports.clear()
            return
        try:
            self._save(name, kept)
        except StorageError as error:
            logger.warning("the history of pipeline job %r is not saved for now: %s", name, error)

    def _save(self, name: str, kept: _Kept) -> None:
        with self._store.writing() as connection:
            # Lock the job, so that no other server writes at the same time.
            row = select(pipelines.c.id).where(pipelines.c.id == kept.number).with_for_update()
            if connection.execute(row).first() is None:
                self.drop(name)
                return
            changes = _changes(connection, kept.number)
            if changes != kept.changes:  # another server has written: add what only this one has
                changes, kept.history = _load(connection, name, kept.number)
                if changes == _DAMAGED:
                    kept.changes = _DAMAGED
                    return
                for reported in kept.reports.values():
                    kept.history.take(reported)
                for version, expected in kept.expected.items():
                    kept.history.expect(version, *expected)
            record = {"changes": changes + 1, "record": json.dumps(kept.history.to_dict())}
            if changes:
                key = pipeline_histories.c.pipeline == kept.number
                connection.execute(update(pipeline_histories).where(key).values(**record))
            else:
                connection.execute(insert(pipeline_histories), {"pipeline": kept.number, **record})
        kept.changes = changes + 1
        kept.reports.clear()
        kept.expected = {}


def _changes(connection: Connection, number: int) -> int:
    """Return how often the history of a job was written."""
    key = pipeline_histories.c.pipeline == number
    return connection.execute(select(pipeline_histories.c.changes).where(key)).scalar() or 0


def _load(connection: Connection, name: str, number: int) -> tuple[int, PlanHistory]:
    columns = pipeline_histories.c.changes, pipeline_histories.c.record
    key = pipeline_histories.c.pipeline == number
    row = connection.execute(select(*columns).where(key)).first()
    if row is None:
        return 0, PlanHistory()
    try:
        return row[0], PlanHistory.from_dict(json.loads(row[1]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # Nothing depends on it but what is shown; the job goes on.
        logger.error(
            "the history of pipeline job %r cannot be read: %s; it stays in the store as it is, "
            "and steps from now on are in memory only",
            name,
            error,
        )
        return _DAMAGED, PlanHistory()

"""Recurring jobs on a store in this process, for servers and for local use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from zeus.errors import StorageError, UnknownJobError, ZeusError
from zeus.optimizer.batch_size.api._answers import JobInfo, TrialInfo
from zeus.optimizer.batch_size.api._commands import (
    JobCommand,
    ListJobs,
    ListTrials,
    ShowJob,
    ShowLog,
    ShowProfiles,
    Sweep,
    trial_name,
)
from zeus.optimizer.batch_size.storage import JobRow, View, reading_jobs, writing_jobs
from zeus.optimizer.batch_size.storage._batch import Batch
from zeus.optimizer.batch_size.storage._cache import Cache
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._rows import job_info, listed, profile_info
from zeus.store import Store
from zeus.store._engine import may_be_tried_again
from zeus.transport._command import Answer

T = TypeVar("T")

_TRIES = 3
_SWEPT_AT_ONCE = 100  # jobs


class Jobs:
    """Recurring jobs on a store, as `JobsApi`.

    Thread-safe; other processes may use the same store.

    Args:
        store: The store of the jobs.
        now: Returns seconds since 1970.
        leases: Observes when leases expire, for a process that outlives them. By default they
            expire by `now`: a short-lived process has observed nothing.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float] = time.time,
        leases: WatchedLeases | None = None,
    ) -> None:
        self._store = store
        self._now = now
        self._leases = leases
        self._cache = Cache()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections of the store."""
        self._store.close()

    def do(self, command: JobCommand[Answer]) -> Answer:
        """Execute a command and return its answer; see `JobsApi`."""
        answer: Any
        if command.method == "GET":
            with reading_jobs(self._store) as view:
                answer = _read(view, command)
        else:
            (answer,) = self.execute([command])
            if isinstance(answer, ZeusError):
                raise answer
        found: Answer = answer
        return found

    # --- changing -------------------------------------------------------------------------------

    def execute(self, commands: Sequence[JobCommand[Any]]) -> list[Any]:
        """Execute commands that change jobs in one transaction.

        Returns:
            The answer, or the `ZeusError`, of each.

        Raises:
            StorageError: If nothing could be written; no command was executed.
        """
        try:
            return self._attempts(lambda: self._attempt(commands))
        except StorageError:
            raise
        except Exception:
            # A command must not fail because of an unexpected error of another one.
            if len(commands) == 1:
                raise
            return [self._alone(command) for command in commands]

    def _alone(self, command: JobCommand[Any]) -> Any:
        try:
            return self._attempts(lambda: self._attempt([command]))[0]
        except Exception as error:
            return error

    def rehearse(self) -> None:
        """Check that the store can be written, leaving no trace.

        Raises:
            StorageError: If nothing can be written.
        """
        self._attempts(self._rehearse)

    def _rehearse(self) -> None:
        with writing_jobs(self._store) as transaction:
            transaction.rehearse()

    def _attempts(self, attempt: Callable[[], T]) -> T:
        for left in reversed(range(_TRIES)):
            try:
                with self._lock:
                    return attempt()
            except StorageError as error:
                if not left or not may_be_tried_again(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def _attempt(self, commands: Sequence[JobCommand[Any]]) -> list[Any]:
        with writing_jobs(self._store) as transaction:
            batch = Batch(transaction, self._cache, self._now(), self._leases)
            answers = batch.run(commands)
        batch.keep()
        return answers

    def sweep(self) -> int:
        """Expire trials whose lease has passed, in all jobs; return the number of such jobs.

        Commands for a job expire its trials anyway. This is for jobs without commands.
        """
        with reading_jobs(self._store) as view:
            if self._leases is None:
                lapsed = view.lapsed_jobs(self._now(), _SWEPT_AT_ONCE)
            else:
                with self._lock:
                    self._leases.look(view.leases())
                    lapsed = self._leases.lapsed_jobs()[:_SWEPT_AT_ONCE]
        if lapsed:
            self.execute([Sweep(job_id=job) for job in lapsed])
        return len(lapsed)

    def numbers(self) -> tuple[int, int]:
        """Return the number of jobs, and of running trials."""
        with reading_jobs(self._store) as view:
            return view.numbers()


# --- reading --------------------------------------------------------------------------------------


def _read(view: View, command: JobCommand[Any]) -> Any:
    match command:
        case ListJobs():
            return _list_jobs(view, command)
        case ShowJob():
            return job_info(_found(view, command))
        case ListTrials(before=before, most=most):
            row = _found(view, command)
            rows = view.trials(row.id, most=most, **({} if before is None else {"before": before}))
            return [
                TrialInfo.from_dict({**each, "trial": trial_name(row.id, each["number"])})
                for each in rows
            ]
        case ShowProfiles(job=job):
            return [profile_info(job, each) for each in view.profiles(_found(view, command).id)]
        case ShowLog(after=after, most=most):
            events = view.log(_found(view, command).id, after, most)
            return [{"sequence": sequence, **event.to_dict()} for sequence, event in events]
    raise TypeError(f"not a command that reads jobs: {command!r}")


def _list_jobs(view: View, command: ListJobs) -> list[JobInfo]:
    if command.scope is None:
        after = command.after if command.after.isprintable() else ""
        return [listed(row) for row in view.jobs(after, command.most)]
    row = view.job(command.scope)
    return [] if row is None else [job_info(row)]


def _found(view: View, command: JobCommand[Any]) -> JobRow:
    name = command.job_name()
    assert name is not None
    command.permit(name)
    # A text that no database can hold cannot be a job's name.
    row = view.job(name) if name.isprintable() else None
    if row is None:
        raise UnknownJobError(f"there is no job {name[:80]!r}")
    return row

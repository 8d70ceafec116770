"""Recurring jobs on a store in this process, for servers and for local use."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from zeus._rules import enforce
from zeus.errors import RequestError, StorageError, UnknownJobError, ZeusError
from zeus.optimizer.batch_size.api._answers import EpochInfo, JobInfo, SizeInfo
from zeus.optimizer.batch_size.api._commands import (
    JobCommand,
    JobFilter,
    ListEpochs,
    ListJobs,
    ListSizes,
    ListTrials,
    ShowJob,
    ShowLog,
    ShowProfiles,
    ShowSharedProfiles,
    ShowTrial,
    SumJobs,
    Sweep,
)
from zeus.optimizer.batch_size.job._events import EpochReported, GpuModel
from zeus.optimizer.batch_size.policies._job_state import Setup
from zeus.optimizer.batch_size.storage import JobRow, Row, View, reading_jobs, writing_jobs
from zeus.optimizer.batch_size.storage._batch import Batch
from zeus.optimizer.batch_size.storage._cache import Cache
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._load import recalled
from zeus.optimizer.batch_size.storage._rows import job_info, listed, profile_info, trial_info
from zeus.store import Store
from zeus.store._engine import may_be_tried_again
from zeus.transport._command import Answer

T = TypeVar("T")

_TRIES = 3
_SWEPT_AT_ONCE = 100  # jobs
_COUNTED_AT_ONCE = 200  # jobs


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
        self._all_counted = False  # new jobs are counted from their first trial on
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections of the store."""
        self._store.close()

    def do(self, command: JobCommand[Answer]) -> Answer:
        """Execute a command and return its answer; see `JobsApi`."""
        answer: Any
        if command.method == "GET":
            if isinstance(command, JobFilter):
                self.count()
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
        self.count()
        return len(lapsed)

    def count(self) -> None:
        """Compute the accounts of jobs of an older store, which has none, a part at a time.

        Nothing happens if the store cannot be written.
        """
        if self._all_counted:
            return
        with reading_jobs(self._store) as view:
            jobs = view.uncounted(_COUNTED_AT_ONCE)
        with contextlib.suppress(StorageError):
            if jobs:
                self.execute([Sweep(job_id=job) for job in jobs])
        self._all_counted = not jobs

    def numbers(self) -> tuple[int, int]:
        """Return the number of jobs, and of running trials."""
        with reading_jobs(self._store) as view:
            return view.numbers()


# --- reading --------------------------------------------------------------------------------------


def _read(view: View, command: JobCommand[Any]) -> Any:
    match command:
        case ListJobs():
            return _list_jobs(view, command)
        case SumJobs():
            enforce(command, RequestError)
            return view.sums(command)
        case ShowJob():
            row = _found(view, command)
            return job_info(row, view.about([row])[row.id])
        case ListTrials(before=before, most=most):
            row = _found(view, command)
            rows = view.trials(row.id, most=most, **({} if before is None else {"before": before}))
            return [trial_info(row.id, each) for each in rows]
        case ShowTrial():
            job, trial = _trial(view, command)
            return trial_info(job, trial)
        case ListEpochs(after=after, most=most):
            return _epochs(view, *_trial(view, command), after, most)
        case ShowProfiles(job=job_name):
            found = view.profiles(_found(view, command).id)
            return [profile_info(job_name, each) for each in found]
        case ShowSharedProfiles(job=job_name):
            row = _found(view, command)
            key = row.spec.profile_key
            if key is None or command.scope is not None:
                return []
            return [profile_info(job_name, each) for each in view.shared_profiles(key, row.id)]
        case ListSizes():
            return _sizes(view, command)
        case ShowLog(after=after, most=most):
            events = view.log(_found(view, command).id, after, most)
            return [{"sequence": sequence, **event.to_dict()} for sequence, event in events]
    raise TypeError(f"not a command that reads jobs: {command!r}")


def _list_jobs(view: View, command: ListJobs) -> list[JobInfo]:
    enforce(command, RequestError)
    if command.after and command.sort != "name":
        raise RequestError(
            f"`after` is for lists sorted by name, but got sort={command.sort!r}; use `skip`"
        )
    rows = view.find_jobs(command)
    about = view.about(rows)
    return [listed(row, about[row.id]) for row in rows]


def _sizes(view: View, command: ListSizes) -> list[SizeInfo]:
    row = _found(view, command)
    enforce(command, RequestError)
    setup = Setup(command.replicas, command.memory, command.max_local_batch_size)
    brain = recalled(view, row).brain
    gpu = GpuModel(command.gpu or "", command.gpus)
    if command.gpu is None and brain.gpus:
        gpu = brain.gpus[-1]
    known = brain.sizes(gpu, setup)
    return [SizeInfo(**vars(each)) for each in known]


def _trial(view: View, command: ShowTrial | ListEpochs) -> tuple[int, Row]:
    job, number = command.trial_key()
    row = view.job_numbered(job)
    if row is None and command.scope is None:
        raise UnknownJobError(f"there is no trial {command.trial!r}")
    command.permit("" if row is None else row.name)
    trial = view.trial(job, number)
    if trial is None:
        raise UnknownJobError(f"there is no trial {command.trial!r}")
    return job, trial


def _epochs(view: View, job: int, trial: Row, after: int, most: int) -> list[EpochInfo]:
    found = view.events_of_trial(job, trial["number"], trial["sequence"])
    epochs = [event for event in found if isinstance(event, EpochReported) and event.epoch > after]
    return [EpochInfo(at=event.at, **event.payload()) for event in epochs[:most]]


def _found(view: View, command: JobCommand[Any]) -> JobRow:
    name = command.job_name()
    assert name is not None
    command.permit(name)
    # A text that no database can hold cannot be a job's name.
    row = view.job(name) if name.isprintable() else None
    if row is None:
        raise UnknownJobError(f"there is no job {name[:80]!r}")
    return row

"""Recurring jobs on a store in this process, for servers and for local use."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from zeus.errors import StorageError, UnknownJobError, ZeusError
from zeus.optimizer.batch_size.api._api import Decision, JobInfo, ProfileInfo, TrialInfo, Verdict
from zeus.optimizer.batch_size.api._commands import (
    Command,
    Create,
    Decide,
    Delete,
    End,
    PutProfile,
    Renew,
    ReportEpoch,
    Sweep,
    trial_name,
)
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage import JobRow, View, reading_jobs, writing_jobs
from zeus.optimizer.batch_size.storage._batch import Batch
from zeus.optimizer.batch_size.storage._cache import Cache
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._rows import job_info, listed, profile_info
from zeus.store import Store
from zeus.store._engine import may_be_tried_again

T = TypeVar("T")

_TRIES = 3
_SWEPT_AT_ONCE = 100  # jobs


class Jobs:
    """Recurring jobs on a store; see `JobsApi` for the methods.

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

    # --- changing -------------------------------------------------------------------------------

    def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Execute commands in one transaction; return the answer, or the `ZeusError`, of each.

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

    def _alone(self, command: Command) -> Any:
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

    def _attempt(self, commands: Sequence[Command]) -> list[Any]:
        with writing_jobs(self._store) as transaction:
            batch = Batch(transaction, self._cache, self._now(), self._leases)
            answers = batch.run(commands)
        batch.keep()
        return answers

    def _do(self, command: Command) -> Any:
        (answer,) = self.execute([command])
        if isinstance(answer, ZeusError):
            raise answer
        return answer

    def create(self, spec: JobSpec) -> JobInfo:
        """Create a job unless it exists; see `JobsApi`."""
        info: JobInfo = self._do(Create(spec=spec))
        return info

    def decide(
        self,
        job: str,
        *,
        gpu: str,
        max_power: float,
        gpus: int = 1,
        request: str | None = None,
        retry_of: str | None = None,
        lease: float = values.DEFAULT_LEASE,
        default: bool = False,
    ) -> Decision:
        """Begin a trial; see `JobsApi`."""
        decision: Decision = self._do(
            Decide(
                job=job,
                gpu=gpu,
                max_power=max_power,
                gpus=gpus,
                request=uuid.uuid4().hex if request is None else request,
                retry_of=retry_of,
                lease=lease,
                default=default,
            )
        )
        return decision

    def report_epoch(
        self,
        trial: str,
        *,
        epoch: int,
        time: float,
        energy: float | None = None,
        metric: float | None = None,
        power_limit: float | None = None,
    ) -> Verdict:
        """Report an epoch; see `JobsApi`."""
        verdict: Verdict = self._do(
            ReportEpoch(
                trial=trial,
                epoch=epoch,
                time=time,
                energy=energy,
                metric=metric,
                power_limit=power_limit,
            )
        )
        return verdict

    def end(
        self,
        trial: str,
        outcome: str,
        *,
        time: float = 0.0,
        energy: float | None = 0.0,
        note: str = "",
    ) -> Verdict:
        """End a trial; see `JobsApi`."""
        verdict: Verdict = self._do(
            End(trial=trial, outcome=outcome, time=time, energy=energy, note=note)
        )
        return verdict

    def renew(self, trial: str) -> Verdict:
        """Renew the lease of a running trial; see `JobsApi`."""
        verdict: Verdict = self._do(Renew(trial=trial))
        return verdict

    def put_profile(
        self,
        job: str,
        *,
        gpu: str,
        batch_size: int,
        gpus: int = 1,
        frontier: Mapping[str, Any] | None = None,
        epoch_cost: float | None = None,
        load: float | None = None,
        power_limit: float | None = None,
    ) -> ProfileInfo:
        """Store the profile of a batch size; see `JobsApi`."""
        info: ProfileInfo = self._do(
            PutProfile(
                job=job,
                gpu=gpu,
                gpus=gpus,
                batch_size=batch_size,
                frontier=frontier,
                epoch_cost=epoch_cost,
                load=load,
                power_limit=power_limit,
            )
        )
        return info

    def delete(self, job: str) -> None:
        """Delete a job; see `JobsApi`."""
        self._do(Delete(job=job))

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

    # --- reading --------------------------------------------------------------------------------

    def jobs(self, after: str = "", most: int = 100) -> list[JobInfo]:
        """Return jobs in the order of their names; see `JobsApi`."""
        with reading_jobs(self._store) as view:
            return [listed(row) for row in view.jobs(after, most)]

    def job(self, name: str) -> JobInfo:
        """Return one job; see `JobsApi`."""
        with reading_jobs(self._store) as view:
            return job_info(_found(view, name))

    def trials(self, job: str, before: int | None = None, most: int = 100) -> list[TrialInfo]:
        """Return trials of a job, the latest first; see `JobsApi`."""
        bound = {} if before is None else {"before": before}
        with reading_jobs(self._store) as view:
            row = _found(view, job)
            found = view.trials(row.id, most=most, **bound)
        return [
            TrialInfo.from_dict({**each, "trial": trial_name(row.id, each["number"])})
            for each in found
        ]

    def profiles(self, job: str) -> list[ProfileInfo]:
        """Return all profiles of a job; see `JobsApi`."""
        with reading_jobs(self._store) as view:
            found = view.profiles(_found(view, job).id)
        return [profile_info(job, each) for each in found]

    def numbers(self) -> tuple[int, int]:
        """Return the number of jobs, and of running trials."""
        with reading_jobs(self._store) as view:
            return view.numbers()

    def log(self, job: str, after: int = 0, most: int = 1000) -> list[dict[str, Any]]:
        """Return events of a job; see `JobsApi`."""
        with reading_jobs(self._store) as view:
            found = view.log(_found(view, job).id, after, most)
        return [{"sequence": sequence, **event.to_dict()} for sequence, event in found]


def _found(view: View, name: str) -> JobRow:
    # A text that no database can hold cannot be a job's name.
    row = view.job(name) if name.isprintable() else None
    if row is None:
        raise UnknownJobError(f"there is no job {name[:80]!r}")
    return row

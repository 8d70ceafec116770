"""Executes a batch of commands in one transaction of the store.

Each command is applied to the brain of its job, which validates it; all resulting changes are
written at once at the end. So a hundred clients cost hardly more than one, and a rejected command
leaves no trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zeus.errors import (
    DamagedJobError,
    JobConflictError,
    JobLogError,
    StorageError,
    UnknownJobError,
    ZeusError,
)
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import (
    Decision,
    JobInfo,
    ProfileInfo,
    SizeInfo,
    Verdict,
)
from zeus.optimizer.batch_size.api._commands import (
    REQUEST,
    CreateJob,
    Decide,
    DeleteJob,
    EndTrial,
    JobCommand,
    PutProfile,
    PutSize,
    RenewTrial,
    ReportEpoch,
    Sweep,
    TagJob,
    trial_key,
    trial_name,
)
from zeus.optimizer.batch_size.job._alike import WARNING
from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    Event,
    GpuModel,
    Profiled,
    Resumed,
    SizeMeasured,
)
from zeus.optimizer.batch_size.job._log import Trial
from zeus.optimizer.batch_size.policies._job_state import Asked, JobState, Setup, decide_ahead
from zeus.optimizer.batch_size.policies._policy_state import update_all
from zeus.optimizer.batch_size.storage import Changes, JobRow, Transaction
from zeus.optimizer.batch_size.storage._cache import Cache
from zeus.optimizer.batch_size.storage._checks import (
    check_decide,
    check_same_job,
    checked_frontier,
    key_of,
    storable,
)
from zeus.optimizer.batch_size.storage._job_transaction import JobTransaction
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._load import recalled
from zeus.optimizer.batch_size.storage._rows import (
    damaged_account,
    decision,
    how,
    job_info,
    lease_until,
)
from zeus.optimizer.batch_size.storage._verdicts import end_trial, resumable, verdict_of

_MAX_SKIPPED = 20


class Batch:
    """A batch of commands in one transaction."""

    def __init__(
        self,
        transaction: Transaction,
        cache: Cache,
        now: float,
        leases: WatchedLeases | None = None,
    ) -> None:
        self._transaction = transaction
        self._cache = cache
        self._now = now
        self._leases = leases
        self._rows: dict[int, JobRow] = {}
        self._ids: dict[str, int] = {}
        self._jobs: dict[int, JobTransaction] = {}
        self._requested: dict[tuple[int, str], int] = {}

    def run(self, commands: Sequence[JobCommand[Any]]) -> list[Any]:
        """Execute commands in order; return the answer, or the error, of each."""
        self._lock(commands)
        self._expire(commands)
        self._look_up_requests(commands)
        self._decide_ahead(commands)
        answers: list[Any] = []
        for command in commands:
            try:
                answers.append(self._answer(command))
            except ZeusError as error:
                if isinstance(error, StorageError):
                    raise
                answers.append(error)
        update_all(state for job in self._jobs.values() for state in job.brain.policy_states)
        self._write()
        return answers

    def keep(self) -> None:
        """Cache the jobs and leases after the transaction was committed."""
        for job in self._jobs.values():
            self._cache.put(job.row.id, job.remembered())
            if self._leases is not None:
                for number, trial in job.touched.items():
                    until = lease_until(trial, self._now)
                    self._leases.note(job.row.id, number, trial.decided.lease, until)

    # --- before the commands --------------------------------------------------------------------

    def _lock(self, commands: Sequence[JobCommand[Any]]) -> None:
        names, ids = set(), set()
        for command in commands:
            name = command.job_name()
            if name is not None:
                names.add(name)
            elif isinstance(command, Sweep):
                ids.add(command.job_id)
            else:
                key = key_of(command)
                if key is not None:
                    ids.add(key[0])
        for row in self._transaction.lock(filter(storable, names), ids):
            self._know(row)

    def _know(self, row: JobRow) -> None:
        self._rows[row.id] = row
        self._ids[row.name] = row.id

    def _expire(self, commands: Sequence[JobCommand[Any]]) -> None:
        """Expire trials whose lease has passed, except those that these commands are about."""
        if not self._rows:
            return
        heard = {key_of(command) for command in commands}
        for job_id, number in self._lapsed():
            if (job_id, number) not in heard:
                try:
                    job = self._loaded(job_id)
                except DamagedJobError:
                    continue  # commands for this job get the error; the other jobs go on
                lease = job.brain.log.running(number).decided.lease
                note = f"no report or renewal for {lease:g} s"
                job.take(Ended(trial=number, at=self._now, outcome=Outcome.EXPIRED, note=note))

    def _lapsed(self) -> list[tuple[int, int]]:
        if self._leases is None:
            return self._transaction.lapsed(self._rows, self._now)
        return self._leases.lapsed(self._transaction, self._rows)

    def _look_up_requests(self, commands: Sequence[JobCommand[Any]]) -> None:
        pairs = {
            (self._ids[command.job], command.request)
            for command in commands
            if isinstance(command, Decide)
            and command.job in self._ids
            and storable(command.request)
        }
        self._requested = self._transaction.requested(sorted(pairs))

    def _decide_ahead(self, commands: Sequence[JobCommand[Any]]) -> None:
        """Decide together for all jobs whose first command here asks for a new trial."""
        asked: list[tuple[JobState, Asked]] = []
        met: set[int | None] = {None}
        for command in commands:
            job_id = self._job_of(command)
            if job_id not in met and isinstance(command, Decide):
                try:
                    asked += self._asked(command)
                except StorageError:
                    raise
                except ZeusError:
                    pass  # raised again in its turn
            met.add(job_id)
        decide_ahead(asked)

    def _asked(self, command: Decide) -> list[tuple[JobState, Asked]]:
        """Return what a command will ask of its job, if it begins a new recurrence."""
        job = self._job(command, command.job)
        check_decide(job.brain.spec, command)
        again = (job.row.id, command.request) in self._requested
        resumed = again or resumable(job, command) is not None
        if resumed or command.retry_of is not None or command.default:
            return []
        setup = Setup(command.replicas, command.memory, command.max_local_batch_size)
        return [(job.brain, (GpuModel(command.gpu, command.gpus), 0, setup))]

    def _job_of(self, command: JobCommand[Any]) -> int | None:
        name = command.job_name()
        if name is not None:
            return self._ids.get(name)
        key = key_of(command)
        return None if key is None else key[0]

    def _loaded(self, job_id: int) -> JobTransaction:
        """Return a job with a brain that has absorbed its whole log."""
        job = self._jobs.get(job_id)
        if job is None:
            row = self._rows[job_id]
            # Taken out of the cache: uncommitted changes must not be visible to others.
            known = recalled(self._transaction, row, self._cache.take(job_id))
            job = self._jobs[job_id] = JobTransaction(row, known)
        return job

    # --- commands -------------------------------------------------------------------------------

    def _answer(self, command: JobCommand[Any]) -> Any:
        match command:
            case CreateJob():
                return self._create(command)
            case Decide():
                return self._decide(command)
            case ReportEpoch():
                return self._report(command)
            case EndTrial():
                return self._end(command)
            case RenewTrial():
                return self._renew(command)
            case PutProfile():
                return self._put_profile(command)
            case PutSize():
                return self._put_size(command)
            case TagJob():
                return self._tag(command)
            case DeleteJob():
                return self._delete(command)
            case Sweep(job_id=job_id):
                self._count(job_id)
        return None

    def _create(self, command: CreateJob) -> JobInfo:
        spec = command.spec
        command.permit(spec.name)
        job_id = self._ids.get(spec.name)
        if job_id is None:
            row = self._transaction.add_job(spec, self._now)
            if row is None:  # another process was faster
                locked = self._transaction.lock([spec.name], [])
                if not locked:
                    raise JobConflictError(f"job {spec.name!r} is being created and deleted")
                row = locked[0]
            else:
                self._transaction.tag_job(row.id, command.tags)
            self._know(row)
            job_id = row.id
        row = self._rows[job_id]
        check_same_job(row.spec, spec)
        return self._info(row)

    def _info(self, row: JobRow) -> JobInfo:
        return job_info(row, self._transaction.about([row])[row.id])

    def _tag(self, command: TagJob) -> JobInfo:
        command.permit(command.job)
        if command.job not in self._ids:
            raise UnknownJobError(f"there is no job {command.job[:80]!r}")
        row = self._rows[self._ids[command.job]]
        self._transaction.tag_job(row.id, command.tags)
        return self._info(row)

    def _count(self, job_id: int) -> None:
        """Have the account of a job written, if it has none."""
        stored = self._transaction.account(job_id)
        if job_id not in self._rows or (stored is not None and stored[1] is not None):
            return
        try:
            self._loaded(job_id).counted = True
        except DamagedJobError:
            row = damaged_account(job_id, self._rows[job_id].sequence)
            self._transaction.write(Changes(accounts=[row]))

    def _job(self, command: JobCommand[Any], name: str) -> JobTransaction:
        command.permit(name)
        if name not in self._ids:
            raise UnknownJobError(f"there is no job {name[:80]!r}")
        return self._loaded(self._ids[name])

    def _decide(self, command: Decide) -> Decision:
        job = self._job(command, command.job)
        request = REQUEST.check("request", command.request, JobLogError)
        before = None if command.retry_of is None else trial_key(command.retry_of)
        if before is not None and before[0] != job.row.id:
            raise UnknownJobError(f"job {command.job!r} has no trial {command.retry_of!r}")
        retry_of = None if before is None else before[1]
        given = job.requests.get(request) or self._requested.get((job.row.id, request))
        if given is not None:
            return self._given_before(job, command, given)
        check_decide(job.brain.spec, command)
        gpu = GpuModel(command.gpu, command.gpus)
        common = {
            "gpu": gpu.name,
            "gpus": gpu.number,
            "max_power": command.max_power,
            "memory": command.memory,
            "replicas": command.replicas,
            "max_local_batch_size": command.max_local_batch_size,
            "lease": command.lease,
            "run": command.run,
        }
        trial = resumable(job, command)
        if trial is not None and trial.decided.model == gpu:
            return self._resume(job, trial)
        if trial is not None:
            retry_of = self._moved(job, trial, gpu)
        return self._begin(job, gpu, request, retry_of, common, default=command.default)

    def _begin(
        self,
        job: JobTransaction,
        gpu: GpuModel,
        request: str,
        retry_of: int | None,
        common: Mapping[str, Any],
        *,
        default: bool,
    ) -> Decision:
        brain, log = job.brain, job.brain.log
        setup = Setup(common["replicas"], common["memory"], common["max_local_batch_size"])
        before = None if retry_of is None else log.retried(retry_of).decided
        for skipped in range(_MAX_SKIPPED + 1):
            recurrence = log.recurrences + 1 if before is None else before.recurrence
            attempt = 0 if before is None else before.attempt + 1
            choice = brain.decide(gpu, attempt, default=default, setup=setup)
            stillborn = skipped < _MAX_SKIPPED and not brain.may_begin(gpu, choice)
            decided = Decided(
                trial=log.trials + 1,
                at=self._now,
                request=f"{request} (skipped {skipped})" if stillborn else request,
                recurrence=recurrence,
                attempt=attempt,
                retry_of=None if before is None else before.trial,
                **vars(choice),
                **common,
            )
            job.take(decided)
            stop = brain.must_stop(decided.trial) if stillborn else None
            if stop is None:
                return decision(job.row, job.brain.spec, decided)
            self._stop(job, decided.trial, stop.outcome, stop.reason)
            before = decided
        raise AssertionError("the last one is not skipped")

    def _resume(self, job: JobTransaction, trial: Trial) -> Decision:
        """Let a trial go on that an earlier start of its run began."""
        number = trial.decided.trial
        self._alive(job, number)
        job.touched[number] = trial  # its lease starts over
        row, spec = job.row, job.brain.spec
        return decision(row, spec, trial.decided, epochs=trial.epochs, resumed=True)

    def _moved(self, job: JobTransaction, trial: Trial, gpu: GpuModel) -> int:
        """End a trial whose run goes on with other GPUs, where its epochs cost something else."""
        number = trial.decided.trial
        if trial.ended is None:
            note = f"its run was started again on {gpu.number} x {gpu.name}"
            job.take(Ended(trial=number, at=self._now, outcome=Outcome.CANCELLED, note=note))
        return number

    def _given_before(self, job: JobTransaction, command: Decide, number: int) -> Decision:
        """Return the answer that this request got earlier."""
        decided = self._decided(job, number)
        asked = {
            "gpu": (decided.gpu, command.gpu),
            "gpus": (decided.gpus, command.gpus),
            "max_power": (decided.max_power, command.max_power),
        }
        for name, (there, here) in asked.items():
            if there != here:
                raise JobConflictError(
                    f"request {command.request!r} was made before with {name}={there!r}, "
                    f"but got {name}={here!r}"
                )
        return decision(job.row, job.brain.spec, decided)

    def _decided(self, job: JobTransaction, number: int) -> Decided:
        trial = job.brain.log.open.get(number) or job.brain.log.over.get(number)
        if trial is not None:
            return trial.decided
        for event in self._history(job, number):
            if isinstance(event, Decided):
                return event
        raise UnknownJobError(f"there is no trial {trial_name(job.row.id, number)!r}")

    def _history(self, job: JobTransaction, number: int) -> list[Event]:
        """Return all events of a trial."""
        row = self._transaction.trial(job.row.id, number)
        first = 0 if row is None else row["sequence"]
        stored = self._transaction.events_of_trial(job.row.id, number, first)
        return [*stored, *(event for event in job.news if event.trial == number)]

    def _of_trial(self, command: ReportEpoch | EndTrial | RenewTrial) -> tuple[JobTransaction, int]:
        job_id, number = command.trial_key()
        row = self._rows.get(job_id)
        if row is None and command.scope is None:
            raise UnknownJobError(f"there is no trial {command.trial!r}")
        command.permit("" if row is None else row.name)
        job = self._loaded(job_id)
        if not 1 <= number <= job.brain.log.trials:
            raise UnknownJobError(f"there is no trial {command.trial!r}")
        return job, number

    def _alive(self, job: JobTransaction, number: int) -> Trial | None:
        """Return a running trial, resuming it if its lease had expired; `None` if it has ended."""
        log = job.brain.log
        over = log.over.get(number)
        if over is not None and over.ended is not None and over.ended.outcome == Outcome.EXPIRED:
            job.take(Resumed(trial=number, at=self._now))
        return log.open.get(number)

    def _report(self, command: ReportEpoch) -> Verdict:
        job, number = self._of_trial(command)
        event = EpochReported(trial=number, at=self._now, **command.content())
        log = job.brain.log
        trial = log.open.get(number) or log.over.get(number)
        if trial is None or event.epoch <= trial.epochs:
            return self._reported_before(job, number, event)
        if trial.ended is not None and trial.ended.outcome != Outcome.EXPIRED:
            raise JobConflictError(f"trial {command.trial} is over: {how(trial.ended)}")
        log.may_follow(trial, event.epoch)
        self._alive(job, number)
        job.take(event)
        stop = job.brain.must_stop(number)
        if stop is None:
            return Verdict(True, None, "")
        warning = job.brain.warning(number)
        reason = f"{stop.reason}; {WARNING}{warning}" if warning else stop.reason
        return self._stop(job, number, stop.outcome, reason)

    def _stop(self, job: JobTransaction, number: int, outcome: str, reason: str) -> Verdict:
        return end_trial(job, Ended(trial=number, at=self._now, outcome=outcome, note=reason))

    def _reported_before(self, job: JobTransaction, number: int, event: EpochReported) -> Verdict:
        """Return the answer to an epoch that is already in the log."""
        name = trial_name(job.row.id, number)
        history = self._history(job, number)
        ended = next((e for e in reversed(history) if isinstance(e, Ended | Resumed)), None)
        for recorded in history:
            if isinstance(recorded, EpochReported) and recorded.epoch == event.epoch:
                if recorded.payload() != event.payload():
                    raise JobConflictError(
                        f"epoch {event.epoch} of trial {name} was reported as "
                        f"{recorded.payload()}, but got {event.payload()}"
                    )
                return verdict_of(ended)
        ending = how(ended) if isinstance(ended, Ended) else "it ended long ago"
        raise JobConflictError(f"trial {name} is over: {ending}")

    def _end(self, command: EndTrial) -> Verdict:
        job, number = self._of_trial(command)
        if command.outcome not in (Outcome.FAILED, Outcome.CANCELLED):
            raise JobLogError(
                f"a trial is ended as {Outcome.FAILED} or {Outcome.CANCELLED}; the other outcomes "
                f"follow from its reports, but got outcome={str(command.outcome)[:80]!r}"
            )
        event = Ended(trial=number, at=self._now, **command.content())
        if self._alive(job, number) is None:
            return self._standing(job, number)
        return end_trial(job, event)

    def _renew(self, command: RenewTrial) -> Verdict:
        job, number = self._of_trial(command)
        trial = self._alive(job, number)
        if trial is None:
            return self._standing(job, number)
        job.touched[number] = trial
        return Verdict(True, None, "")

    def _standing(self, job: JobTransaction, number: int) -> Verdict:
        """Return the verdict of a trial that has ended."""
        ends = [event for event in self._history(job, number) if isinstance(event, Ended)]
        return verdict_of(ends[-1])

    def _put_profile(self, command: PutProfile) -> ProfileInfo:
        job = self._job(command, command.job)
        frontier = None if command.frontier is None else checked_frontier(command.frontier)
        event = Profiled(trial=0, at=self._now, **{**command.content(), "frontier": frontier})
        job.take(event)
        info = ProfileInfo(at=event.at, **event.payload())
        text = None if frontier is None else json.dumps(frontier, separators=(",", ":"))
        key = job.row.spec.profile_key
        row = {**info.to_dict(), "job": job.row.id, "frontier": text, "key": key}
        job.profiles[event.gpu, event.gpus, event.batch_size] = row
        return info

    def _put_size(self, command: PutSize) -> SizeInfo:
        job = self._job(command, command.job)
        event = SizeMeasured(at=self._now, **command.content())
        job.take(event)
        setup = Setup(event.replicas, event.memory, event.max_local_batch_size)
        known = job.brain.sizes(event.model, setup)
        (found,) = (each for each in known if each.batch_size == event.batch_size)
        return SizeInfo(**vars(found))

    def _delete(self, command: DeleteJob) -> None:
        command.permit(command.job)
        job_id = self._ids.pop(command.job, None)
        if job_id is None:
            raise UnknownJobError(f"there is no job {command.job[:80]!r}")
        self._transaction.delete_job(job_id)
        self._cache.take(job_id)
        del self._rows[job_id]
        self._jobs.pop(job_id, None)

    # --- after the commands ---------------------------------------------------------------------

    def _write(self) -> None:
        changes = Changes()
        for job in self._jobs.values():
            job.collect(changes, self._now)
        if changes:
            self._transaction.write(changes)

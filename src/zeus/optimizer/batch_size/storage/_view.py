"""Reads of the tables: jobs, their logs, trials and profiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, func, select

from zeus.errors import ZeusError
from zeus.optimizer.batch_size.api._answers import JobTotals
from zeus.optimizer.batch_size.api._commands import JobFilter, ListJobs
from zeus.optimizer.batch_size.job._events import Event, GpuModel, event_of
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage import _history as history
from zeus.optimizer.batch_size.storage import _listing as listing
from zeus.store._tables import accounts, events, jobs, profiles, snapshots, trials
from zeus.store._values import damaged, parsed

Row = dict[str, Any]


class Lease(NamedTuple):
    """The lease of a running trial.

    Attributes:
        job: Number of its job.
        number: Number of the trial within the job.
        lease: Duration in seconds.
        until: End in seconds since 1970, by the clock of the process that stored it.
    """

    job: int
    number: int
    lease: float
    until: float


@dataclass(frozen=True)
class JobRow:
    """A job as stored.

    Attributes:
        id: Its number; that of a deleted job is never reused.
        name: Its name.
        spec_text: Its specification as JSON.
        created: Creation time in seconds since 1970; `updated` is when its log last grew.
        sequence: Number of the last event of its log.
        trials: Number of trials so far; `recurrences` likewise; `running` is the number running.
    """

    id: int
    name: str
    spec_text: str
    created: float
    updated: float
    sequence: int
    trials: int
    recurrences: int
    running: int

    @property
    def spec(self) -> JobSpec:
        """Its specification.

        Raises:
            DamagedJobError: If the row cannot be read.
        """
        numbers = (self.created, self.updated, self.sequence, self.trials, self.recurrences)
        if not all(isinstance(each, int | float) for each in (*numbers, self.running)):
            raise damaged(self.name, "its counters are not numbers")
        try:
            return JobSpec.from_dict(parsed(self.spec_text))
        except (ValueError, RecursionError) as error:
            raise damaged(self.name, f"its specification is invalid: {error}") from error


def _event(sequence: int, kind: Any, trial: Any, at: Any, payload: Any) -> Event:
    try:
        return event_of(kind, trial, at, parsed(payload))
    except (ZeusError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"event {sequence} of its log is invalid: {error}") from error


JOB_COLUMNS = (
    jobs.c.id,
    jobs.c.name,
    jobs.c.spec,
    jobs.c.created,
    jobs.c.updated,
    jobs.c.sequence,
    jobs.c.trials,
    jobs.c.recurrences,
    jobs.c.running,
)
_BY_NAME = select(*JOB_COLUMNS).where(jobs.c.name == bindparam("name"))
_BY_IDS = select(*JOB_COLUMNS).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_ACCOUNT = select(accounts.c.sequence, accounts.c.tally).where(accounts.c.job == bindparam("job"))
_EVENTS = (
    select(events.c.sequence, events.c.kind, events.c.trial, events.c.at, events.c.payload)
    .where(events.c.job == bindparam("job"), events.c.sequence > bindparam("after"))
    .order_by(events.c.sequence)
    .limit(bindparam("most"))
)
_TRIAL_EVENTS = (
    select(events.c.sequence, events.c.kind, events.c.trial, events.c.at, events.c.payload)
    .where(
        events.c.job == bindparam("job"),
        events.c.sequence >= bindparam("first"),
        events.c.trial == bindparam("number"),
    )
    .order_by(events.c.sequence)
)
_TRIAL = select(trials).where(
    trials.c.job == bindparam("job"), trials.c.number == bindparam("number")
)
_TRIALS = (
    select(trials)
    .where(trials.c.job == bindparam("job"), trials.c.number < bindparam("before"))
    .order_by(trials.c.number.desc())
    .limit(bindparam("most"))
)
_ALL_LAPSED = (
    select(trials.c.job)
    .where(trials.c.lease_until < bindparam("now"))
    .distinct()
    .limit(bindparam("most"))
)
_LEASES = (
    select(trials.c.job, trials.c.number, trials.c.lease, trials.c.lease_until)
    .where(trials.c.lease_until.is_not(None))
    .order_by(trials.c.job, trials.c.number)
)
_NUMBERS = select(
    select(func.count()).select_from(jobs).scalar_subquery(),
    select(func.count())
    .select_from(trials)
    .where(trials.c.lease_until.is_not(None))
    .scalar_subquery(),
)
_PROFILES = (
    select(profiles)
    .where(profiles.c.job == bindparam("job"))
    .order_by(profiles.c.gpu, profiles.c.gpus, profiles.c.batch_size)
)
_SHARED_PROFILES = (
    select(profiles)
    .where(profiles.c.key == bindparam("key"), profiles.c.job != bindparam("job"))
    .order_by(profiles.c.at.desc(), profiles.c.job)
)
_PAGE = (
    select(*JOB_COLUMNS)
    .where(jobs.c.name > bindparam("after"))
    .order_by(jobs.c.name)
    .limit(bindparam("most"))
)

_SNAPSHOT = select(snapshots.c.sequence, snapshots.c.state).where(
    snapshots.c.job == bindparam("job"), snapshots.c.fingerprint == bindparam("fingerprint")
)
_RUNNING = (
    select(trials)
    .where(trials.c.job == bindparam("job"), trials.c.lease_until.is_not(None))
    .order_by(trials.c.number.desc())
    .limit(bindparam("most"))
)

_EVERY = 2**31 - 1  # more than there can be


class View:
    """Reads in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def job(self, name: str) -> JobRow | None:
        """Return a job by its name."""
        row = self._connection.execute(_BY_NAME, {"name": name}).first()
        return None if row is None else JobRow(*row)

    def jobs(self, after: str, most: int) -> list[JobRow]:
        """Return up to `most` jobs by name, starting after the name `after`."""
        return [JobRow(*r) for r in self._connection.execute(_PAGE, {"after": after, "most": most})]

    def find_jobs(self, asked: ListJobs) -> list[JobRow]:
        """Return the requested jobs, in their order."""
        ids = listing.found(self._connection, asked)
        found = self._connection.execute(_BY_IDS, {"ids": ids}) if ids else ()
        rows = {row[0]: JobRow(*row) for row in found}
        return [rows[each] for each in ids]

    def sums(self, asked: JobFilter[Any]) -> JobTotals:
        """Return sums over the matching jobs."""
        return listing.sums(self._connection, asked)

    def about(self, rows: Iterable[JobRow]) -> dict[int, dict[str, Any]]:
        """Return what `JobInfo` says of jobs besides their rows, by the numbers of the jobs."""
        return listing.about(self._connection, [row.id for row in rows])

    def labels(self, most: int) -> tuple[list[str], list[str]]:
        """Return the GPU models and the tags of all jobs, up to `most` of each."""
        return listing.gpus(self._connection, most), listing.all_tags(self._connection, most)

    def uncounted(self, most: int) -> list[int]:
        """Return jobs whose account was not computed yet."""
        return listing.uncounted(self._connection, most)

    def account(self, job: int) -> tuple[int, str | None] | None:
        """Return the number of the last event in the account of a job, and its tally."""
        row = self._connection.execute(_ACCOUNT, {"job": job}).first()
        return None if row is None else (row[0], row[1])

    def snapshot(self, job: int, fingerprint: str) -> tuple[int, bytes] | None:
        """Return the number of its last event and the snapshot, if made by the same code."""
        values = {"job": job, "fingerprint": fingerprint}
        row = self._connection.execute(_SNAPSHOT, values).first()
        return None if row is None else (row[0], bytes(row[1]))

    def spans(self, job: int, after: int, width: int) -> list[history.Span]:
        """Return trials by segments of `width` recurrences, starting after recurrence `after`."""
        return history.spans(self._connection, job, after, width)

    def totals(self, job: int) -> list[history.Total]:
        """Return totals of all trials, by GPU, batch size and state."""
        return history.totals(self._connection, job)

    def costs(self, job: int, gpu: GpuModel, state: str, most: int) -> list[tuple[int, float]]:
        """Return batch size and cost of the latest trials that ended in a state."""
        return history.costs(self._connection, job, gpu, state, most)

    def running(self, job: int, most: int) -> list[Row]:
        """Return rows of running trials, the latest first."""
        found = self._connection.execute(_RUNNING, {"job": job, "most": most})
        return [dict(row) for row in found.mappings()]

    def log(self, job: int, after: int = 0, most: int = _EVERY) -> list[tuple[int, Event]]:
        """Return up to `most` events of a job with sequence numbers above `after`.

        Raises:
            DamagedJobError: If one of them cannot be read.
        """
        found = self._connection.execute(_EVENTS, {"job": job, "after": after, "most": most})
        try:
            return [(row[0], _event(*row)) for row in found]
        except ValueError as error:
            raise damaged(self._name(job), str(error)) from error

    def events_of_trial(self, job: int, number: int, first: int) -> list[Event]:
        """Return the events of one trial, from sequence number `first`.

        Raises:
            DamagedJobError: If one of them cannot be read.
        """
        values = {"job": job, "number": number, "first": first}
        found = self._connection.execute(_TRIAL_EVENTS, values)
        try:
            return [_event(*row) for row in found]
        except ValueError as error:
            raise damaged(self._name(job), str(error)) from error

    def _name(self, job: int) -> str:
        row = self.job_numbered(job)
        return "" if row is None else row.name

    def job_numbered(self, job: int) -> JobRow | None:
        """Return a job by its number."""
        row = self._connection.execute(_BY_IDS, {"ids": [job]}).first()
        return None if row is None else JobRow(*row)

    def trial(self, job: int, number: int) -> Row | None:
        """Return a row of `trials`."""
        found = self._connection.execute(_TRIAL, {"job": job, "number": number})
        row = found.mappings().first()
        return None if row is None else dict(row)

    def max_power(self, job: int, number: int) -> float:
        """Return the maximum power of the GPUs of a trial in watts."""
        row = self.trial(job, number)
        assert row is not None
        return float(row["max_power"])

    def trials(self, job: int, before: int = _EVERY, most: int = _EVERY) -> list[Row]:
        """Return rows of `trials` with numbers below `before`, the latest first."""
        values = {"job": job, "before": before, "most": most}
        return [dict(row) for row in self._connection.execute(_TRIALS, values).mappings()]

    def profiles(self, job: int) -> list[Row]:
        """Return the rows of `profiles` of a job."""
        found = self._connection.execute(_PROFILES, {"job": job})
        return [dict(row) for row in found.mappings()]

    def shared_profiles(self, key: str, job: int) -> list[Row]:
        """Return rows of `profiles` of other jobs with a key: the latest of each configuration."""
        found = self._connection.execute(_SHARED_PROFILES, {"key": key, "job": job})
        latest: dict[tuple[Any, ...], Row] = {}
        for row in found.mappings():
            latest.setdefault((row["gpu"], row["gpus"], row["batch_size"]), dict(row))
        return list(latest.values())

    def leases(self, job: int | None = None) -> list[Lease]:
        """Return the leases of all running trials, or of those of one job."""
        statement = _LEASES if job is None else _LEASES.where(trials.c.job == job)
        return [Lease(*row) for row in self._connection.execute(statement)]

    def lapsed_jobs(self, now: float, most: int) -> list[int]:
        """Return jobs with trials whose lease has expired."""
        found = self._connection.execute(_ALL_LAPSED, {"now": now, "most": most})
        return [job for (job,) in found]

    def numbers(self) -> tuple[int, int]:
        """Return the number of jobs, and of running trials."""
        row = self._connection.execute(_NUMBERS).one()
        return row[0], row[1]

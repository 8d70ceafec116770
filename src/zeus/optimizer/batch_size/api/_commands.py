"""Commands on recurring jobs: the only description of their API; see `zeus.transport._command`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic

from zeus._rules import Number, OneOf, Text, Whole
from zeus.errors import JobSpecError, UnknownJobError
from zeus.optimizer._stopping import TRIAL_OUTCOMES, Outcome
from zeus.optimizer.batch_size.api._answers import (
    Decision,
    EpochInfo,
    JobInfo,
    JobTotals,
    ProfileInfo,
    SizeInfo,
    TrialInfo,
    Verdict,
)
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.transport._command import Answer, Command

MAX_TRIALS = 2**31
REQUEST = Text(128)  # leaves room for the suffix of skipped trials

SORTS = (
    "name",
    "saved",
    "saved_time",
    "saved_cost",
    "wasted",
    "trouble",
    "updated",
    "created",
    "state",
    "gpu",
    "batch_size",
    "recurrences",
    "trials",
    "running",
    "energy",
    "time",
    "cost",
)
"""What a list of jobs can be sorted by."""

NEVER_RAN = "new"
STATES = (Outcome.RUNNING.value, *(each.value for each in TRIAL_OUTCOMES), NEVER_RAN)
"""States of jobs: whether one runs, how its latest trial ended, or that there was none."""

_Number = Annotated[int, Whole(0, 2**31 - 1)]
_Most = Annotated[int, Whole(1, 1_000)]
_Instant = Annotated[float, Number(0.0, 1e12)]


@dataclass(frozen=True, kw_only=True)
class JobCommand(Command[Answer], Generic[Answer]):
    """Base class of commands on recurring jobs."""

    renamed: ClassVar = {"name": "job"}

    def job_name(self) -> str | None:
        """Name of the job, if the command refers to it by name."""
        return None

    def trial_key(self) -> tuple[int, int] | None:
        """Numbers of the job and the trial, if the command refers to a trial."""
        return None


@dataclass(frozen=True, kw_only=True)
class _OfJob(JobCommand[Answer], Generic[Answer]):
    job: str

    def job_name(self) -> str:
        """Name given with the command."""
        return self.job


@dataclass(frozen=True, kw_only=True)
class _OfTrial(JobCommand[Answer], Generic[Answer]):
    trial: str

    def trial_key(self) -> tuple[int, int]:
        """Numbers of the job and the trial."""
        return trial_key(self.trial)


# --- trials ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Decide(_OfJob[Decision]):
    """Begin a trial. Idempotent: the same request returns the same trial.

    Attributes:
        job: Name of the job.
        gpu: Model of the GPUs that the trial will run on.
        max_power: Maximum power of all these GPUs together in watts.
        gpus: Number of GPUs.
        memory: Memory of one GPU in bytes, of the smallest if they differ, if known: a batch size
            that does not fit in it is not tried where there is less.
        replicas: Number of data-parallel replicas that share a batch equally: only batch sizes that
            are multiples of it are chosen. By default any.
        max_local_batch_size: Maximum samples that one replica trains on at once, by accumulating
            gradients, if there is such a bound.
        request: Idempotency key: a repeated key returns the same trial, so that all processes of
            a run, and a repeated call, begin only one. By default a new key.
        run: Name of a run that may be interrupted and started again, if it has one.
        resume: The run may have been started before: if a trial of it is running or has expired,
            that one goes on, and the answer says how many epochs were reported. On other GPUs
            it is cancelled, and another trial of the same recurrence begins.
        retry_of: The previous trial of the same recurrence, which did not converge.
        lease: Seconds after which the trial expires without a report or renewal.
        default: The run uses the default batch size in any case, because it started before it
            could ask. Grid search has no such trials, and decides as usual.

    Raises:
        UnknownJobError: If there is no such job.
        JobLogError: If the trial cannot be retried, no batch size can be shared equally, or a
            value breaks a rule.
        JobConflictError: If the request was made before with other values.
    """

    method = "POST"
    path = "/api/jobs/{name}/trials"
    fast = True

    gpu: values.Name
    max_power: values.Watts
    gpus: values.Gpus = 1
    memory: values.Bytes | None = None
    replicas: values.Gpus | None = None
    max_local_batch_size: values.BatchSize | None = None
    request: Annotated[str, REQUEST] = field(default_factory=lambda: uuid.uuid4().hex)
    run: values.Name | None = None
    resume: bool = False
    retry_of: Annotated[str, Text(40, empty=True)] | None = None
    lease: values.Lease = values.DEFAULT_LEASE
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class ListTrials(_OfJob[list[TrialInfo]]):
    """List the trials of a job, the latest first.

    Attributes:
        job: Name of the job.
        before: Only trials with numbers below this one.
        most: Maximum number of trials.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "GET"
    path = "/api/jobs/{name}/trials"

    before: _Number | None = None
    most: _Most = 100


@dataclass(frozen=True, kw_only=True)
class ShowTrial(_OfTrial[TrialInfo]):
    """Return one trial.

    Raises:
        UnknownJobError: If there is no such trial.
    """

    method = "GET"
    path = "/api/trials/{trial}"


@dataclass(frozen=True, kw_only=True)
class ListEpochs(_OfTrial[list[EpochInfo]]):
    """List the reported epochs of a trial, the first one first.

    Attributes:
        trial: Identifier from a `Decision`.
        after: Only epochs with numbers above this one.
        most: Maximum number of epochs.

    Raises:
        UnknownJobError: If there is no such trial.
    """

    method = "GET"
    path = "/api/trials/{trial}/epochs"

    after: _Number = 0
    most: _Most = 1_000


@dataclass(frozen=True, kw_only=True)
class ReportEpoch(_OfTrial[Verdict]):
    """Report an epoch. Idempotent: a repeated report counts once.

    The trial has ended if the verdict is not to go on.

    Attributes:
        trial: Identifier from a `Decision`.
        epoch: Number of the epoch, from 1 without gaps.
        time: Duration in seconds, including validation.
        energy: Joules of all GPUs; `None` if it could not be measured.
        metric: Validation metric after it; `None` if there was no validation.
        power_limit: Power limit of each GPU in watts, if known.
        steps: Number of training steps, if they were counted. With it, a program that ignores its
            batch size is found out.

    Raises:
        UnknownJobError: If there is no such trial.
        JobConflictError: If the trial has ended, or the epoch was reported with other values.
        JobLogError: If an earlier epoch is missing, or a value breaks a rule.
    """

    method = "POST"
    path = "/api/trials/{trial}/epochs"
    fast = True

    epoch: values.Epochs
    time: values.Duration
    energy: values.Joules | None = None
    metric: values.Metric | None = None
    power_limit: values.Watts | None = None
    steps: values.Steps | None = None


@dataclass(frozen=True, kw_only=True)
class EndTrial(_OfTrial[Verdict]):
    """End a trial that failed or was cancelled.

    One that has ended by its reports is not changed.

    Attributes:
        trial: Identifier from a `Decision`.
        outcome: "failed" if it crashed, for example out of memory; "cancelled" if nothing can be
            learned from it.
        time: Seconds since the last reported epoch.
        energy: Joules since then; `None` if not measured.
        note: Why, in words.

    Raises:
        UnknownJobError: If there is no such trial.
        JobLogError: If a value breaks a rule.
    """

    method = "POST"
    path = "/api/trials/{trial}/end"

    outcome: Annotated[str, OneOf((Outcome.FAILED.value, Outcome.CANCELLED.value))]
    time: values.Seconds = 0.0
    energy: values.Joules | None = 0.0
    note: values.Words = ""


@dataclass(frozen=True, kw_only=True)
class RenewTrial(_OfTrial[Verdict]):
    """Renew the lease of a running trial.

    Raises:
        UnknownJobError: If there is no such trial.
    """

    method = "POST"
    path = "/api/trials/{trial}/renew"


# --- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CreateJob(JobCommand[JobInfo]):
    """Create a job unless it exists. Idempotent for the same specification.

    Attributes:
        spec: Specification of the job.
        tags: Tags of a job that does not exist yet. They are no part of its identity: those of an
            existing one are left as they are; see `TagJob`.

    Raises:
        JobConflictError: If a job of that name exists with another specification.
        JobSpecError: If its name is too long, or cannot be part of a URL, or a tag breaks a rule.
    """

    method = "POST"
    path = "/api/jobs"
    inline = "spec"

    spec: JobSpec
    tags: values.Tags = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", values.TAGS.check("tags", self.tags, JobSpecError))
        name = values.NAME.check("name", self.spec.name, JobSpecError)
        if "/" in name or name in (".", ".."):
            raise JobSpecError(f"`name` must have no / and not be . or .., but got {name!r}")

    def job_name(self) -> str:
        """Name in the specification."""
        return self.spec.name


@dataclass(frozen=True, kw_only=True)
class JobFilter(JobCommand[Answer], Generic[Answer]):
    """Base class of commands on all jobs with certain properties.

    Attributes:
        text: Text that the names contain, case-insensitive.
        state: One of `STATES`.
        gpu: Model of the GPUs of the latest trial.
        tag: One of the tags.
        since: Only jobs whose log grew at this time or later, in seconds since 1970.
        until: Only jobs whose log did not grow after this time, in seconds since 1970.
        trouble: Whether only jobs that need a person count.
    """

    text: Annotated[str, Text(values.MAX_NAME, empty=True)] = ""
    state: Annotated[str, OneOf(STATES)] | None = None
    gpu: values.Name | None = None
    tag: values.Name | None = None
    since: _Instant | None = None
    until: _Instant | None = None
    trouble: bool = False


FILTERS = ("text", "state", "gpu", "tag", "since", "until", "trouble")
"""Fields of `JobFilter`."""


@dataclass(frozen=True, kw_only=True)
class ListJobs(JobFilter[list[JobInfo]]):
    """List jobs, in the order of their names or of other properties.

    Attributes:
        text: See `JobFilter`, also for `state`, `gpu`, `tag`, `since`, `until` and `trouble`.
        sort: One of `SORTS`. Names, states and GPUs ascend; numbers and times descend, so that the
            most saved, wasted or recent come first; "trouble" lists jobs that need a person first.
            Jobs for which it is unknown come last, and equal ones in the order of their names.
        reverse: Whether to sort the other way round.
        after: Only names after this one; for lists sorted by name.
        skip: Number of jobs to leave out at the beginning.
        most: Maximum number of jobs.
    """

    method = "GET"
    path = "/api/jobs"

    sort: Annotated[str, OneOf(SORTS)] = "name"
    reverse: bool = False
    after: Annotated[str, Text(values.MAX_NAME, empty=True)] = ""
    skip: _Number = 0
    most: _Most = 100


@dataclass(frozen=True, kw_only=True)
class SumJobs(JobFilter[JobTotals]):
    """Return sums over all jobs, or over those with certain properties; see `JobFilter`."""

    method = "GET"
    path = "/api/totals"


@dataclass(frozen=True, kw_only=True)
class TagJob(_OfJob[JobInfo]):
    """Replace the tags of a job. Tags are no part of its identity, and may change at any time.

    Attributes:
        job: Name of the job.
        tags: All its tags from now on.

    Raises:
        UnknownJobError: If there is no such job.
        JobSpecError: If a tag breaks a rule.
    """

    method = "PUT"
    path = "/api/jobs/{name}/tags"

    tags: values.Tags

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", values.TAGS.check("tags", self.tags, JobSpecError))


@dataclass(frozen=True, kw_only=True)
class ShowJob(_OfJob[JobInfo]):
    """Return one job.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "GET"
    path = "/api/jobs/{name}"


@dataclass(frozen=True, kw_only=True)
class DeleteJob(_OfJob[None]):
    """Delete a job with its trials, events and profiles.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "DELETE"
    path = "/api/jobs/{name}"


@dataclass(frozen=True, kw_only=True)
class ShowLog(_OfJob[list[dict[str, Any]]]):
    """List the events of a job, from the one after number `after`.

    Attributes:
        job: Name of the job.
        after: Only events with `sequence` numbers above this one.
        most: Maximum number of events.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "GET"
    path = "/api/jobs/{name}/log"

    after: _Number = 0
    most: _Most = 100


@dataclass(frozen=True, kw_only=True)
class ShowProfiles(_OfJob[list[ProfileInfo]]):
    """List the measurements at the batch sizes of a job.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "GET"
    path = "/api/jobs/{name}/profiles"


@dataclass(frozen=True, kw_only=True)
class ShowSharedProfiles(_OfJob[list[ProfileInfo]]):
    """List the latest measurements of other jobs with the same `profile_key`.

    A token for one job gives no access to those of others: it gets an empty list.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "GET"
    path = "/api/jobs/{name}/profiles/shared"


@dataclass(frozen=True, kw_only=True)
class PutProfile(_OfJob[ProfileInfo]):
    """Store the measurements at a batch size; they replace earlier ones.

    Attributes:
        job: Name of the job.
        gpu: Model of the GPUs; `gpus` is their number.
        batch_size: The measured batch size.
        frontier: The frontier as returned by `Frontier.to_dict`, if it is to be kept.
        epoch_cost: Cost of an epoch in joules at the chosen limit, if known.
        load: Average power there as a fraction of the limit, if known.
        power_limit: The chosen limit in watts per GPU, if any.

    Raises:
        UnknownJobError: If there is no such job.
        JobLogError: If a value breaks a rule; `FrontierError` for a value of the frontier.
    """

    method = "PUT"
    path = "/api/jobs/{name}/profiles"

    gpu: values.Name
    gpus: values.Gpus = 1
    batch_size: values.BatchSize
    frontier: dict[str, Any] | None = None
    epoch_cost: values.EpochCost | None = None
    load: values.Load | None = None
    power_limit: values.Watts | None = None


@dataclass(frozen=True, kw_only=True)
class ListSizes(_OfJob[list[SizeInfo]]):
    """List what is known of an epoch of every batch size of a job on some GPUs.

    Attributes:
        job: Name of the job.
        gpu: Model of the GPUs; `gpus` is their number. By default the kind of GPUs that the job
            has met last.
        memory: Memory of one GPU in bytes, if known; see `Decide`, also for `replicas` and
            `max_local_batch_size`.

    Raises:
        UnknownJobError: If there is no such job.
    """

    method = "GET"
    path = "/api/jobs/{name}/sizes"

    gpu: values.Name | None = None
    gpus: values.Gpus = 1
    memory: values.Bytes | None = None
    replicas: values.Gpus | None = None
    max_local_batch_size: values.BatchSize | None = None


@dataclass(frozen=True, kw_only=True)
class PutSize(_OfJob[SizeInfo]):
    """Store what some steps of a batch size took, before any trial of it.

    Attributes:
        job: Name of the job.
        gpu: Model of the GPUs; `gpus` is their number.
        batch_size: The measured batch size.
        memory: Memory of one GPU in bytes, if known; see `Decide`, also for `replicas` and
            `max_local_batch_size`.
        epoch_cost: Cost of an epoch in joules at the power limit as it is, by the cost of a step;
            `None` if a step ran out of memory.
        load: Average power as a fraction of the maximum, if known.

    Raises:
        UnknownJobError: If there is no such job.
        JobLogError: If a value breaks a rule.
    """

    method = "PUT"
    path = "/api/jobs/{name}/sizes"

    gpu: values.Name
    gpus: values.Gpus = 1
    batch_size: values.BatchSize
    memory: values.Bytes | None = None
    replicas: values.Gpus | None = None
    max_local_batch_size: values.BatchSize | None = None
    epoch_cost: values.MeasuredCost | None = None
    load: values.Load | None = None


COMMANDS: tuple[type[JobCommand[Any]], ...] = (
    Decide,
    ListTrials,
    ReportEpoch,
    EndTrial,
    RenewTrial,
    ShowTrial,
    ListEpochs,
    CreateJob,
    ListJobs,
    SumJobs,
    ShowJob,
    TagJob,
    DeleteJob,
    ShowLog,
    ShowProfiles,
    ShowSharedProfiles,
    PutProfile,
    ListSizes,
    PutSize,
)
"""All commands that a server accepts, the most frequent first."""


@dataclass(frozen=True, kw_only=True)
class Sweep(JobCommand[None]):
    """Expire trials of a job whose lease has passed, and compute its account. Not for clients."""

    method = "POST"

    job_id: int


def trial_name(job: int, number: int) -> str:
    """Return the identifier of a trial, as clients use it."""
    return f"{job}-{number}"


def trial_key(name: object) -> tuple[int, int]:
    """Parse the identifier of a trial into the numbers of its job and the trial.

    Raises:
        UnknownJobError: If it is not a valid identifier.
    """
    if isinstance(name, str) and len(name) <= 40 and name.isascii():
        job, dash, number = name.partition("-")
        if dash and job.isdigit() and number.isdigit():
            key = int(job), int(number)
            if trial_name(*key) == name and key[0] < 2**63 and key[1] < MAX_TRIALS:
                return key
    raise UnknownJobError(f"there is no trial {str(name)[:80]!r}")

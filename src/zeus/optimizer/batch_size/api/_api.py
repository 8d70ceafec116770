"""Interface and response types of recurring jobs, the same for a local store and a server.

`JobsApi` is the interface between clients and the place where jobs are kept: `Jobs` works on a
store in this process, `RemoteJobs` asks a server. All values survive a JSON round trip unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._values import DEFAULT_LEASE


class _Record:
    """A dataclass of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; unknown fields of a newer server are ignored."""
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in record.items() if name in known})


@dataclass(frozen=True)
class Decision(_Record):
    """Configuration of a trial.

    Attributes:
        trial: Identifier of the trial, for reports.
        job: Name of its job.
        recurrence: Number of the job's recurrence, from 1.
        attempt: 0 for the recurrence's first trial.
        batch_size: Batch size to train with.
        optimize_power: Whether the power-limit optimizer chooses the power limit.
        power_limit: Power limit to set on each GPU in watts, if part of the decision.
        learning_rate_scale: Factor on the learning rate of the default batch size.
        threshold: Maximum cost in joules; `None` if there is no bound.
        expected_epochs: Expected epochs until convergence; `None` if unknown.
        role: Purpose of the trial: default, explore, exploit, sample or retry.
        reason: The purpose in words.
        lease: Seconds after which it expires, unless it reports or is renewed.
    """

    trial: str
    job: str
    recurrence: int
    attempt: int
    batch_size: int
    optimize_power: bool
    power_limit: float | None
    learning_rate_scale: float
    threshold: float | None
    expected_epochs: float | None
    role: str
    reason: str
    lease: float


@dataclass(frozen=True)
class Verdict(_Record):
    """Response to a report: whether the trial continues.

    Attributes:
        go_on: Whether to run another epoch.
        outcome: How the trial ended: converged, stopped, failed, expired or cancelled; `None` if it
            continues.
        reason: Why, in words.
    """

    go_on: bool
    outcome: str | None
    reason: str


@dataclass(frozen=True)
class JobInfo(_Record):
    """A job and its progress.

    Attributes:
        name: Its name.
        spec: Its specification as returned by `JobSpec.to_dict`.
        created: Creation time in seconds since 1970; `updated` is when its log last grew.
        recurrences: Number of recurrences so far.
        trials: Number of trials so far.
        running: Number of trials running now.
        damage: Why its record cannot be read, if so: the specification is then empty, and the job
            can only be deleted.
    """

    name: str
    spec: dict[str, Any]
    created: float
    updated: float
    recurrences: int
    trials: int
    running: int
    damage: str = ""


@dataclass(frozen=True)
class TrialInfo(_Record):
    """A trial and its result.

    Attributes:
        trial: Identifier of the trial.
        number: Number within its job, from 1.
        recurrence: Number of the job's recurrence, from 1.
        attempt: 0 for the recurrence's first trial.
        state: "running", or how it ended.
        gpu: Model of its GPUs; `gpus` is their number.
        max_power: Maximum power of all its GPUs together in watts.
        batch_size: Batch size that it trained with.
        role: Purpose of the trial.
        threshold: Maximum cost in joules; `None` if there was no bound.
        began: Start in seconds since 1970; `ended` likewise, if it has ended.
        epochs: Number of reported epochs.
        time: Duration in seconds.
        energy: Joules of all GPUs; `None` if a part could not be measured.
        cost: Cost in joules.
        metric: Its latest validation metric, if any.
        note: Why it ended, in words.
    """

    trial: str
    number: int
    recurrence: int
    attempt: int
    state: str
    gpu: str
    gpus: int
    max_power: float
    batch_size: int
    role: str
    threshold: float | None
    began: float
    ended: float | None
    epochs: int
    time: float
    energy: float | None
    cost: float
    metric: float | None
    note: str


@dataclass(frozen=True)
class ProfileInfo(_Record):
    """Time-energy tradeoff of power limits at one batch size of a job, on one GPU configuration.

    Attributes:
        gpu: Model of the GPUs; `gpus` is their number.
        batch_size: The measured batch size.
        at: Time of the measurement in seconds since 1970.
        epoch_cost: Cost of an epoch in joules at the chosen limit, if known.
        load: Average power there as a fraction of the limit, if known.
        power_limit: The chosen limit in watts per GPU, if any.
        frontier: The frontier as returned by `Frontier.to_dict`, if kept.
    """

    gpu: str
    gpus: int
    batch_size: int
    at: float
    epoch_cost: float | None
    load: float | None
    power_limit: float | None
    frontier: dict[str, Any] | None


class JobsApi(Protocol):
    """Operations on recurring jobs, in a local store or on a server.

    Every call may raise `StorageError` or `ServerError`; it is then safe to repeat the call.
    """

    def create(self, spec: JobSpec) -> JobInfo:
        """Create a job unless it exists.

        Raises:
            JobConflictError: If a job of that name exists with another specification.
            JobSpecError: If the specification breaks a rule.
        """

    def decide(
        self,
        job: str,
        *,
        gpu: str,
        max_power: float,
        gpus: int = 1,
        request: str | None = None,
        retry_of: str | None = None,
        lease: float = DEFAULT_LEASE,
        default: bool = False,
    ) -> Decision:
        """Begin a trial.

        Args:
            job: Name of the job.
            gpu: Model of the GPUs that the trial will run on.
            max_power: Maximum power of all these GPUs together in watts.
            gpus: Number of GPUs.
            request: Idempotency key: a repeated key returns the same trial, so that all processes
                of a run, and a repeated call, begin only one. By default a new key.
            retry_of: The previous trial of the same recurrence, which did not converge.
            lease: Seconds after which the trial expires without a report or renewal.
            default: The run uses the default batch size in any case, because it started before
                it could ask. Grid search has no such trials, and decides as usual.

        Raises:
            UnknownJobError: If there is no such job.
            JobLogError: If the trial cannot be retried, or a value breaks a rule.
            JobConflictError: If the request was made before with other values.
        """

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
        """Report an epoch; the trial has ended if the verdict is not to go on.

        Args:
            trial: Identifier from a `Decision`.
            epoch: Number of the epoch, from 1 without gaps. A repeated report counts once.
            time: Duration in seconds, including validation.
            energy: Joules of all GPUs; `None` if it could not be measured.
            metric: Validation metric after it; `None` if there was no validation.
            power_limit: Power limit of each GPU in watts, if known.

        Raises:
            UnknownJobError: If there is no such trial.
            JobConflictError: If the trial has ended, or the epoch was reported with other values.
            JobLogError: If an earlier epoch is missing, or a value breaks a rule.
        """

    def end(
        self,
        trial: str,
        outcome: str,
        *,
        time: float = 0.0,
        energy: float | None = 0.0,
        note: str = "",
    ) -> Verdict:
        """End a trial that did not end by its reports; one that has ended is not changed.

        Args:
            trial: Identifier from a `Decision`.
            outcome: "failed" if it crashed, for example out of memory; "cancelled" if nothing can
                be learned from it.
            time: Seconds since the last reported epoch.
            energy: Joules since then; `None` if not measured.
            note: Why, in words.

        Raises:
            UnknownJobError: If there is no such trial.
            JobLogError: If a value breaks a rule.
        """

    def renew(self, trial: str) -> Verdict:
        """Renew the lease of a running trial.

        Raises:
            UnknownJobError: If there is no such trial.
        """

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
        """Store the profile of a batch size, replacing a previous one.

        Raises:
            UnknownJobError: If there is no such job.
            JobLogError: If a value breaks a rule; `FrontierError` for a value of the frontier.
        """

    def profiles(self, job: str) -> Sequence[ProfileInfo]:
        """Return all profiles of a job.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def jobs(self, after: str = "", most: int = 100) -> Sequence[JobInfo]:
        """Return up to `most` jobs by name, starting after the name `after`."""

    def job(self, name: str) -> JobInfo:
        """Return one job.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def trials(self, job: str, before: int | None = None, most: int = 100) -> Sequence[TrialInfo]:
        """Return up to `most` trials of a job, latest first, with numbers below `before`.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def log(self, job: str, after: int = 0, most: int = 1000) -> Sequence[dict[str, Any]]:
        """Return up to `most` events of a job with `sequence` numbers above `after`.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def delete(self, job: str) -> None:
        """Delete a job and everything that belongs to it.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def close(self) -> None:
        """Close connections."""

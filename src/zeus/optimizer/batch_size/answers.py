"""What is said about recurring jobs, by a store of one's own or by a server alike.

`JobsApi` is the seam between clients and wherever the jobs are kept: `Jobs` works on a store in
this process, `RemoteJobs` asks a server. All values become JSON and back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

from zeus.optimizer.batch_size.spec import JobSpec
from zeus.optimizer.batch_size.values import DEFAULT_LEASE


class _Record:
    """A dataclass of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The opposite of `to_dict`; what a newer server says besides is left out."""
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in record.items() if name in known})


@dataclass(frozen=True)
class Decision(_Record):
    """What a trial is to do.

    Attributes:
        trial: Names it in reports.
        job: Name of its job.
        recurrence: Of the job, from 1.
        attempt: 0 for the recurrence's first trial.
        batch_size: To train with.
        optimize_power: Whether the power-limit optimizer chooses the power limit.
        power_limit: Watts of each GPU to set, if that is part of the decision.
        learning_rate_scale: Factor on the learning rate of the default batch size.
        threshold: Joules that it may cost; `None` if there is no bound.
        expected_epochs: Until convergence; `None` if nothing is believed.
        role: What it is for: default, explore, exploit, sample or retry.
        reason: The same in words.
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
    """What a trial is to do after it has reported.

    Attributes:
        go_on: Whether to run another epoch.
        outcome: How the trial ended: converged, stopped, failed, expired or cancelled; `None` if it
            goes on.
        reason: Why, in words.
    """

    go_on: bool
    outcome: str | None
    reason: str


@dataclass(frozen=True)
class JobInfo(_Record):
    """A job and how far it is.

    Attributes:
        name: Its name.
        spec: Its specification as `JobSpec.to_dict` gives it.
        created: When, in seconds since 1970; `updated` when its log last grew.
        recurrences: How many there were.
        trials: How many there were.
        running: How many of them run now.
        damage: Why its record cannot be read, if so: the specification is then empty, and nothing
            can be done with the job but to delete it.
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
    """A trial and what became of it.

    Attributes:
        trial: Names it.
        number: Within its job, from 1.
        recurrence: Of the job, from 1.
        attempt: 0 for the recurrence's first trial.
        state: "running", or how it ended.
        gpu: Model of its GPUs; `gpus` how many.
        max_power: Watts that they may draw together at most.
        batch_size: What it trained with.
        role: What it was for.
        threshold: Joules that it might cost; `None` if there was no bound.
        began: When, in seconds since 1970; `ended` likewise, if it has.
        epochs: How many it reported.
        time: Seconds that it took.
        energy: Joules of all GPUs; `None` if a part could not be measured.
        cost: Joules of cost.
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
    """What power limits trade at one batch size of a job, on one kind of GPUs.

    Attributes:
        gpu: Model of the GPUs; `gpus` how many.
        batch_size: That was measured.
        at: When, in seconds since 1970.
        epoch_cost: Joules that an epoch costs at the chosen limit, if known.
        load: Average power there as a share of the limit, if known.
        power_limit: The limit that was chosen, in watts of each GPU, if any.
        frontier: As `Frontier.to_dict` gives it, if kept.
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
    """Recurring jobs, wherever they are kept.

    Every call may raise `StorageError` or `ServerError`; the same call again is then safe.
    """

    def create(self, spec: JobSpec) -> JobInfo:
        """Make sure that a job exists.

        Raises:
            JobConflictError: If there is one of that name with another specification.
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
            job: Its name.
            gpu: Model of the GPUs that it will run on.
            max_power: Watts that they may draw together at most.
            gpus: How many there are.
            request: Names this request: the same again gets the same trial, so that all processes
                of a run, and a repeated question, begin only one. By default a new one.
            retry_of: The trial before in the same recurrence, which did not converge.
            lease: Seconds after which it expires if nothing is heard of it.
            default: It runs with the default batch size in any case, because it could not ask
                before. Grid search knows no such trials, and decides.

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
        """Report an epoch; the trial ends by itself when the verdict is not to go on.

        Args:
            trial: Of a `Decision`.
            epoch: From 1, each one more than the last. The same again counts once.
            time: Seconds that it took, with its validation.
            energy: Joules of all GPUs; `None` if it could not be measured.
            metric: Validation metric after it; `None` if there was no validation.
            power_limit: Watts that each GPU was limited to, if known.

        Raises:
            UnknownJobError: If there is no such trial.
            JobConflictError: If the trial is over, or the epoch was reported with other values.
            JobLogError: If an epoch is missing in between, or a value breaks a rule.
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
        """End a trial that did not end by itself; one that is over stays as it ended.

        Args:
            trial: Of a `Decision`.
            outcome: "failed" if it broke down, as for want of memory; "cancelled" if nothing can be
                learned from it.
            time: Seconds since the last epoch that was reported.
            energy: Joules since then; `None` if they could not be measured.
            note: Why, in words.

        Raises:
            UnknownJobError: If there is no such trial.
            JobLogError: If a value breaks a rule.
        """

    def renew(self, trial: str) -> Verdict:
        """Say that a trial still runs, so that its lease starts over.

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
        """Keep what was measured at a batch size, in place of what was kept before.

        Raises:
            UnknownJobError: If there is no such job.
            JobLogError: If a value breaks a rule; `FrontierError` if it is one of the frontier.
        """

    def profiles(self, job: str) -> Sequence[ProfileInfo]:
        """All that were kept.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def jobs(self, after: str = "", most: int = 100) -> Sequence[JobInfo]:
        """Jobs in the order of their names, from the one after `after`."""

    def job(self, name: str) -> JobInfo:
        """One job.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def trials(self, job: str, before: int | None = None, most: int = 100) -> Sequence[TrialInfo]:
        """Trials of a job, the latest first, from the one before number `before`.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def log(self, job: str, after: int = 0, most: int = 1000) -> Sequence[dict[str, Any]]:
        """Events of a job with their `sequence` numbers, from the one after `after`.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def delete(self, job: str) -> None:
        """Forget a job and everything that belongs to it.

        Raises:
            UnknownJobError: If there is no such job.
        """

    def close(self) -> None:
        """Give up connections."""

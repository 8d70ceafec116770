"""Answers to the commands on recurring jobs.

All values survive a JSON round trip unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self


class _Record:
    """A dataclass of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; unknown fields of a newer server are ignored."""
        known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
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
        reason: Why this batch size, in words.
        lease: Seconds after which it expires, unless it reports or is renewed.
        epochs: Number of epochs that were reported by earlier starts of the same run.
        resumed: Whether an earlier start of the same run began the trial.
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
    epochs: int = 0
    resumed: bool = False


@dataclass(frozen=True)
class Verdict(_Record):
    """Response to a report: whether the trial continues.

    Attributes:
        go_on: Whether to run another epoch.
        outcome: How the trial ended: converged, stopped, failed, expired or cancelled; `None` if it
            continues.
        reason: Why, in words.
        warning: What the program seems to do wrong, if the trial has ended; it is also a part of
            the reason.
        retry: Whether another trial of the same recurrence makes sense, if this one has ended
            without success. It does not if no batch size has reached the target for long.
    """

    go_on: bool
    outcome: str | None
    reason: str
    warning: str = ""
    retry: bool = True


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
        tags: Its tags, in alphabetical order.
        state: "running", or how its latest trial ended; empty if there was none.
        gpu: Model of the GPUs of its latest trial; `gpus` is their number. Empty and 0 without one.
        batch_size: Batch size of that trial.
        energy: Joules of the trials that have ended, like all that follows; `None` if unknown.
        unmeasured: Number of trials whose energy was not measured: `energy` does not include them.
        time: Seconds of these trials; `cost` in joules likewise.
        wasted: Joules of those that did not reach the target; `None` if unknown.
        saved_energy: Joules saved compared with the default batch size at full power, whatever was
            spent on runs that missed the target included; negative if the job took more; `None` if
            there is nothing to compare with. `saved_time` in seconds, `saved_cost` in joules.
        default_energy: Joules that the default would have taken; `None` if unknown. `default_time`
            and `default_cost` likewise.
        basis: Whether the default was "measured" or "predicted"; empty if there is no comparison.
        comparison: What the comparison rests on, in words, or why there is none.
        trouble: Why the job needs a person, in words; empty if it does not.
    """

    name: str
    spec: dict[str, Any]
    created: float
    updated: float
    recurrences: int
    trials: int
    running: int
    damage: str = ""
    tags: list[str] = field(default_factory=list)
    state: str = ""
    gpu: str = ""
    gpus: int = 0
    batch_size: int | None = None
    energy: float | None = None
    unmeasured: int = 0
    time: float | None = None
    cost: float | None = None
    wasted: float | None = None
    saved_energy: float | None = None
    saved_time: float | None = None
    saved_cost: float | None = None
    default_energy: float | None = None
    default_time: float | None = None
    default_cost: float | None = None
    basis: str = ""
    comparison: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class JobTotals(_Record):
    """Sums over several jobs.

    Attributes:
        jobs: Number of jobs.
        running: Number of their running trials.
        trouble: Number of jobs that need a person.
        energy: Joules of all trials that have ended and were measured; `time` and `cost` are those
            of all that have ended.
        unmeasured: Number of trials whose energy was not measured.
        wasted: Joules of trials that did not reach the target.
        compared: Number of jobs whose energy can be compared with the default batch size;
            `predicted` of these with a default that was predicted, not measured.
        saved_energy: Joules that these saved; `None` if there is none of them. `saved_time` and
            `saved_cost` likewise.
        default_energy: Joules that the default would have taken; `None` if there is none of them.
            `default_time` and `default_cost` likewise.
    """

    jobs: int
    running: int
    trouble: int
    energy: float
    time: float
    cost: float
    unmeasured: int
    wasted: float
    compared: int
    predicted: int
    saved_energy: float | None
    saved_time: float | None
    saved_cost: float | None
    default_energy: float | None
    default_time: float | None
    default_cost: float | None


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
        best: Its best validation metric, if any: that held in as many evaluations in a row as the
            target must.
        reason: Why it was decided, in words.
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
    best: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class EpochInfo(_Record):
    """An epoch of a trial.

    Attributes:
        epoch: Its number, from 1.
        at: When it was reported, in seconds since 1970.
        time: Duration in seconds, including validation.
        energy: Joules of all GPUs; `None` if it was not measured.
        metric: Validation metric after it; `None` if there was no validation.
        power_limit: Power limit of each GPU in watts; `None` if unknown.
        steps: Number of training steps; `None` if they were not counted.
    """

    epoch: int
    at: float
    time: float
    energy: float | None
    metric: float | None
    power_limit: float | None
    steps: int | None = None


@dataclass(frozen=True)
class SizeInfo(_Record):
    """What is known of an epoch of a batch size of a job, on one GPU configuration.

    Attributes:
        batch_size: The batch size.
        state: "trained" if a trial has shown it, or a profile; "measured" if only some steps were;
            "unfit" if it does not fit in memory; else "unknown".
        epoch_cost: Expected cost of an epoch in joules, at the best power limit as far as that is
            known; `None` if unknown.
        measure: Whether some steps of it should be measured before the next decision.
    """

    batch_size: int
    state: str
    epoch_cost: float | None
    measure: bool


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

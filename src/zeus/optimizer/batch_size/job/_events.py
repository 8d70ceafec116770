"""Events of a job's trials.

Events contain only what cannot be derived from the specification and earlier events; totals and
costs are derived. A store keeps the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from zeus._rules import Number, OneOf, Whole, enforce
from zeus.errors import JobLogError
from zeus.optimizer._stopping import TRIAL_OUTCOMES
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._choice import Choice
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.job._share import local_size

_Number = Annotated[int, Whole(0, 2**53)]


class GpuModel(NamedTuple):
    """GPU configuration of a run; the cost of an epoch depends on both attributes.

    Attributes:
        name: The GPU model.
        number: Number of GPUs.
    """

    name: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of events.

    Attributes:
        trial: Number of the trial within its job, from 1; 0 if there is none.
        at: Time in seconds since 1970.
    """

    kind: ClassVar[str]
    trial: values.Count
    at: Annotated[float, Number(0.0, 1e12)]

    def __post_init__(self) -> None:
        enforce(self, JobLogError)

    def payload(self) -> dict[str, Any]:
        """Everything but kind, trial and instant, as plain values for JSON."""
        return {name: each for name, each in vars(self).items() if name not in ("trial", "at")}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        return {"kind": self.kind, "trial": self.trial, "at": self.at, **self.payload()}


@dataclass(frozen=True, kw_only=True)
class GpuEvent(Event):
    """Base class of events that say how a batch size uses GPUs.

    Attributes:
        batch_size: Samples of one step of the optimizer, of all GPUs together.
        gpu: Model of the GPUs; `gpus` is their number.
        memory: Memory of one GPU in bytes, of the smallest if they differ; `None` if unknown.
        replicas: Number of data-parallel replicas that share a batch equally; `None` if the client
            did not state it.
        max_local_batch_size: Maximum samples that one replica trains on at once, by accumulating
            gradients; `None` if there is no such bound.
    """

    batch_size: values.BatchSize
    gpu: values.Name
    gpus: values.Gpus = 1
    memory: values.Bytes | None = None
    replicas: values.Gpus | None = None
    max_local_batch_size: values.BatchSize | None = None

    @property
    def model(self) -> GpuModel:
        """Model and number of the GPUs."""
        return GpuModel(self.gpu, self.gpus)

    @property
    def local_batch_size(self) -> int:
        """Samples of one replica at once, which must fit in memory; rounded up if not equal."""
        return local_size(self.batch_size, self.replicas or self.gpus, self.max_local_batch_size)


@dataclass(frozen=True, kw_only=True)
class Decided(Choice, GpuEvent):
    """A trial may begin, with the configuration of a choice.

    Attributes:
        request: Idempotency key of the client; a repeated key returns the same trial.
        run: Name of the client's run, under which it may be started again; `None` if it has none.
        recurrence: Number of the job's recurrence, from 1.
        attempt: 0 for the recurrence's first trial.
        retry_of: Number of the previous trial, if this is a retry.
        max_power: Maximum power of all its GPUs together in watts.
        lease: Seconds after which the trial expires without a report or renewal.
    """

    kind: ClassVar[str] = "decided"
    request: values.Name
    run: values.Name | None = None
    recurrence: values.Count
    attempt: _Number = 0
    retry_of: values.Count | None = None
    max_power: values.Watts
    lease: values.Lease = values.DEFAULT_LEASE

    def __post_init__(self) -> None:
        if (self.retry_of is None) != (self.attempt == 0):
            raise JobLogError(
                "a retry, and nothing else, has `attempt > 0` and `retry_of`, but got "
                f"(attempt={self.attempt!r}, retry_of={self.retry_of!r})"
            )
        super().__post_init__()
        object.__setattr__(self, "role", _role(self.role))

    def payload(self) -> dict[str, Any]:
        """Everything but kind, trial and instant, as plain values for JSON."""
        return {**super().payload(), "role": self.role.name.lower()}


@dataclass(frozen=True, kw_only=True)
class EpochReported(Event):
    """An epoch of a trial was run.

    Attributes:
        epoch: Number of the epoch, from 1 without gaps.
        time: Duration in seconds, including validation.
        energy: Joules of all GPUs; `None` if it could not be measured.
        metric: Validation metric after it; `None` if there was no validation.
        power_limit: Power limit of each GPU in watts; `None` if unknown.
        steps: Number of training steps; `None` if they were not counted.
    """

    kind: ClassVar[str] = "epoch"
    epoch: values.Epochs
    time: values.Duration
    energy: values.Joules | None = None
    metric: values.Metric | None = None
    power_limit: values.Watts | None = None
    steps: values.Steps | None = None


@dataclass(frozen=True, kw_only=True)
class Profiled(Event):
    """The time-energy tradeoff of power limits was measured at a batch size.

    Attributes:
        gpu: Model of the GPUs; `gpus` is their number.
        batch_size: The measured batch size.
        epoch_cost: Cost of an epoch in joules at the chosen limit; `None` if unknown.
        load: Average power there as a fraction of the limit; `None` if unknown.
        power_limit: The chosen limit in watts per GPU; `None` if none was chosen.
        frontier: The frontier as returned by `Frontier.to_dict`; `None` if it is not kept.
    """

    kind: ClassVar[str] = "profiled"
    trial: _Number
    gpu: values.Name
    gpus: values.Gpus = 1
    batch_size: values.BatchSize
    epoch_cost: values.EpochCost | None = None
    load: values.Load | None = None
    power_limit: values.Watts | None = None
    frontier: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frontier is not None and not isinstance(self.frontier, Mapping):
            raise JobLogError(f"`frontier` must be a mapping, but got {self.frontier!r}")

    @property
    def model(self) -> GpuModel:
        """Model and number of the GPUs."""
        return GpuModel(self.gpu, self.gpus)


@dataclass(frozen=True, kw_only=True)
class SizeMeasured(GpuEvent):
    """Steps with a batch size were measured for some seconds, before any trial needs it.

    Attributes:
        epoch_cost: Cost of an epoch in joules at the power limit as it was, by the cost of a step;
            `None` if a step ran out of memory.
        load: Average power as a fraction of the maximum; `None` if unknown.
    """

    kind: ClassVar[str] = "measured"
    trial: _Number = 0
    epoch_cost: values.MeasuredCost | None = None
    load: values.Load | None = None


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    """A trial whose lease had expired reports again."""

    kind: ClassVar[str] = "resumed"


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """A trial is over.

    Attributes:
        outcome: One of `TRIAL_OUTCOMES`.
        time: Seconds since the last reported epoch.
        energy: Joules since then; `None` if not measured.
        note: Why, in words.
        advice: Why another trial of the same recurrence makes no sense, in words; empty if it may.
            It is kept so that a repeated report gets the same answer, whatever happened since.
    """

    kind: ClassVar[str] = "ended"
    outcome: Annotated[str, OneOf(TRIAL_OUTCOMES)]
    time: values.Seconds = 0.0
    energy: values.Joules | None = 0.0
    note: values.Words = ""
    advice: values.Words = ""


_KINDS: dict[str, type[Event]] = {
    kind.kind: kind for kind in (Decided, EpochReported, Profiled, SizeMeasured, Resumed, Ended)
}


def event_of(kind: str, trial: int, at: float, payload: Mapping[str, Any]) -> Event:
    """Construct an event from its stored fields.

    Raises:
        JobLogError: If there is no such kind, or a value breaks its rule.
    """
    if kind not in _KINDS:
        raise JobLogError(f"`kind` must be one of {', '.join(_KINDS)}, but got {kind!r}")
    try:
        return _KINDS[kind](trial=trial, at=at, **payload)
    except TypeError as error:
        raise JobLogError(f"an event of kind {kind!r} is not made of {payload!r}") from error


def event_from(record: Mapping[str, Any]) -> Event:
    """Inverse of `to_dict`.

    Raises:
        JobLogError: If a value is missing or breaks its rule.
    """
    rest = dict(record)
    missing = [name for name in ("kind", "trial", "at") if name not in rest]
    if missing:
        raise JobLogError(f"an event needs {', '.join(missing)}, but got {record!r}")
    return event_of(rest.pop("kind"), rest.pop("trial"), rest.pop("at"), rest)


def _role(value: Any) -> Role:
    if isinstance(value, Role):
        return value
    names = [role.name.lower() for role in Role]
    if value not in names:
        raise JobLogError(f"`role` must be one of {', '.join(names)}, but got {value!r}")
    return Role[str(value).upper()]

"""Reports of a run, and how many of them were delivered.

The server or store may be unreachable for a while. So everything is recorded first and delivered
afterwards, in order. Delivery is idempotent: a trial is requested under one key, and an epoch
counts once however often it is reported.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic as clock
from typing import Any

from zeus.errors import FrontierError, JobLogError, RequestError, ServerError
from zeus.optimizer._stopping import TRIAL_OUTCOMES, Outcome
from zeus.optimizer.batch_size.api._answers import Decision, Verdict
from zeus.optimizer.batch_size.api._api import JobsApi
from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    EndTrial,
    PutProfile,
    PutSize,
    ReportEpoch,
)
from zeus.optimizer.batch_size.job import _values as values
from zeus.optimizer.batch_size.job._share import can_share, nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec

MAX_EPOCHS = 10_000
"""Undelivered epochs that are kept for one run."""

_RENAMED = "ran with batch size {ran} while the server could not be reached, not with {decided}"


@dataclass
class RunReport:
    """Recorded reports of a run.

    Attributes:
        place: URL of the server or store that keeps its job.
        spec: The job.
        gpu: Model of its GPUs; `gpus` is their number; `max_power` in watts of all together.
        batch_size: Batch size that it runs with, of all its GPUs together.
        at: Start in seconds since 1970.
        memory: Memory of one GPU in bytes, if known.
        replicas: Number of data-parallel replicas that share a batch, if known.
        max_local_batch_size: Maximum samples of one replica at once, if bounded.
        request: Idempotency key of the request for a trial.
        run: Name of the run, under which it may be started again, if it has one.
        resume: Whether the run may have been started before.
        done: Number of epochs that earlier starts of the run have reported.
        retry_of: The previous trial of the same recurrence, if any.
        lease: Seconds after which the trial expires without a report or renewal.
        trial: Identifier of its trial, once known.
        apart: Whether the run is not a trial of the job: another batch size was decided.
        epochs: All recorded epochs, as fields of `ReportEpoch`; the first `told` of
            these were acknowledged.
        profile: Fields of `PutProfile`, until delivered.
        sizes: Measured batch sizes, as fields of `PutSize`, until delivered.
        end: Fields of `EndTrial`, until delivered.
        verdict: The latest verdict.
        tags: Tags of the job, if it does not exist yet.
    """

    place: str
    spec: JobSpec
    gpu: str
    gpus: int
    max_power: float
    batch_size: int
    at: float
    memory: int | None = None
    replicas: int | None = None
    max_local_batch_size: int | None = None
    request: str = field(default_factory=lambda: uuid.uuid4().hex)
    run: str | None = None
    resume: bool = False
    done: int = 0
    retry_of: str | None = None
    lease: float = values.DEFAULT_LEASE
    trial: str | None = None
    apart: bool = False
    epochs: list[dict[str, Any]] = field(default_factory=list)
    told: int = 0
    profile: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    verdict: Verdict | None = None
    tags: tuple[str, ...] = ()
    sizes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def default_batch_size(self) -> int:
        """The default, or the batch size nearest to it that the replicas can share equally.

        Raises:
            RunError: If they can share none.
        """
        spec = self.spec
        return nearest_shared(spec.default_batch_size, spec.batch_sizes, self.replicas or 1)

    # --- recording ------------------------------------------------------------------------------

    def note_epoch(
        self, time: float, energy: float | None, metric: float | None, **more: Any
    ) -> None:
        """Record an epoch; the arguments are fields of `ReportEpoch`, without `epoch`."""
        if len(self.epochs) - self.told >= MAX_EPOCHS:
            return  # later epochs cannot be delivered either: they must come in order
        # A metric that is NaN or out of range cannot have reached the target.
        known = metric is not None and abs(metric) <= values.MAX_METRIC
        self.epochs.append(
            {
                "epoch": self.recorded + 1,
                "time": max(time, 1e-9),
                "energy": None if energy is None else max(energy, 0.0),
                "metric": metric if known else None,
                **more,
            }
        )

    @property
    def recorded(self) -> int:
        """Number of epochs of the run so far, with those of earlier starts."""
        return self.done + len(self.epochs)

    @property
    def over(self) -> bool:
        """Whether the trial has ended, so that later reports are ignored."""
        return self.verdict is not None and not self.verdict.go_on

    @property
    def pending(self) -> bool:
        """Whether anything is undelivered."""
        if self.profile is not None or self.sizes:
            return True
        waiting = self.told < len(self.epochs) or self.end is not None
        return waiting and not (self.apart or self.over)

    # --- delivering -----------------------------------------------------------------------------

    def ask(self, api: JobsApi, *, default: bool = False) -> Decision:
        """Request a trial, or the same again; its batch size may differ from that of the run.

        Args:
            api: Server or store.
            default: The run has begun with the default batch size.

        Raises:
            ZeusError: As documented by the commands.
        """
        api.do(CreateJob(spec=self.spec, tags=self.tags))
        decision = api.do(
            Decide(
                job=self.spec.name,
                gpu=self.gpu,
                max_power=self.max_power,
                gpus=self.gpus,
                memory=self.memory,
                replicas=self.replicas,
                max_local_batch_size=self.max_local_batch_size,
                request=self.request,
                run=self.run,
                resume=self.resume,
                retry_of=self.retry_of,
                lease=self.lease,
                default=default,
            )
        )
        return checked_decision(decision, self.spec, self.replicas or 1)

    def tell(
        self, api: JobsApi, complain: Callable[[str], None], *, within: float = math.inf
    ) -> None:
        """Deliver everything pending. After an error, or if any is left, call it again.

        Args:
            api: Server or store.
            complain: Called with a message for each rejected report.
            within: Seconds after which the rest has to wait; at least one report is sent.

        Raises:
            ZeusError: As documented by the commands.
        """
        began = clock()
        if self.trial is None and not self.apart:
            self._join(api, complain)
        self._tell_sizes(api, complain)
        if self.profile is not None:
            try:
                api.do(PutProfile(job=self.spec.name, **self.profile))
            except (FrontierError, JobLogError, RequestError) as error:
                complain(f"the profile was not accepted: {error}")
            self.profile = None
        if self.apart or self.trial is None:
            return
        while self.told < len(self.epochs) and not self.over:
            verdict = checked_verdict(
                api.do(ReportEpoch(trial=self.trial, **self.epochs[self.told]))
            )
            self.verdict, self.told = verdict, self.told + 1
            if clock() - began > within and self.pending:
                return
        if self.end is not None and not self.over:
            self.verdict = checked_verdict(api.do(EndTrial(trial=self.trial, **self.end)))
        self.end = None

    def _tell_sizes(self, api: JobsApi, complain: Callable[[str], None]) -> None:
        if self.sizes:
            api.do(CreateJob(spec=self.spec, tags=self.tags))
        while self.sizes:
            try:
                api.do(PutSize(job=self.spec.name, **self.sizes[0]))
            except (JobLogError, RequestError) as error:
                complain(f"a measured batch size was not accepted: {error}")
            del self.sizes[0]

    def _join(self, api: JobsApi, complain: Callable[[str], None]) -> None:
        """Become a trial after all, unless another batch size was already decided."""
        decision = self.ask(api, default=self.batch_size == self.default_batch_size)
        if decision.batch_size == self.batch_size:
            self.trial = decision.trial
            # Epochs that an earlier start of the run has reported count once.
            self.epochs = [each for each in self.epochs if each["epoch"] > decision.epochs]
            self.done = max(self.done, decision.epochs)
            return
        note = _RENAMED.format(ran=self.batch_size, decided=decision.batch_size)
        api.do(EndTrial(trial=decision.trial, outcome=Outcome.CANCELLED, note=note))
        complain(f"the run counts for its profile only: it {note}")
        self.apart = True

    # --- as text --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RunReport:
        """Inverse of `to_dict`.

        Raises:
            ValueError: If the record is invalid.
        """
        try:
            rest = dict(record)
            verdict = rest["verdict"]
            rest["verdict"] = None if verdict is None else Verdict.from_dict(verdict)
            rest["tags"] = tuple(rest.get("tags", ()))
            notes = cls(**{**rest, "spec": JobSpec.from_dict(rest["spec"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the notes of a run: {error}") from error
        kinds = {"place": str, "request": str, "gpu": str, "epochs": list, "told": int}
        for name, kind in kinds.items():
            if not isinstance(rest.get(name), kind):
                raise ValueError(f"not the notes of a run: `{name}` is {rest.get(name)!r:.60}")
        return notes


# --- validation of answers ------------------------------------------------------------------------


def checked_decision(decision: Decision, spec: JobSpec, replicas: int = 1) -> Decision:
    """Return a decision that a run can follow.

    Args:
        decision: As received.
        spec: The job.
        replicas: Number of replicas that must be able to share the batch equally.

    Raises:
        ServerError: If it is invalid.
    """
    # Received over the network: the annotated types are not guaranteed.
    said: Mapping[str, Any] = vars(decision)
    makes_sense = (
        isinstance(said["trial"], str)
        and said["trial"] != ""
        and isinstance(said["batch_size"], int)
        and said["batch_size"] in spec.batch_sizes
        and can_share(said["batch_size"], replicas)
        and isinstance(said["optimize_power"], bool)
        and isinstance(said["epochs"], int)
        and said["epochs"] >= 0
        and all(_positive(said[name]) for name in ("learning_rate_scale", "lease"))
        and all(
            said[name] is None or _positive(said[name]) for name in ("threshold", "power_limit")
        )
    )
    if not makes_sense:
        raise ServerError(f"the server's decision makes no sense: {decision!r:.200}")
    return decision


def checked_verdict(verdict: Verdict) -> Verdict:
    """Return a verdict that a run can follow.

    Raises:
        ServerError: If it is invalid.
    """
    said: Mapping[str, Any] = vars(verdict)
    outcome = said["outcome"]
    known = outcome is None if said["go_on"] else outcome in TRIAL_OUTCOMES
    if not (isinstance(said["go_on"], bool) and isinstance(said["retry"], bool) and known):
        raise ServerError(f"the server's verdict makes no sense: {verdict!r:.200}")
    return verdict


def _positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0

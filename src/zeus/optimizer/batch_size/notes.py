"""What a run has to tell about itself, and how much of it has been told.

Whoever keeps the jobs may be away for a while. So everything is noted first and told afterwards, in
order, and telling it twice does no harm: a trial is asked for under the name of one request, and an
epoch is counted once however often it is reported.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic as clock
from typing import Any

from zeus.errors import FrontierError, JobLogError, RequestError, ServerError
from zeus.optimizer.batch_size import values
from zeus.optimizer.batch_size.answers import Decision, JobsApi, Verdict
from zeus.optimizer.batch_size.spec import JobSpec

MOST_EPOCHS = 10_000
"""Epochs of one run that are kept while nobody takes them."""

# The words of `events.OUTCOMES`, for processes that have no numpy.
CONVERGED, STOPPED, FAILED = "converged", "stopped", "failed"
EXPIRED, CANCELLED = "expired", "cancelled"
_OUTCOMES = (CONVERGED, STOPPED, FAILED, EXPIRED, CANCELLED)
_RENAMED = "ran with batch size {ran} while the server could not be reached, not with {decided}"


@dataclass
class Notes:
    """A run's notes.

    Attributes:
        place: URL of where its job is kept.
        spec: The job.
        gpu: Model of its GPUs; `gpus` how many; `max_power` watts of all together.
        batch_size: What it runs with.
        at: When it began, in seconds since 1970.
        request: Names the question for a trial.
        retry_of: The trial before in the same recurrence, if there was one.
        lease: Seconds after which the trial expires if nothing is heard of it.
        trial: The trial that it is, once that is known.
        apart: Whether the job knows it as no trial: another batch size was decided.
        epochs: All that were noted, as `JobsApi.report_epoch` takes them; `told` how many of these
            were acknowledged.
        profile: As `JobsApi.put_profile` takes it, until it was told.
        end: As `JobsApi.end` takes it, until it was told.
        verdict: The latest.
    """

    place: str
    spec: JobSpec
    gpu: str
    gpus: int
    max_power: float
    batch_size: int
    at: float
    request: str = field(default_factory=lambda: uuid.uuid4().hex)
    retry_of: str | None = None
    lease: float = values.DEFAULT_LEASE
    trial: str | None = None
    apart: bool = False
    epochs: list[dict[str, Any]] = field(default_factory=list)
    told: int = 0
    profile: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    verdict: Verdict | None = None

    # --- noting ---------------------------------------------------------------------------------

    def note_epoch(
        self,
        time: float,
        energy: float | None,
        metric: float | None,
        power_limit: float | None = None,
    ) -> None:
        """Note an epoch; the arguments are those of `JobsApi.report_epoch`, without its number."""
        if len(self.epochs) - self.told >= MOST_EPOCHS:
            return  # what follows cannot be told either: epochs come in order
        # A metric that is not a number, or too large to be one, has reached nothing.
        known = metric is not None and abs(metric) <= values.MOST_METRIC
        self.epochs.append(
            {
                "epoch": len(self.epochs) + 1,
                "time": max(time, 1e-9),
                "energy": None if energy is None else max(energy, 0.0),
                "metric": metric if known else None,
                "power_limit": power_limit,
            }
        )

    @property
    def over(self) -> bool:
        """Whether nothing that is noted later can matter."""
        return self.verdict is not None and not self.verdict.go_on

    @property
    def pending(self) -> bool:
        """Whether anything is left to tell."""
        if self.profile is not None:
            return True
        waiting = self.told < len(self.epochs) or self.end is not None
        return waiting and not (self.apart or self.over)

    # --- telling --------------------------------------------------------------------------------

    def ask(self, api: JobsApi, *, default: bool = False) -> Decision:
        """Ask for a trial, or again for the same; its batch size may be another than ours.

        Args:
            api: Who is asked.
            default: The run has begun with the default batch size.

        Raises:
            ZeusError: As `JobsApi` says.
        """
        api.create(self.spec)
        decision = api.decide(
            self.spec.name,
            gpu=self.gpu,
            max_power=self.max_power,
            gpus=self.gpus,
            request=self.request,
            retry_of=self.retry_of,
            lease=self.lease,
            default=default,
        )
        return checked_decision(decision, self.spec)

    def tell(
        self, api: JobsApi, complain: Callable[[str], None], *, within: float = math.inf
    ) -> None:
        """Tell everything that was not told. After an error, or if any is left, call it again.

        Args:
            api: Who is told.
            complain: Is given what was not taken, in words.
            within: Seconds after which the rest has to wait; something is told in any case.

        Raises:
            ZeusError: As `JobsApi` says.
        """
        began = clock()
        if self.trial is None and not self.apart:
            self._join(api, complain)
        if self.profile is not None:
            try:
                api.put_profile(self.spec.name, **self.profile)
            except (FrontierError, JobLogError, RequestError) as error:
                complain(f"the profile was not accepted: {error}")
            self.profile = None
        if self.apart or self.trial is None:
            return
        while self.told < len(self.epochs) and not self.over:
            verdict = checked_verdict(api.report_epoch(self.trial, **self.epochs[self.told]))
            self.verdict, self.told = verdict, self.told + 1
            if clock() - began > within and self.pending:
                return
        if self.end is not None and not self.over:
            self.verdict = checked_verdict(api.end(self.trial, **self.end))
        self.end = None

    def _join(self, api: JobsApi, complain: Callable[[str], None]) -> None:
        """Become a trial after all, unless another batch size was decided before we could hear."""
        decision = self.ask(api, default=self.batch_size == self.spec.default_batch_size)
        if decision.batch_size == self.batch_size:
            self.trial = decision.trial
            return
        note = _RENAMED.format(ran=self.batch_size, decided=decision.batch_size)
        api.end(decision.trial, CANCELLED, note=note)
        complain(f"the run counts for its profile only: it {note}")
        self.apart = True

    # --- as text --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Notes:
        """The opposite of `to_dict`.

        Raises:
            ValueError: If it is not such a record.
        """
        try:
            rest = dict(record)
            verdict = rest["verdict"]
            rest["verdict"] = None if verdict is None else Verdict.from_dict(verdict)
            notes = cls(**{**rest, "spec": JobSpec.from_dict(rest["spec"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the notes of a run: {error}") from error
        kinds = {"place": str, "request": str, "gpu": str, "epochs": list, "told": int}
        for name, kind in kinds.items():
            if not isinstance(rest.get(name), kind):
                raise ValueError(f"not the notes of a run: `{name}` is {rest.get(name)!r:.60}")
        return notes


# --- answers that make sense ----------------------------------------------------------------------


def checked_decision(decision: Decision, spec: JobSpec) -> Decision:
    """A decision that a run can follow.

    Raises:
        ServerError: If it is none.
    """
    # Whatever the types say: it has come over the wire.
    said: Mapping[str, Any] = vars(decision)
    makes_sense = (
        isinstance(said["trial"], str)
        and said["trial"] != ""
        and isinstance(said["batch_size"], int)
        and said["batch_size"] in spec.batch_sizes
        and isinstance(said["optimize_power"], bool)
        and all(_positive(said[name]) for name in ("learning_rate_scale", "lease"))
        and all(
            said[name] is None or _positive(said[name]) for name in ("threshold", "power_limit")
        )
    )
    if not makes_sense:
        raise ServerError(f"the server's decision makes no sense: {decision!r:.200}")
    return decision


def checked_verdict(verdict: Verdict) -> Verdict:
    """A verdict that a run can follow.

    Raises:
        ServerError: If it is none.
    """
    said: Mapping[str, Any] = vars(verdict)
    outcome = said["outcome"]
    known = outcome is None if said["go_on"] else outcome in _OUTCOMES
    if not (isinstance(said["go_on"], bool) and known):
        raise ServerError(f"the server's verdict makes no sense: {verdict!r:.200}")
    return verdict


def _positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0

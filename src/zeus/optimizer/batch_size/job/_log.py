"""The log of one job: the state of its trials, and the rules that its events obey.

The log is append-only. Together with the specification it is the whole state of a job.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from zeus.errors import JobLogError
from zeus.optimizer._stopping import Outcome, better
from zeus.optimizer.batch_size.job._alike import EpochFigures
from zeus.optimizer.batch_size.job._attempts import may_retry
from zeus.optimizer.batch_size.job._events import (
    Decided,
    Ended,
    EpochReported,
    Event,
    Profiled,
    Resumed,
    SizeMeasured,
    event_from,
)
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.job._share import can_share
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.job._trouble import Recent

# Trials that ended without success are kept so that they can be retried, or can go on after their
# lease had expired. The oldest are dropped.
_REMEMBERED = 64


@dataclass
class Trial:
    """State of a trial.

    Attributes:
        decided: The event that began it.
        role: Its current purpose: a trial resumed after its lease had expired no longer explores.
        known: Whether the cost of an epoch was known before.
        epochs: Number of reported epochs.
        time: Seconds; `energy` in joules, of the epochs where it was measured; `cost` in joules.
        unmeasured: Whether the energy of a part could not be measured.
        metric: The latest validation metric; `evaluations` are the latest,
            as many as the target must hold in.
        best: The best metric that held in so many evaluations in a row.
        streak: Number of evaluations in a row, up to the latest, that met the target.
        first_cost: Cost of the first epoch in joules.
        settled_cost: Moving average of the cost of later epochs in joules, the latest weighing
            most. The first epoch may have profiled power limits, unless they were known.
        load: Average power of the latest epoch as a fraction of the power limit.
        latest: What the latest epoch took.
        ended: The event that ended it.
    """

    decided: Decided
    role: Role
    known: bool = False
    epochs: int = 0
    time: float = 0.0
    energy: float = 0.0
    unmeasured: bool = False
    cost: float = 0.0
    metric: float | None = None
    evaluations: list[float] = field(default_factory=list)
    best: float | None = None
    streak: int = 0
    first_cost: float | None = None
    settled_cost: float | None = None
    load: float | None = None
    latest: EpochFigures | None = None
    ended: Ended | None = None

    def add_epoch(self, spec: JobSpec, event: EpochReported) -> None:
        """Add a reported epoch."""
        cost = self._spend(spec, event.time, event.energy)
        self.epochs = event.epoch
        self.latest = EpochFigures(event.steps, event.time, event.energy)
        if event.metric is not None:
            self.metric = event.metric
            self.streak = self.streak + 1 if spec.reached(event.metric) else 0
            self._evaluate(spec, event.metric)
        if self.epochs == 1:
            self.first_cost = cost
        if self.epochs > 1 or self.known:
            settled = self.settled_cost
            self.settled_cost = cost if settled is None else (settled + cost) / 2
        if event.energy is not None and event.power_limit is not None:
            self.load = event.energy / event.time / (event.power_limit * self.decided.gpus)

    def _evaluate(self, spec: JobSpec, metric: float) -> None:
        latest = self.evaluations = [*self.evaluations, metric][-spec.patience :]
        if len(latest) == spec.patience:
            held = min(latest) if spec.higher_is_better else max(latest)
            self.best = better(self.best, held, higher_is_better=spec.higher_is_better)

    def end(self, spec: JobSpec, event: Ended) -> None:
        """Add the cost after the last epoch, and end the trial."""
        self._spend(spec, event.time, event.energy)
        self.ended = event

    def _spend(self, spec: JobSpec, time: float, energy: float | None) -> float:
        """Add and return a cost in joules. Unmeasured energy is bounded by maximum power."""
        most = self.decided.max_power
        cost = spec.cost(most * time if energy is None else energy, time, most)
        self.time += time
        self.energy += energy or 0.0
        self.unmeasured |= energy is None
        self.cost += cost
        return cost

    @property
    def epoch_cost(self) -> float | None:
        """Cost of an epoch in joules, as measured in this trial."""
        return self.first_cost if self.settled_cost is None else self.settled_cost

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        record["decided"] = self.decided.to_dict()
        record["role"] = int(self.role)
        record["ended"] = None if self.ended is None else self.ended.to_dict()
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Trial:
        """Inverse of `to_dict`."""
        rest = dict(record)
        decided, ended = event_from(rest["decided"]), rest["ended"]
        rest |= {"decided": decided, "role": Role(rest["role"])}
        rest["ended"] = None if ended is None else event_from(ended)
        rest["latest"] = None if rest["latest"] is None else EpochFigures(*rest["latest"])
        return cls(**rest)


@dataclass
class JobLog:
    """State of a job's trials; checks whether an event may come next.

    Of trials that have ended, only those that may still get events are kept, so that memory does
    not grow with the age of the job.

    Attributes:
        spec: The job.
        trials: Number of trials so far.
        recurrences: Number of recurrences so far.
        open: Running trials, by number.
        over: Latest trials that ended without success and were not retried, by number.
        recent: Runs since the target was last reached.
    """

    spec: JobSpec
    trials: int = 0
    recurrences: int = 0
    open: dict[int, Trial] = field(default_factory=dict)
    over: dict[int, Trial] = field(default_factory=dict)
    recent: Recent = field(default_factory=Recent)

    def append(self, event: Event) -> Trial | None:
        """Apply an event; return its trial.

        Raises:
            JobLogError: If it cannot come next; nothing is changed.
        """
        if isinstance(event, Decided):
            return self._decided(event)
        if isinstance(event, Profiled | SizeMeasured):
            self._of_this_job(event.batch_size)
            if event.trial > self.trials:
                raise JobLogError(
                    f"the trial of a {event.kind} event must be one of {self.trials}, but got "
                    f"trial={event.trial}"
                )
            return None
        if isinstance(event, Resumed):
            return self._resumed(event)
        trial = self.running(event.trial)
        if isinstance(event, EpochReported):
            self.may_follow(trial, event.epoch)
            trial.add_epoch(self.spec, event)
        elif isinstance(event, Ended):
            trial.end(self.spec, event)
            del self.open[event.trial]
            self._add(self.recent, trial, event)
            if event.outcome != Outcome.CONVERGED:
                self._remember(event.trial, trial)
        return trial

    def extend(self, events: Iterable[Event]) -> None:
        """Apply several events."""
        for event in events:
            self.append(event)

    def running(self, number: int) -> Trial:
        """Return a running trial.

        Args:
            number: Number of the trial.

        Raises:
            JobLogError: If it is not running.
        """
        trial = self.open.get(number)
        if trial is not None:
            return trial
        ended = self.over.get(number)
        if ended is not None and ended.ended is not None:
            raise JobLogError(f"trial {number} is over: it {_past(ended.ended.outcome)}")
        if 1 <= number <= self.trials:
            raise JobLogError(f"trial {number} is over")
        raise JobLogError(f"there are {self.trials} trials, but got trial={number}")

    def retried(self, number: int) -> Trial:
        """Return a trial that may be retried.

        Args:
            number: Number of the trial.

        Raises:
            JobLogError: If it may not be retried.
        """
        if number in self.open:
            raise JobLogError(f"trial {number} still runs; end it before it is retried")
        trial = self.over.get(number)
        if trial is None:
            raise JobLogError(
                f"trial {number} cannot be retried: it converged, was retried, or ended long ago"
            )
        return trial

    def advice(self, event: Ended) -> str:
        """Return why no further trial of its recurrence makes sense, in words; empty if it may.

        Args:
            event: The end of a running trial, which comes next.

        Raises:
            JobLogError: If the trial is not running.
        """
        trial = self.running(event.trial)
        recurrence, attempt = trial.decided.recurrence, trial.decided.attempt
        missed = self.recent.nights - (self.recent.night == recurrence)
        lost = event.outcome in (Outcome.STOPPED, Outcome.FAILED)
        if not lost or may_retry(self.spec, attempt, missed):
            return ""
        recent = copy.deepcopy(self.recent)
        self._add(recent, trial, event)
        return recent.missed()

    def _decided(self, event: Decided) -> Trial:
        if event.trial != self.trials + 1:
            raise JobLogError(f"`trial == {self.trials + 1}` must hold, but got {event.trial}")
        self._of_this_job(event.batch_size)
        if not can_share(event.batch_size, event.replicas or 1):
            raise JobLogError(
                "`batch_size` must be a multiple of `replicas`, but got "
                f"(batch_size={event.batch_size}, replicas={event.replicas})"
            )
        if event.power >= 0 and event.power >= len(self.spec.power_limits):
            raise JobLogError(
                f"`power < {len(self.spec.power_limits)}` must hold, but got {event.power}"
            )
        recurrence = self.recurrences + 1
        if event.retry_of is not None:
            before = self.retried(event.retry_of).decided
            recurrence = before.recurrence
            if event.attempt != before.attempt + 1:
                raise JobLogError(
                    f"`attempt == {before.attempt + 1}` must hold, but got {event.attempt}"
                )
        if event.recurrence != recurrence:
            raise JobLogError(f"`recurrence == {recurrence}` must hold, but got {event.recurrence}")
        if event.retry_of is not None:
            del self.over[event.retry_of]
        trial = Trial(event, event.role)
        self.trials = event.trial
        self.recurrences = max(self.recurrences, recurrence)
        self.open[event.trial] = trial
        return trial

    def _resumed(self, event: Resumed) -> Trial:
        trial = self.over.get(event.trial)
        if trial is None or trial.ended is None or trial.ended.outcome != Outcome.EXPIRED:
            raise JobLogError(
                f"trial {event.trial} cannot go on: not expired, expired long ago, or retried"
            )
        del self.over[event.trial]
        self.recent.resume()
        trial.ended = None
        if trial.role == Role.EXPLORE:
            trial.role = Role.EXPLOIT  # another trial explores in its place
        self.open[event.trial] = trial
        return trial

    def may_follow(self, trial: Trial, epoch: int) -> None:
        """Check that this is the next epoch of a trial.

        Raises:
            JobLogError: If it is not.
        """
        if epoch != trial.epochs + 1:
            raise JobLogError(
                f"epoch {trial.epochs + 1} of trial {trial.decided.trial} comes next, "
                f"but got epoch={epoch}"
            )
        if epoch > self.spec.max_epochs:
            raise JobLogError(f"`epoch <= {self.spec.max_epochs}` must hold, but got {epoch}")

    def _of_this_job(self, batch_size: int) -> None:
        if batch_size not in self.spec.batch_sizes:
            raise JobLogError(
                f"`batch_size` must be one of {self.spec.batch_sizes}, but got {batch_size}"
            )

    def _add(self, recent: Recent, trial: Trial, event: Ended) -> None:
        recent.add(
            self.spec,
            state=event.outcome,
            recurrence=trial.decided.recurrence,
            batch_size=trial.decided.batch_size,
            epochs=trial.epochs,
            best=trial.best,
            note=event.note,
            unmeasured=trial.unmeasured,
        )

    def _remember(self, number: int, trial: Trial) -> None:
        self.over[number] = trial
        if len(self.over) > _REMEMBERED:
            del self.over[next(iter(self.over))]


def _past(outcome: str) -> str:
    passive = outcome in (Outcome.STOPPED, Outcome.CANCELLED)
    return f"was {outcome}" if passive else outcome

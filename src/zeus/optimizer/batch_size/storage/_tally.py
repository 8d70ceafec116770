"""Sums over the trials of a job that have ended, from which it follows what was saved.

A tally is a fold over events, like the state of the policy, and kept beside it: so lists of many
jobs are sorted by what each saved without reading their trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from zeus.errors import FrontierError
from zeus.frontier import Frontier
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import ProfileInfo
from zeus.optimizer.batch_size.job._events import Decided, Ended, Event, GpuModel, Profiled, Resumed
from zeus.optimizer.batch_size.job._log import Trial
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage._history import Total

_NEAR = 1.0  # watts by which a chosen power limit may differ from the measured one


@dataclass
class GpuTally:
    """Sums over the trials that have ended on one GPU configuration.

    Attributes:
        max_power: Maximum power of all GPUs together in watts, in the latest trial.
        trials: Number of trials.
        converged: Number of them that reached the target; `measured` of these with their energy.
        unmeasured: Number of trials whose energy was not measured.
        energy: Joules of the measured trials; `wasted` are those that missed the target.
        bound: Maximum joules of the trials that missed the target and were not measured.
        time: Seconds of all trials; `cost` in joules likewise.
        default_runs: Runs of the default batch size that converged; `default_measured` of these
            with their energy.
        default_energy: Joules of these; `default_time` and `default_cost` are of all of the runs.
        load_energy: Joules of all measured trials of the default; `load_time` is their seconds,
            and `measured_time` that of all measured trials.
        profile: Joules and seconds of some work with the default batch size at the chosen power
            limit, then at the highest one; `None` if not measured.
    """

    max_power: float = 0.0
    trials: int = 0
    converged: int = 0
    measured: int = 0
    unmeasured: int = 0
    energy: float = 0.0
    wasted: float = 0.0
    bound: float = 0.0
    time: float = 0.0
    cost: float = 0.0
    default_runs: int = 0
    default_measured: int = 0
    default_energy: float = 0.0
    default_time: float = 0.0
    default_cost: float = 0.0
    load_energy: float = 0.0
    load_time: float = 0.0
    measured_time: float = 0.0
    profile: list[float] | None = None

    def add(self, total: Total, *, default: bool, sign: int = 1) -> None:
        """Add trials that have ended; a `sign` of -1 takes them out.

        Args:
            total: Their sums.
            default: Whether they had the default batch size.
            sign: 1 or -1.
        """
        converged = total.state == Outcome.CONVERGED
        number, missing = sign * total.trials, sign * (total.trials - total.measured)
        self.trials += number
        self.unmeasured += missing
        self.energy += sign * total.energy
        self.time += sign * total.time
        self.measured_time += sign * total.measured_time
        self.cost += sign * total.cost
        if converged:
            self.converged += number
            self.measured += number - missing
        else:
            self.wasted += sign * total.energy
            self.bound += sign * total.bound
        if default:
            self.load_energy += sign * total.energy
            self.load_time += sign * total.measured_time
        if default and converged:
            self.default_runs += number
            self.default_measured += number - missing
            self.default_energy += sign * total.energy
            self.default_time += sign * total.time
            self.default_cost += sign * total.cost


@dataclass
class Tally:
    """Sums of one job.

    Attributes:
        gpus: Sums by GPU configuration, in the order of their first trial.
        sequence: Number of the last event that is in it.
    """

    gpus: dict[GpuModel, GpuTally] = field(default_factory=dict)
    sequence: int = 0

    def apply(self, spec: JobSpec, event: Event, trial: Trial | None) -> bool:
        """Apply an event; return whether anything but the sequence number changed.

        Args:
            spec: The job.
            event: The event.
            trial: Its trial, in the state after the event.
        """
        if isinstance(event, Profiled):
            return self._profiled(spec, ProfileInfo(at=event.at, **event.payload()))
        if trial is None or not isinstance(event, Decided | Ended | Resumed):
            return False
        decided = trial.decided
        if isinstance(event, Decided):
            known = self._of(decided.model)
            changed = known.max_power != decided.max_power
            known.max_power = decided.max_power
            return changed
        ended = isinstance(event, Ended)
        state = event.outcome if isinstance(event, Ended) else Outcome.EXPIRED
        default = decided.batch_size == spec.default_batch_size
        self._of(decided.model).add(_total(trial, state), default=default, sign=1 if ended else -1)
        return True

    def _of(self, gpu: GpuModel) -> GpuTally:
        return self.gpus.setdefault(gpu, GpuTally())

    def _profiled(self, spec: JobSpec, profile: ProfileInfo) -> bool:
        if profile.batch_size != spec.default_batch_size or not spec.optimizes_power:
            return False
        known = self._of(GpuModel(profile.gpu, profile.gpus))
        before, known.profile = known.profile, ends_of(profile)
        return before != known.profile

    @classmethod
    def recounted(
        cls,
        spec: JobSpec,
        totals: Iterable[Total],
        *,
        profiles: Iterable[ProfileInfo],
        max_power: Mapping[GpuModel, float],
        sequence: int,
    ) -> Tally:
        """Return the tally of a job whose events were not followed.

        Args:
            spec: The job.
            totals: Totals of its trials.
            profiles: Its power-limit profiles.
            max_power: Maximum power of all GPUs together in watts, by GPU configuration.
            sequence: Number of the last event that is in these.
        """
        tally = cls(sequence=sequence)
        for total in totals:
            known = tally._of(GpuModel(total.gpu, total.gpus))
            if total.state != Outcome.RUNNING:
                known.add(total, default=total.batch_size == spec.default_batch_size)
        for gpu, power in max_power.items():
            tally._of(gpu).max_power = power
        for profile in profiles:
            tally._profiled(spec, profile)
        return tally

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"gpus": [[*gpu, dict(vars(known))] for gpu, known in self.gpus.items()]}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], sequence: int) -> Tally:
        """Inverse of `to_dict`.

        Raises:
            ValueError: If it was made by another version of Zeus.
        """
        try:
            names = {each.name for each in fields(GpuTally)}
            gpus = {GpuModel(name, number): known for name, number, known in record["gpus"]}
            if any(known.keys() != names for known in gpus.values()):
                raise ValueError("the sums are others")
            counted = {gpu: GpuTally(**known) for gpu, known in gpus.items()}
            return cls(counted, sequence)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a tally: {error!r:.80}") from error


def ends_of(profile: ProfileInfo) -> list[float] | None:
    """Return joules and seconds at the chosen power limit, then at the highest; `None` if unknown.

    Args:
        profile: Profile of a batch size.
    """
    if profile.frontier is None or profile.power_limit is None:
        return None
    try:
        points = Frontier.from_dict(profile.frontier).points
    except FrontierError:
        return None
    limits = {p.knob: p for p in points if isinstance(p.knob, int | float)}
    if not limits:
        return None
    limit = profile.power_limit
    highest, chosen = max(limits), min(limits, key=lambda watts: abs(watts - limit))
    if abs(chosen - limit) > _NEAR:
        return None
    values = [limits[chosen].energy, limits[chosen].time]
    values += [limits[highest].energy, limits[highest].time]
    return values if all(value > 0 for value in values) else None


def _total(trial: Trial, state: str) -> Total:
    """Return the totals of a single trial, in a state that it had or has."""
    decided = trial.decided
    measured = not trial.unmeasured
    return Total(
        gpu=decided.gpu,
        gpus=decided.gpus,
        batch_size=decided.batch_size,
        state=state,
        trials=1,
        epochs=trial.epochs,
        time=trial.time,
        measured=int(measured),
        measured_time=trial.time if measured else 0.0,
        energy=trial.energy if measured else 0.0,
        bound=0.0 if measured else decided.max_power * trial.time,
        cost=trial.cost,
        latest=decided.trial,
    )

"""Tables on the page of one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._table import Column, table
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import TrialInfo
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.job._reasons import PURPOSES
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import Expected
from zeus.optimizer.batch_size.storage._account import gpu_name
from zeus.optimizer.batch_size.storage._history import Total
from zeus.optimizer.batch_size.storage._overview import Overview
from zeus.server.pages._job_charts import CROWD, standing_label
from zeus.server.pages._job_list import trial_address
from zeus.server.pages._layout import aside, details, properties, unbroken
from zeus.server.pages._outcomes import outcome
from zeus.server.pages._units import (
    NONE,
    UNKNOWN,
    counted,
    digits,
    instant,
    joules,
    seconds,
    watts,
)

ROLES = {
    "default": "the default",
    "explore": "exploration",
    "exploit": "the best so far",
    "sample": "Thompson sampling",
    "retry": "a safe retry",
}


def specification(overview: Overview) -> Markup:
    """Return the specification that the job was created with."""
    spec, info = overview.spec, overview.info
    limits = ", ".join(watts(limit) for limit in spec.power_limits)
    sign = "≥" if spec.higher_is_better else "≤"
    beta = "never" if spec.beta is None else f"at {digits(spec.beta)} × the lowest cost"
    return properties(
        [
            ("Batch sizes", ", ".join(map(str, spec.batch_sizes))),
            ("Default", str(spec.default_batch_size)),
            ("Target", f"metric {sign} {digits(spec.target_metric, 6)}"),
            ("Maximum epochs", str(spec.max_epochs)),
            ("Weight of energy (η)", digits(spec.eta_knob)),
            ("Early stopping (β)", beta),
            ("Window", str(spec.window) if spec.window else "all recurrences"),
            ("Policy", spec.policy),
            ("Pruning rounds", str(spec.pruning_rounds)),
            ("Learning rate", spec.learning_rate_rule.replace("_", " ")),
            ("Power limits to try", limits or "chosen by the optimizer"),
            ("Power profiles", _sharing(spec)),
            ("Seed", str(spec.seed)),
            ("Created", instant(info.created)),
            ("Last activity", instant(info.updated)),
        ]
    )


def _sharing(spec: JobSpec) -> str:
    key = spec.profile_key
    return "of this job only" if key is None else f"shared by jobs with the key {key!r}"


# --- batch sizes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Size:
    """A batch size on the selected GPUs.

    Attributes:
        overview: The job.
        expected: What the policy expects of it.
        totals: Totals of its trials, by outcome.
        power_limit: The one chosen for it in watts, if any.
    """

    overview: Overview
    expected: Expected
    totals: Mapping[str, Total]
    power_limit: float | None

    @property
    def chosen(self) -> bool:
        decided = self.overview.next
        return decided is not None and decided.batch_size == self.expected.batch_size

    @property
    def proven(self) -> bool:
        return self.expected.standing == ArmStatus.PROVEN

    def kind(self) -> str:
        return "chosen" if self.chosen else "" if self.proven else "muted"

    def name(self) -> Content:
        size, standing = self.expected.batch_size, self.expected.standing
        words = ["default"] * (size == self.overview.spec.default_batch_size)
        words += ["next"] * self.chosen
        if self.totals and standing in (ArmStatus.UNKNOWN, ArmStatus.EXPECTED):
            words += [] if Outcome.CONVERGED in self.totals else ["not converged"]
        elif not self.proven:
            words.append(standing_label(standing))
        words += ["steps measured"] * self.expected.measured
        return join(str(size), aside(f" ({', '.join(words)})") if words else None)

    def interval(self) -> Content:
        low, high = self.expected.low, self.expected.high
        if low is None or high is None:
            return NONE
        return unbroken(f"{joules(low, 3)} – {joules(high, 3)}")

    def runs(self) -> Content:
        order: dict[str, int] = {Outcome.CONVERGED: 0, Outcome.RUNNING: 9}
        found = sorted(self.totals.values(), key=lambda total: order.get(total.state, 5))
        parts = [unbroken(f"{total.trials} ", outcome(total.state)) for total in found]
        return tag("span", *parts, class_="runs") if parts else NONE

    def mean(self, show: Callable[[Total], str]) -> Content:
        """Return a mean over the runs that converged."""
        return show(self.totals[Outcome.CONVERGED]) if Outcome.CONVERGED in self.totals else NONE


def _mean_energy(total: Total) -> str:
    return joules(total.energy / total.measured if total.measured else None, 3)


_SIZES: Sequence[Column[_Size]] = (
    Column("batch size", _Size.name),
    Column("expected cost", lambda size: _known(joules, size.expected.cost), number=True),
    Column("95 % interval", _Size.interval, number=True, optional=True),
    Column("runs", _Size.runs),
    Column("epochs", lambda size: size.mean(lambda total: digits(total.epochs / total.trials, 3)),
           number=True, optional=True),
    Column("time", lambda size: size.mean(lambda total: seconds(total.time / total.trials)),
           number=True, optional=True),
    Column("energy", lambda size: size.mean(_mean_energy), number=True, optional=True),
    Column("power limit", lambda size: _known(watts, size.power_limit), number=True),
)  # fmt: skip


def batch_sizes(overview: Overview) -> Markup:
    """Return measured and expected values of each batch size, on the selected GPUs."""
    here = overview.gpu
    limits = {p.batch_size: p.power_limit for p in overview.profiles if (p.gpu, p.gpus) == here}
    shown: list[_Size] = []
    rest: list[_Size] = []
    for each in overview.beliefs:
        totals = {
            total.state: total
            for total in overview.totals
            if total.batch_size == each.batch_size and (total.gpu, total.gpus) == here
        }
        size = _Size(overview, each, totals, limits.get(each.batch_size))
        plain = len(overview.beliefs) > CROWD and not (totals or size.chosen or size.proven)
        (rest if plain else shown).append(size)
    known = table("Batch sizes", _SIZES, shown, kind=_Size.kind)
    if not rest:
        return known
    folded = table("Batch sizes that were not tried", _SIZES, rest, kind=_Size.kind)
    summary = counted(len(rest), "batch size that was", "batch sizes that were")
    return join(known, details(f"{summary} not tried", folded, name="untried"))


# --- trials -------------------------------------------------------------------------------------


def running(trials: Sequence[TrialInfo], overview: Overview) -> Markup:
    """Return the table of running trials."""
    target = aside(f" of {digits(overview.spec.target_metric, 6)}")

    columns: Sequence[Column[TrialInfo]] = (
        Column("trial", _place(overview.info.name)),
        Column("batch size", lambda trial: trial.batch_size, number=True),
        Column("epochs", lambda trial: trial.epochs, number=True),
        Column("metric", lambda t: unbroken(_metric(t, UNKNOWN), target), number=True),
        Column("cost so far", lambda trial: joules(trial.cost), number=True),
        Column("cost limit", lambda t: _known(joules, t.threshold, "none"), number=True,
               optional=True),
        Column("GPU", _gpus, optional=True),
        Column("began", lambda trial: instant(trial.began), optional=True),
    )  # fmt: skip
    return table("Running trials", columns, trials)


def trials(job: str, found: Sequence[TrialInfo], *, gpus: bool) -> Markup:
    """Return the table of trials and their outcomes.

    Args:
        job: Name of the job.
        found: The trials.
        gpus: Whether to show the GPUs of each.
    """
    columns: list[Column[TrialInfo]] = [
        Column("recurrence", _place(job)),
        Column("batch size", lambda trial: trial.batch_size, number=True),
        Column("outcome", _ending),
        Column("role", _role, optional=True),
        Column("epochs", lambda trial: trial.epochs, number=True, optional=True),
        Column("metric", _metric, number=True, optional=True),
        Column("time", _if_begun(lambda trial: seconds(trial.time)), number=True, optional=True),
        Column("energy", _if_begun(lambda trial: joules(trial.energy)), number=True, optional=True),
        Column("cost", _if_begun(lambda trial: joules(trial.cost)), number=True),
        Column("began", lambda trial: unbroken(instant(trial.began)), optional=True),
    ]
    if gpus:
        columns.append(Column("GPU", _gpus, optional=True))
    return table("Trials", columns, found, kind=_trial_kind)


def _known(show: Callable[[float], str], value: float | None, otherwise: str = NONE) -> str:
    return otherwise if value is None else show(value)


def _metric(trial: TrialInfo, otherwise: str = NONE) -> str:
    return _known(lambda value: digits(value, 5), trial.metric, otherwise)


def _trial_kind(trial: TrialInfo) -> str:
    return "" if trial.state in (Outcome.CONVERGED, Outcome.RUNNING) else "muted"


def _gpus(trial: TrialInfo) -> Content:
    return gpu_name(GpuModel(trial.gpu, trial.gpus))


def _if_begun(cell: Callable[[TrialInfo], Content]) -> Callable[[TrialInfo], Content]:
    """Return the same for a cell that has no value before the first step."""
    return lambda trial: cell(trial) if trial.epochs > 0 or trial.time > 0 else NONE


def _ending(trial: TrialInfo) -> Content:
    """Return the outcome, with the reason unless it is obvious."""
    plain = trial.state in (Outcome.CONVERGED, Outcome.RUNNING) or not trial.note
    why = None if plain else tag("span", trial.note, class_="why below")
    return join(outcome(trial.state), why)


def _place(job: str) -> Callable[[TrialInfo], Content]:
    """Return the cell with the recurrence of a trial, linked to the page of the trial."""

    def cell(trial: TrialInfo) -> Content:
        attempt = f", attempt {trial.attempt + 1}" if trial.attempt else ""
        number = tag("a", str(trial.recurrence), href=trial_address(job, trial.number))
        return join(number, aside(attempt) if attempt else None)

    return cell


def _role(trial: TrialInfo) -> Content:
    """Return the role, with the reason of the decision unless it says the same."""
    role = unbroken(ROLES.get(trial.role, trial.role))
    plain = not trial.reason or trial.reason in PURPOSES.values()
    return role if plain else join(role, tag("span", trial.reason, class_="why below"))

"""Tables on the page of one job."""

from __future__ import annotations

from collections.abc import Sequence

from zeus.optimizer.batch_size.api._api import ProfileInfo, TrialInfo
from zeus.optimizer.batch_size.job._events import CONVERGED, GpuModel
from zeus.optimizer.batch_size.policies._base import ArmStatus
from zeus.optimizer.batch_size.policies._job_state import Expected
from zeus.optimizer.batch_size.storage import RUNNING
from zeus.optimizer.batch_size.storage._account import Baseline
from zeus.optimizer.batch_size.storage._history import Total
from zeus.optimizer.batch_size.storage._overview import Overview
from zeus.server.pages._job_charts import CROWD, standing_label
from zeus.server.pages._layout import Row, details, properties, table, unbroken
from zeus.server.pages._markup import Content, Markup, join, tag
from zeus.server.pages._outcomes import outcome
from zeus.server.pages._units import (
    UNKNOWN,
    counted,
    digits,
    instant,
    joules,
    listed,
    seconds,
    watts,
)

_NONE = "\u2013"
ROLES = {
    "default": "the default",
    "explore": "exploration",
    "exploit": "the best so far",
    "sample": "Thompson sampling",
    "retry": "a safe retry",
}


def gpu_name(gpu: GpuModel) -> str:
    """Return number and model of GPUs, such as "4 × Tesla V100"."""
    return f"{gpu.number} × {gpu.name}" if gpu.number > 1 else gpu.name


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
            ("Seed", str(spec.seed)),
            ("Created", instant(info.created)),
            ("Last activity", instant(info.updated)),
        ]
    )


def batch_sizes(overview: Overview) -> Markup:
    """Return measured and expected values of each batch size, on the selected GPUs."""
    head = ("batch size", "expected cost", "95 % interval", "runs", "epochs", "time", "energy",
            "power limit")  # fmt: skip
    profiles = {each.batch_size: each for each in overview.profiles if _here(overview, each)}
    rows: list[Row] = []
    rest: list[Row] = []
    for each in overview.beliefs:
        mine = [
            total
            for total in overview.totals
            if total.batch_size == each.batch_size and (total.gpu, total.gpus) == overview.gpu
        ]
        chosen = overview.next is not None and overview.next.batch_size == each.batch_size
        proven = each.standing == ArmStatus.PROVEN
        limit = profiles[each.batch_size].power_limit if each.batch_size in profiles else None
        runs = {total.state for total in mine}
        row = Row(
            [
                join(str(each.batch_size), _labels(overview, each, runs, chosen=chosen)),
                _NONE if each.cost is None else joules(each.cost),
                _interval(each.low, each.high),
                _runs(mine),
                *_means([total for total in mine if total.state == CONVERGED]),
                _NONE if limit is None else watts(limit),
            ],
            "chosen" if chosen else "" if proven else "muted",
        )
        plain = len(overview.beliefs) > CROWD and not (mine or chosen or proven)
        (rest if plain else rows).append(row)
    look = {"numbers": (1, 2, 4, 5, 6, 7), "optional": (2, 4, 5, 6)}
    known = table("Batch sizes", head, rows, **look)
    if not rest:
        return known
    folded = table("Batch sizes that were not tried", head, rest, **look)
    summary = counted(len(rest), "batch size that was", "batch sizes that were")
    return join(known, details(f"{summary} not tried", folded, name="untried"))


def _here(overview: Overview, profile: ProfileInfo) -> bool:
    return (profile.gpu, profile.gpus) == overview.gpu


def _labels(overview: Overview, each: Expected, runs: set[str], *, chosen: bool) -> Markup | None:
    default = each.batch_size == overview.spec.default_batch_size
    words = ["default"] * default + ["next"] * chosen
    known = each.standing not in (ArmStatus.UNKNOWN, ArmStatus.EXPECTED)
    if not known and runs:
        words += [] if CONVERGED in runs else ["not converged"]
    elif each.standing != ArmStatus.PROVEN:
        words.append(standing_label(each.standing))
    return tag("span", f" ({', '.join(words)})", class_="why") if words else None


def _interval(low: float | None, high: float | None) -> Content:
    if low is None or high is None:
        return _NONE
    return unbroken(f"{joules(low, 3)} – {joules(high, 3)}")


def _runs(totals: Sequence[Total]) -> Content:
    order = {CONVERGED: 0, RUNNING: 9}
    found = sorted(totals, key=lambda total: order.get(total.state, 5))
    parts = [unbroken(f"{total.trials} ", outcome(total.state)) for total in found]
    return tag("span", *parts, class_="runs") if parts else _NONE


def _means(converged: Sequence[Total]) -> list[Content]:
    """Return mean epochs, time and energy of the converged runs."""
    if not converged:
        return [_NONE, _NONE, _NONE]
    (total,) = converged
    energy = total.energy / total.measured if total.measured else None
    return [
        digits(total.epochs / total.trials, 3),
        seconds(total.time / total.trials),
        joules(energy, 3),
    ]


def running(trials: Sequence[TrialInfo], overview: Overview) -> Markup:
    """Return the table of running trials."""
    head = ("trial", "batch size", "epochs", "metric", "cost so far", "cost limit", "GPU", "began")
    target = digits(overview.spec.target_metric, 6)
    rows = []
    for each in trials:
        metric = UNKNOWN if each.metric is None else digits(each.metric, 5)
        rows.append(
            [
                _place(each),
                str(each.batch_size),
                str(each.epochs),
                unbroken(metric, tag("span", f" of {target}", class_="why")),
                joules(each.cost),
                "none" if each.threshold is None else joules(each.threshold),
                gpu_name(GpuModel(each.gpu, each.gpus)),
                instant(each.began),
            ]
        )
    return table("Running trials", head, rows, numbers=(1, 2, 3, 4, 5), optional=(5, 6, 7))


def trials(found: Sequence[TrialInfo], *, gpus: bool) -> Markup:
    """Return the table of trials and their outcomes.

    Args:
        found: The trials.
        gpus: Whether to show the GPUs of each.
    """
    head = ("recurrence", "batch size", "outcome", "role", "epochs", "metric", "time", "energy",
            "cost", "began", *(["GPU"] if gpus else []))  # fmt: skip
    rows = []
    for each in found:
        metric = _NONE if each.metric is None else digits(each.metric, 5)
        began = each.epochs > 0 or each.time > 0
        rows.append(
            Row(
                [
                    _place(each),
                    str(each.batch_size),
                    _ending(each),
                    unbroken(ROLES.get(each.role, each.role)),
                    str(each.epochs),
                    metric,
                    seconds(each.time) if began else _NONE,
                    joules(each.energy) if began else _NONE,
                    joules(each.cost) if began else _NONE,
                    unbroken(instant(each.began)),
                    *([gpu_name(GpuModel(each.gpu, each.gpus))] if gpus else []),
                ],
                "" if each.state in (CONVERGED, RUNNING) else "muted",
            )
        )
    numbers = (1, 4, 5, 6, 7, 8)
    return table("Trials", head, rows, numbers=numbers, optional=(3, 4, 5, 6, 7, 9, 10))


def _ending(trial: TrialInfo) -> Content:
    """Return the outcome, with the reason unless it is obvious."""
    plain = trial.state in (CONVERGED, RUNNING) or not trial.note
    why = None if plain else tag("span", trial.note, class_="why below")
    return join(outcome(trial.state), why)


def _place(trial: TrialInfo) -> Content:
    attempt = f", attempt {trial.attempt + 1}" if trial.attempt else ""
    return join(str(trial.recurrence), tag("span", attempt, class_="why") if attempt else None)


def baselines(overview: Overview) -> Markup:
    """Return a note that explains the comparison with the default batch size."""
    account, default = overview.account, overview.spec.default_batch_size
    if overview.spec.policy == "default":
        return tag("p", "The policy of this job always runs the default batch size.", class_="note")
    if not account.converged:
        said = "No run has reached the target yet, so there is nothing to compare with."
        return tag("p", said, class_="note")
    missing = [gpu_name(gpu) for gpu in account.converged if gpu not in account.baselines]
    if missing:
        said = (
            f"The cost of the default is unknown: on {listed(missing)} no run with batch size "
            f"{default} has converged, and the policy has no estimate."
        )
        return tag("p", said, class_="note")
    rules = (
        f"The cost of a run with the default, {default}, is counted once per recurrence that "
        "reached the target; the cost of this job includes all its trials."
    )
    entries = [tag("li", _baseline_words(account.baselines[gpu])) for gpu in account.converged]
    return tag("div", tag("p", rules), tag("ul", *entries), class_="note")


def _baseline_words(base: Baseline) -> str:
    runs = "one run" if base.runs == 1 else f"{base.runs} runs"
    source = f"the mean of {runs}" if base.runs > 1 else f"measured in {runs}"
    if not base.runs:
        source = "expected by the policy, not measured"
    power = "at the power limits chosen for it, so their savings are not counted"
    if base.factor is not None:
        times = f"{digits(base.factor, 3)}\u00a0×"
        power = f"at full power, {times} that at the chosen power limit"
    return f"On {gpu_name(base.gpu)} it costs {joules(base.cost)}: {source}, {power}."

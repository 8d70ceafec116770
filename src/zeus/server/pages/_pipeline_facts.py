"""Key figures of a pipeline job: what its plan saves, as measured and as planned, and its terms."""

from __future__ import annotations

from zeus.drawing._markup import Content, tag
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._planning import Messages, Planned
from zeus.optimizer.pipeline_frequency.job._prediction import Prediction
from zeus.optimizer.pipeline_frequency.job._supervision import Saved
from zeus.optimizer.pipeline_frequency.storage._history import EnergyUse
from zeus.server.pages._units import (
    ago,
    counted,
    joules,
    kilowatt_hours,
    percent,
    seconds,
    watts,
)

Fact = tuple[str, Content, Content]
"""Name, value and remark."""

_AS_PLANNED = 5e-3  # relative difference up to which a step counts as planned
_ALIKE = 5e-4  # relative difference of times that is not worth a word


def plan_facts(
    planned: Planned,
    prediction: Prediction,
    saved: Saved | None,
    objective: PipelineObjective,
    step_time: float | None,
    *,
    straggling: bool,
) -> list[Fact]:
    """Return what the plans of a job do.

    Args:
        planned: The plans.
        prediction: What those in force are expected to do.
        saved: What was measured.
        objective: What the job is planned for.
        step_time: Measured seconds of a step.
        straggling: Whether a pipeline straggles.
    """
    said = f"{percent(prediction.slowdown, signed=True)} compared with no plan"
    if straggling:
        said = f"{seconds(planned.expected.time)} without stragglers"
    elif abs(prediction.slowdown) < _ALIKE:
        said = "as fast as without a plan"
    power = planned.blocking_power
    return [
        _saved_fact(prediction, saved, objective),
        ("Saved, by the plan", percent(prediction.saved), _instead(
            prediction.energy, prediction.energy_before, "iteration")),
        ("Iteration time", seconds(prediction.time, 4), said),
        *_step_time(step_time, prediction.time),
        ("Objective", tag("span", _objective(objective), class_="words"), ""),
        _reserve(planned),
        (
            "Power while waiting",
            watts(power),
            "unknown: counted as 0 W" if power is None else "of a GPU that waits for another",
        ),
        *message_facts(planned.messages),
    ]  # fmt: skip


def energy_facts(energy: EnergyUse | None, now: float) -> list[Fact]:
    """Return the energy of the measured steps, if there are any."""
    if energy is None:
        return []
    said = tag(
        "span",
        f"of {counted(energy.steps, 'measured step')}, the first ",
        ago(energy.since, now),
        "; before the first plan, only those that explored clocks",
    )
    return [("Energy so far", kilowatt_hours(energy.joules), said)]


def message_facts(found: Messages) -> list[Fact]:
    """Return the slowest link, and the other links' times, if any is known."""
    if not found.links:
        return []
    slowest = max(found.links, key=lambda stage: found.links[stage])
    said = f"between stages {slowest} and {slowest + 1}"
    others = [time for stage, time in found.links.items() if stage != slowest]
    if others:
        span = dict.fromkeys((seconds(min(others)), seconds(max(others))))
        said += f"; {' to '.join(span)} on other links"
    said += "; both ranks wait for each" if found.block else ""
    return [("Slowest message", seconds(found.links[slowest]), said)]


def _saved_fact(prediction: Prediction, saved: Saved | None, objective: PipelineObjective) -> Fact:
    name = "Saved, measured"
    if saved is not None:
        (time, energy), (_, reference) = saved.plan, saved.reference
        said = (
            f"{_instead(energy, reference, 'step')}, and {percent(saved.slowdown, signed=True)} "
            f"time ({seconds(time, 4)}); {counted(saved.steps, 'step')} under the plan against "
            f"{counted(saved.references, 'reference step')} at the highest clocks"
        )
        kind = "good" if saved.energy > 0 else "bad"
        return name, tag("span", percent(saved.energy), class_=kind), said
    if objective.bounds_power:
        said = "not measured: with a bounded power, no step runs at the highest clocks to compare"
        return name, "unknown", said
    said = (
        "not known yet: it takes steps under this plan, and reference steps at the highest clocks; "
        f"{percent(prediction.saved)} by the plan"
    )
    return name, "unknown", said


def _instead(energy: float, before: float, per: str) -> str:
    return f"{joules(energy, like=before)} per {per} instead of {joules(before)}"


def _step_time(step_time: float | None, planned: float) -> list[Fact]:
    """Return the measured step time compared with the plan, if known."""
    if step_time is None:
        return []
    more = step_time / planned - 1
    said = f"{percent(more, signed=True)} compared with the plan"
    if abs(more) < _AS_PLANNED:
        said = "as planned"
    elif more > 0:
        said += ": work outside the pipeline"
    return [("Measured step time", seconds(step_time, 4), said)]


def _objective(objective: PipelineObjective) -> str:
    said = str(objective)
    return said[:1].upper() + said[1:]


def _reserve(planned: Planned) -> Fact:
    variation = planned.variation
    said = f"times vary by {percent(variation.relative)}"
    if variation.lag:
        said += f"; a clock changes {seconds(variation.lag)} after the request"
    return "Reserve", percent(planned.reserve), f"of the slack is left unused, as {said}"

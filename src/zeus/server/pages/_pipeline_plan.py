"""Sections about the plan that a pipeline follows: its timelines, where energy goes, clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.drawing._markup import Content, Markup, tag
from zeus.drawing._pages import note
from zeus.drawing._shapes import Picture
from zeus.drawing._table import Column, table
from zeus.optimizer.pipeline_frequency._pipeline import Execution
from zeus.optimizer.pipeline_frequency._plan import Plan
from zeus.optimizer.pipeline_frequency._slack import clock_changes, critical_operations
from zeus.optimizer.pipeline_frequency._timelines import Timelines
from zeus.optimizer.pipeline_frequency.job._job import PipelineJob
from zeus.optimizer.pipeline_frequency.job._observed import observed_step
from zeus.optimizer.pipeline_frequency.job._planning import Planned
from zeus.server.pages._layout import section
from zeus.server.pages._plotting import drawn
from zeus.server.pages._units import NONE, aligned_joules, digits, listed, percent

MAX_ROWS = 500
_MAX_TOOLTIPS = 1_500
_MAX_OPERATIONS = 6_000  # in a picture
_MAX_MICROBATCHES = 32  # that can be read in a picture of all


# --- timelines ------------------------------------------------------------------------------------


def plan_section(planned: Planned, plan: Plan, pipeline: int, inputs: PipelineJob) -> Markup:
    """Return the timelines of a pipeline before, by its plan and as measured, and its total power.

    Args:
        planned: The plans of the job.
        plan: The one that the pipeline follows.
        pipeline: Index of the pipeline.
        inputs: The job, with the measurements of its ranks.
    """
    operations = len(plan.pipeline.operations)
    measured, said = _measured(plan, pipeline, inputs)
    timelines = Timelines(planned.before, plan.execute(), measured)
    microbatches = {operation.microbatch for operation in plan.pipeline.operations} - {None}
    content: list[Content] = []
    if operations > _MAX_OPERATIONS:
        content.append(
            note(f"With {operations} operations the plan is too large to draw as a whole.")
        )
    else:
        content.append(_scrolled(timelines.draw(tooltips=operations <= _MAX_TOOLTIPS), "plan"))
    window = timelines.cycles() if len(microbatches) > _MAX_MICROBATCHES else None
    if window is not None:
        content += [
            tag("h3", "Four cycles from its middle"),
            _scrolled(timelines.draw(window), "cycles"),
        ]
    about = (
        f"Timelines of pipeline {pipeline}, colored by power, as if times did not vary. {said} The "
        "total power is that of all pipelines, if all followed this plan."
    )
    title = "The pipeline before and now"
    return section(title, *content, name="plan", about=about)


def _scrolled(picture: Picture, name: str) -> Markup:
    inner = tag(
        "div",
        drawn(picture),
        class_="scroll gantt",
        tabindex=0,
        role="region",
        aria_label=picture.name,
    )
    return tag("figure", inner, class_=name)


def _measured(
    plan: Plan, pipeline: int, inputs: PipelineJob
) -> tuple[tuple[str, Execution] | None, str]:
    """Return the latest step that all places measured, and what to know about it."""
    _, places, _ = inputs.degrees
    found = {
        rank.seat.pp_rank: rank.measured
        for rank in inputs.ranks.values()
        if rank.measured is not None and (rank.seat.dp_rank, rank.seat.tp_rank) == (pipeline, 0)
    }
    if len(found) < places:
        return None, "No step of it was measured by all places."
    passages = [found[place].passages for place in range(places)]
    observed = observed_step(plan.pipeline, passages)
    if observed is None:
        return None, "No step of it was measured by all places."
    number, execution = observed
    if min(each.revision for each in found.values()) > 1:
        said = "it ran under an earlier plan, or for reference at the highest clocks."
    else:
        said = "it ran while clocks were explored."
    said = f"Step {number} is the latest whose times were reported by all places; {said}"
    return (f"Step {number}, measured", execution), said


# --- where the energy goes ------------------------------------------------------------------------


@dataclass(frozen=True)
class PlaceEnergy:
    """What one place of a pipeline does in an iteration by the plan.

    Attributes:
        place: Index of the place; `None` for all of them.
        stages: Its stages.
        computing: Joules of its computations, on all its GPUs.
        waiting: Joules of its GPUs while they wait.
        before: Joules of both at the highest clocks.
        critical: Number of its computations without slack.
        computations: Number of all its computations.
        changes: How often its clock changes.
    """

    place: int | None
    stages: Sequence[int]
    computing: float
    waiting: float
    before: float
    critical: int
    computations: int
    changes: int


def place_energies(before: Execution, after: Execution) -> list[PlaceEnergy]:
    """Return where the energy of one pipeline goes, by place.

    Args:
        before: An iteration at the highest clocks.
        after: One by the plan.
    """
    critical, changes = critical_operations(after), clock_changes(after)
    computing, waiting = _by_place(after)
    earlier = [sum(pair) for pair in zip(*_by_place(before), strict=True)]
    found = []
    for place in range(after.pipeline.devices):
        own = [
            number
            for number, operation in enumerate(after.pipeline.operations)
            if operation.device == place
        ]
        stages = {after.pipeline.operations[number].stage for number in own}
        found.append(
            PlaceEnergy(
                place,
                sorted(stage for stage in stages if stage is not None),
                computing[place],
                waiting[place],
                earlier[place],
                len(critical.intersection(own)),
                len(own),
                changes[place],
            )
        )
    return found


def _by_place(execution: Execution) -> tuple[list[float], list[float]]:
    """Return joules of computing and of waiting at each place of one pipeline."""
    pipeline = execution.pipeline
    computing, busy = [0.0] * pipeline.devices, [0.0] * pipeline.devices
    for operation, option in zip(pipeline.operations, execution.options, strict=True):
        if operation.device is not None:
            computing[operation.device] += pipeline.energy_of(operation, option)
            busy[operation.device] += option.time
    watts = pipeline.blocking_power * pipeline.tensor_parallel
    return computing, [watts * (execution.time - each) for each in busy]


def energy_section(before: Execution, after: Execution, pipeline: int) -> Markup:
    """Return the table of where the energy of a pipeline goes."""
    places = place_energies(before, after)
    rows = [*places[:MAX_ROWS], _total(places)]
    most = max(row.before for row in rows)
    columns: Sequence[Column[PlaceEnergy]] = (
        Column("place", lambda row: "all" if row.place is None else row.place),
        Column("stages", lambda row: _stages(row.stages), optional=True),
        Column("computing", lambda row: aligned_joules(row.computing, most), number=True),
        Column("waiting", lambda row: aligned_joules(row.waiting, most), number=True),
        Column("before", lambda row: aligned_joules(row.before, most), number=True, optional=True),
        Column(
            "saved",
            lambda row: (
                percent(1 - (row.computing + row.waiting) / row.before) if row.before else NONE
            ),
            number=True,
        ),
        Column("without slack", lambda row: f"{row.critical} of {row.computations}", number=True),
        Column("clock changes", lambda row: row.changes, number=True, optional=True),
    )
    inner = table(
        "Where the energy goes",
        columns,
        rows,
        kind=lambda row: "total" if row.place is None else "",
    )
    about = (
        f"An iteration of pipeline {pipeline} by its plan: joules of computing and of waiting for "
        "other places, computations that have no slack, and how often a clock changes."
    )
    return section("Where the energy goes", inner, name="energy", about=about)


def _total(places: Sequence[PlaceEnergy]) -> PlaceEnergy:
    return PlaceEnergy(
        None,
        (),
        math.fsum(each.computing for each in places),
        math.fsum(each.waiting for each in places),
        math.fsum(each.before for each in places),
        sum(each.critical for each in places),
        sum(each.computations for each in places),
        sum(each.changes for each in places),
    )


def _stages(stages: Sequence[int]) -> str:
    return listed(map(str, stages)) if stages else NONE


def clocks_section(plan: Plan, pipeline: int) -> Markup:
    """Return the clocks of each kind of computation."""
    found: dict[tuple[int, str], list[float]] = {}
    for place in range(plan.pipeline.devices):
        for operation, option in plan.of_device(place):
            if option.frequency is not None:
                label = f"{operation.instruction} of stage {operation.stage}"
                found.setdefault((place, label), []).append(option.frequency)
    columns: Sequence[Column[tuple[int, str]]] = (
        Column("place", lambda key: key[0], optional=True),
        Column("computation", lambda key: key[1]),
        Column("lowest", lambda key: _clock(min(found[key])), number=True),
        Column("mean", lambda key: _clock(sum(found[key]) / len(found[key])), number=True),
        Column("highest", lambda key: _clock(max(found[key])), number=True),
    )
    inner = table("Clocks of the plan", columns, list(found)[:MAX_ROWS])
    return section(f"Clocks of pipeline {pipeline}", inner, name="clocks")


def _clock(megahertz: float) -> str:
    return f"{digits(megahertz)} MHz"

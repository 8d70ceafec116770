"""The history of a pipeline job: its plans, and step time and energy over hours and days."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zeus.drawing._captions import Sample
from zeus.drawing._markup import Content, Markup
from zeus.drawing._shapes import Path
from zeus.drawing._table import Column, table
from zeus.drawing._units import Unit, energy_unit, time_unit
from zeus.optimizer.pipeline_frequency.storage._history import History, PlanPeriod
from zeus.optimizer.pipeline_frequency.storage._step_series import StepPoint
from zeus.server.pages._layout import columns as side_by_side
from zeus.server.pages._layout import section
from zeus.server.pages._plotting import HALF, figure
from zeus.server.pages._time_chart import CHANGE, Series, TimeChart
from zeus.server.pages._units import NONE, ago, counted, grouped, joules, moment, seconds

_STEPS = Path((), "line", 1.8)
_MAX_TOOLTIPS = 120
_FEWEST_POINTS = 3


def history_section(history: History, world: int, now: float) -> Markup | None:
    """Return the plans that were in force, as planned and as measured, and their steps over time.

    Args:
        history: The history.
        world: Number of ranks of the job.
        now: Seconds since 1970.
    """
    if not history.periods:
        return None
    about = (
        "Plans that were in force: what they expected of an iteration of all pipelines, and what "
        "was measured. Reasons are among the events."
    )
    inner = (*_charts(history, world), _table(history.periods, world, now))
    return section("History of plans", *inner, name="history", about=about)


def _table(periods: Sequence[PlanPeriod], world: int, now: float) -> Markup:
    most = max((each.energy or 0.0) for each in periods)

    def energy(period: PlanPeriod) -> str:
        if period.energy is None:
            return NONE
        said = joules(period.energy, like=most)
        return said if period.ranks == world else f"{said} of {counted(period.ranks, 'rank')}"

    columns: Sequence[Column[PlanPeriod]] = (
        Column("since", lambda each: ago(each.since, now)),
        Column("steps", lambda each: grouped(each.steps), number=True),
        Column(
            "time by the plan",
            lambda each: NONE if each.planned is None else seconds(each.planned[0], 4),
            number=True,
            optional=True,
        ),
        Column("step time", lambda each: seconds(each.time, 4), number=True),
        Column(
            "energy by the plan",
            lambda each: NONE if each.planned is None else joules(each.planned[1], like=most),
            number=True,
            optional=True,
        ),
        Column("energy of a step", energy, number=True),
    )
    return table("History of plans", columns, periods)


# --- over time ------------------------------------------------------------------------------------


def _charts(history: History, world: int) -> list[Content]:
    points = history.points
    if len(points) < _FEWEST_POINTS:
        return []
    first, last = points[0].begin, points[-1].end
    changes = [each.since for each in history.periods if first < each.since < last]
    every = max(1, -(-len(points) // _MAX_TOOLTIPS))

    def over(
        title: str,
        value: Callable[[StepPoint], float | None],
        unit: Callable[[float], Unit],
        show: Callable[[float], str],
    ) -> Markup | None:
        found = [
            (
                (each.begin + each.end) / 2,
                measured,
                _tooltip(each, show(measured)) if not place % every else "",
            )
            for place, each in enumerate(points)
            if (measured := value(each)) is not None
        ]
        if len(found) < _FEWEST_POINTS:
            return None
        most = max(measured for _, measured, _ in found)
        name = f"{title} over time; the table has the mean of each plan"
        lines = [Series(found, _STEPS)]
        chart = TimeChart(name, title, lines, unit(most), first, last - first, changes)
        legend: list[tuple[Sample, str]] = [(_STEPS, f"{title.lower()}, measured")]
        if changes:
            legend.append((CHANGE, "another plan comes into force"))
        return figure(chart, HALF, legend)

    ranks = max(each.ranks for each in points)
    energy = "Energy of a step" if ranks == world else f"Energy of a step of {ranks} ranks"
    drawn = (
        over("Step time", lambda each: each.time, time_unit, lambda value: seconds(value, 4)),
        over(energy, lambda each: each.energy, energy_unit, joules),
    )
    return [side_by_side(*(each for each in drawn if each is not None))]


def _tooltip(point: StepPoint, said: str) -> str:
    steps = max(round(point.steps), 1)
    return f"{moment(point.begin)}: {said}, mean of {counted(steps, 'step')}"

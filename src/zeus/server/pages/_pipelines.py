"""Pages of pipeline jobs: the list, and one job with its plan, frontier, pipelines and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._pages import note
from zeus.drawing._table import Column, table
from zeus.drawing.frontier import lay_out
from zeus.errors import ServerError
from zeus.frontier import Frontier, Point
from zeus.optimizer.pipeline_frequency._figure import draw_pipeline
from zeus.optimizer.pipeline_frequency.api._commands import ListPipelines, ShowPipeline
from zeus.optimizer.pipeline_frequency.job._job import JobEvent
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._planning import Messages, Planned
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.server.pages._job import check_scope
from zeus.server.pages._layout import (
    crumb,
    facts,
    heading,
    notice,
    number_in,
    respond,
    section,
)
from zeus.server.pages._plotting import WIDE, drawn, figure
from zeus.server.pages._units import NONE, ago, counted, digits, joules, percent, seconds, watts

PATH = "/pipelines"
_REFRESH = 5.0  # seconds, while ranks are alive
_MAX_MARKS = 60  # on a frontier
_MAX_TOOLTIPS = 1_500
_MAX_OPERATIONS = 6_000  # in a picture
_MAX_ROWS = 500
_EVENTS = 20
_AS_PLANNED = 5e-3  # relative difference up to which a step counts as planned


def address(name: str, pipeline: int | None = None) -> str:
    """Return the URL of a job, or of one of its pipelines."""
    query = "" if pipeline is None else f"?pipeline={pipeline}#plan"
    return f"{PATH}/{quote(name, safe='')}{query}"


# --- all of them ----------------------------------------------------------------------------------


def show_list(request: Request) -> Response:
    """Return the page that lists all pipeline jobs, or the one that the token is for."""
    pipelines: Pipelines = request.app.state.pipelines
    found = pipelines.do(ListPipelines(scope=request.state.scope))
    alive = sum(job["alive"] for job in found)
    about = f"{counted(len(found), 'job')}, {counted(alive, 'rank')} training now."
    content = join(
        heading("Pipelines", about if found else None),
        _list(found, request.app.state.now()) if found else _nothing(),
    )
    return respond(request, "Pipelines", content, at=PATH, refresh=_REFRESH if alive else 0)


def _list(jobs: Sequence[Mapping[str, Any]], now: float) -> Markup:
    columns: Sequence[Column[Mapping[str, Any]]] = (
        Column("job", lambda job: tag("a", tag("bdi", job["name"]), href=address(job["name"]))),
        Column("DP × PP × TP", lambda job: " × ".join(map(str, _degrees(job))), optional=True),
        Column("ranks", lambda job: f"{job['alive']} of {math.prod(_degrees(job))}", number=True),
        Column("straggling", lambda job: job["straggling"] or NONE, number=True, optional=True),
        Column("status", lambda job: _short(job["status"])),
        Column("last change", lambda job: ago(job["updated"], now), optional=True),
    )
    return tag("div", table("Pipeline jobs", columns, jobs), id="jobs")


def _degrees(job: Mapping[str, Any]) -> tuple[int, int, int]:
    return job["dp_degree"], job["pp_degree"], job["tp_degree"]


def _nothing() -> Markup:
    how = (
        tag("p", "There are no pipeline jobs yet. A job appears here when its ranks start:"),
        tag(
            "pre",
            tag(
                "code",
                "optimizer = PipelineFrequencyOptimizer(rank, dp_rank, pp_rank, tp_rank, "
                "device_id,\n    dp_degree, pp_degree, tp_degree, world_size, "
                'server_url="http://…:8420")',
            ),
        ),
    )
    return tag("div", *how, id="jobs")


# --- one of them ----------------------------------------------------------------------------------


def show(request: Request) -> Response:
    """Return the page of one pipeline job."""
    name = request.path_params["name"]
    check_scope(request, name)
    pipelines: Pipelines = request.app.state.pipelines
    job = pipelines.do(ShowPipeline(job=name))
    number = number_in(request.query_params.get("pipeline", "")) or 0
    try:
        planned = pipelines.planned(name)
    except ServerError:
        planned = None  # its plans are being recomputed
    page = _Page(
        job,
        planned,
        pipelines.step_time(name),
        number if number < job["dp_degree"] else 0,
        request.app.state.now(),
    )
    content = join(page.content(), _events(pipelines.events(name, _EVENTS), page.now))
    refresh = _REFRESH if job["alive"] else 0
    return respond(request, name, content, at=PATH, refresh=refresh)


def _events(events: Sequence[JobEvent], now: float) -> Markup | None:
    if not events:
        return None
    columns: Sequence[Column[JobEvent]] = (
        Column("when", lambda event: ago(event.at, now)),
        Column("event", lambda event: event.kind),
        Column("details", lambda event: event.message),
    )
    return section("Events", table("Events", columns, events), name="events")


@dataclass
class _Page:
    """The page of one job, with the plan that each of its pipelines follows.

    Attributes:
        job: From `Pipelines.job`.
        planned: Its plans, if there are any.
        step_time: Measured seconds per step, if known.
        number: The selected pipeline.
        now: Seconds since 1970.
    """

    job: Mapping[str, Any]
    planned: Planned | None
    step_time: float | None
    number: int
    now: float

    def __post_init__(self) -> None:
        self.stragglers = {each["dp_rank"]: Straggler(**each) for each in self.job["stragglers"]}
        self.points = [] if self.planned is None else [
            self.planned.point(self.stragglers, pipeline, self.step_time)
            for pipeline in range(self.job["dp_degree"])
        ]  # fmt: skip

    def content(self) -> Markup:
        parts: list[Content] = [self.top(), self.at_a_glance()]
        if self.job["status"].startswith("cannot plan"):
            parts.append(notice(_sentence(self.job["status"]), kind="bad"))
        if self.planned is not None:
            parts += [self.plan(self.planned), self.frontier(self.planned)]
            if self.job["dp_degree"] > 1:
                parts.append(self.pipelines())
            parts.append(self.clocks())
        parts.append(self.ranks())
        return join(*parts)

    def top(self) -> Markup:
        job = self.job
        about = (
            f"{counted(job['dp_degree'], 'pipeline')} of {counted(job['pp_degree'], 'PP rank')} "
            f"with {counted(job['tp_degree'], 'GPU')} each. Last change "
        )
        remark = tag("p", tag("bdi", job["note"]), class_="about") if job["note"] else None
        title = heading(tag("bdi", job["name"]), about, ago(job["updated"], self.now), ".")
        return join(crumb("Pipelines", PATH), title, remark)

    # --- at a glance ----------------------------------------------------------------------------

    def at_a_glance(self) -> Markup:
        job = self.job
        world = job["dp_degree"] * job["pp_degree"] * job["tp_degree"]
        ranks = ("Ranks", f"{job['alive']} of {world}", f"{job['registered']} registered")
        return facts([("Status", _short(job["status"])), *self.effect(), ranks])

    def effect(self) -> list[tuple[str, Content, Content]]:
        if self.planned is None:
            return []
        before = self.planned.before
        pace = self.planned.pace(self.stragglers, self.step_time)
        # Pipelines with the same plan have the same energy: it is computed once.
        each = {point: point.knob.execute().lasting(pace).energy for point in set(self.points)}
        now = math.fsum(each[point] for point in self.points) / len(self.points)
        then = before.lasting(pace).energy
        saved = 1 - now / then if then else 0.0
        slower = pace / before.time - 1
        said = f"{percent(slower, signed=True)} compared with no plan"
        if self.stragglers:
            said = f"{seconds(before.time)} without stragglers"
        elif abs(slower) < 5e-4:
            said = "as fast as without a plan"
        power = self.planned.blocking_power
        return [
            (
                "Saved",
                tag("span", percent(saved), class_="good"),
                f"{joules(now)} per iteration instead of {joules(then)}",
            ),
            ("Iteration time", seconds(pace, 4), said),
            *self.seen(self.planned.solution.frontier.fastest.time),
            (
                "Power while waiting",
                watts(power),
                "unknown: counted as 0 W" if power is None else "of a GPU that waits for another",
            ),
            *message_facts(self.planned.messages),
        ]

    def seen(self, planned: float) -> list[tuple[str, Content, Content]]:
        """Return the measured step time compared with the plan, if known."""
        if self.step_time is None:
            return []
        more = self.step_time / planned - 1
        said = f"{percent(more, signed=True)} compared with the plan"
        if abs(more) < _AS_PLANNED:
            said = "as planned"
        elif more > 0:
            said += ": work outside the pipeline"
        return [("Measured step time", seconds(self.step_time, 4), said)]

    # --- the plan -------------------------------------------------------------------------------

    def plan(self, planned: Planned) -> Markup:
        operations = len(planned.before.pipeline.operations)
        about = f"Timeline of pipeline {self.number}, colored by power."
        if operations > _MAX_OPERATIONS:
            return section(
                "The pipeline before and now",
                note(f"With {operations} operations the plan is too large to draw here."),
                name="plan",
            )
        after = self.points[self.number].knob.execute()
        drawing = draw_pipeline(planned.before, after, tooltips=operations <= _MAX_TOOLTIPS)
        picture = tag(
            "div",
            drawn(drawing),
            class_="scroll gantt",
            tabindex=0,
            role="region",
            aria_label="The pipeline before and now",
        )
        return section(
            "The pipeline before and now", tag("figure", picture), name="plan", about=about
        )

    def frontier(self, planned: Planned) -> Markup:
        whole = planned.solution.frontier
        kept = _thinned(list(whole), self.points)
        thin = Frontier(kept, work="an iteration", knob_name="plan")
        choices = {"": _marked(self.points[self.number])}
        reference = Point("highest clocks", planned.before.time, planned.before.energy)
        chart = figure(
            lambda frame: lay_out(thin, choices, "An iteration", reference=reference, frame=frame),
            WIDE,
            (),
            note(
                f"{counted(len(whole), 'plan')}, each at most "
                f"{percent(max(point.knob.gap for point in whole))} above the proven lower bound. "
                f"The plan of pipeline {self.number} is highlighted."
            ),
        )
        about = (
            "Time and energy of an iteration of all pipelines, from the fastest plan to the one "
            "with the lowest energy, with their mean clocks."
        )
        return section("Time and energy of the plans", chart, name="frontier", about=about)

    def pipelines(self) -> Markup:
        def pace(number: int) -> str:
            straggler = self.stragglers.get(number)
            if straggler is None:
                return "as planned"
            return f"takes {str(straggler).partition(' takes ')[2]}"

        columns: Sequence[Column[int]] = (
            Column("pipeline", lambda n: tag("a", str(n), href=address(self.job["name"], n))),
            Column("pace", pace),
            Column("time of its plan", lambda n: seconds(self.points[n].time, 4), number=True),
            Column(
                "energy of its plan",
                lambda n: joules(self.points[n].energy / len(self.points)),
                number=True,
            ),
            Column("clocks", lambda n: str(self.points[n].knob), optional=True),
        )
        inner = table(
            "Pipelines",
            columns,
            range(len(self.points))[:_MAX_ROWS],
            kind=lambda n: "chosen" if n == self.number else "",
        )
        about = "A straggler runs its fastest plan; the other pipelines slow down to its pace."
        return section("Pipelines", inner, name="pipelines", about=about)

    def clocks(self) -> Markup:
        plan = self.points[self.number].knob
        found: dict[tuple[int, str], list[float]] = {}
        for place in range(self.job["pp_degree"]):
            for operation, option in plan.of_device(place):
                if option.frequency is not None:
                    label = f"{operation.instruction} of stage {operation.stage}"
                    found.setdefault((place, label), []).append(option.frequency)
        columns: Sequence[Column[tuple[int, str]]] = (
            Column("PP rank", lambda key: key[0], optional=True),
            Column("computation", lambda key: key[1]),
            Column("lowest", lambda key: _clock(min(found[key])), number=True),
            Column("mean", lambda key: _clock(sum(found[key]) / len(found[key])), number=True),
            Column("highest", lambda key: _clock(max(found[key])), number=True),
        )
        inner = table("Clocks of the plan", columns, list(found)[:_MAX_ROWS])
        return section(f"Clocks of pipeline {self.number}", inner, name="clocks")

    # --- ranks ----------------------------------------------------------------------------------

    def ranks(self) -> Markup:
        own = [rank for rank in self.job["ranks"] if rank["dp_rank"] == self.number]
        inner: Content = table("Ranks", _RANKS, own[:_MAX_ROWS], kind=_rank_kind)
        if not own:
            inner = tag("p", "No rank has registered.", class_="about")
        return section(f"Ranks of pipeline {self.number}", inner, name="ranks")


def _rank_kind(rank: Mapping[str, Any]) -> str:
    return "muted" if rank["state"] in ("ended", "lost") else ""


def _clock(megahertz: float) -> str:
    return f"{digits(megahertz)} MHz"


def _state(rank: Mapping[str, Any]) -> Content:
    if rank["trouble"]:
        return join(
            tag("span", "failing", class_="bad"),
            tag("span", rank["trouble"], class_="why below"),
        )
    if rank["state"] == "lost":
        return tag("span", "lost: no longer responds", class_="bad")
    return str(rank["state"])


_RANKS: Sequence[Column[Mapping[str, Any]]] = (
    Column("rank", lambda rank: rank["rank"]),
    Column("PP rank", lambda rank: rank["pp_rank"], number=True),
    Column("TP rank", lambda rank: rank["tp_rank"], number=True, optional=True),
    Column("GPU", lambda rank: rank["gpu"], optional=True),
    Column("state", _state),
    Column("instructions", lambda rank: rank["instructions"] or NONE, number=True, optional=True),
    Column("clocks measured", lambda rank: rank["clocks_measured"] or NONE, number=True),
)


def _thinned(points: Sequence[Point], kept: Sequence[Point]) -> list[Point]:
    """Return at most about `_MAX_MARKS` points, and all of `kept`."""
    step = max(1, len(points) // _MAX_MARKS)
    chosen = {*points[::step], points[-1], *kept}
    return [_marked(point) for point in sorted(chosen, key=lambda point: point.time)]


def _marked(point: Point) -> Point:
    """Return the point with a short name of its plan."""
    return Point(str(point.knob).removesuffix(" on average"), point.time, point.energy)


def _short(status: str) -> str:
    return "cannot plan" if status.startswith("cannot plan") else status


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def message_facts(found: Messages) -> list[tuple[str, Content, Content]]:
    """Return the slowest link, and the other links' times, if any is known."""
    if not found.links:
        return []
    slowest = max(found.links, key=lambda stage: found.links[stage])
    said = f"between stages {slowest} and {slowest + 1}"
    others = [time for stage, time in found.links.items() if stage != slowest]
    if others:
        said += f"; {seconds(min(others))} to {seconds(max(others))} on other links"
    said += "; both ranks wait for each" if found.block else ""
    return [("Slowest message", seconds(found.links[slowest]), said)]

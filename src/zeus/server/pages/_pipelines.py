"""Pages of pipeline jobs: the list, and one job with its plan, frontier, pipelines and ranks."""

from __future__ import annotations

import math
from collections import Counter
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
from zeus.optimizer.pipeline_frequency.api._commands import ListPipelines, ShowPipeline
from zeus.optimizer.pipeline_frequency.job._job import JobEvent, PipelineJob
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._planning import Planned
from zeus.optimizer.pipeline_frequency.job._prediction import predict
from zeus.optimizer.pipeline_frequency.job._progress import about_left
from zeus.optimizer.pipeline_frequency.job._supervision import Saved
from zeus.optimizer.pipeline_frequency.storage._history import History
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
from zeus.server.pages._pipeline_facts import Fact, energy_facts, plan_facts
from zeus.server.pages._pipeline_history import history_section
from zeus.server.pages._pipeline_plan import (
    MAX_ROWS,
    clocks_section,
    energy_section,
    plan_section,
)
from zeus.server.pages._plotting import WIDE, figure
from zeus.server.pages._units import NONE, ago, counted, joules, percent, seconds

PATH = "/pipelines"
_REFRESH = 5.0  # seconds, while ranks are alive
_MAX_MARKS = 60  # on a frontier
_EVENTS = 20


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
        Column("status", _status),
        Column("last change", lambda job: ago(job["updated"], now), optional=True),
    )
    return tag("div", table("Pipeline jobs", columns, jobs), id="jobs")


def _status(job: Mapping[str, Any]) -> Content:
    said = _short(job["status"])
    if not job["progress"]:
        return said
    return join(said, tag("span", job["progress"], class_="why below"))


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
        pipelines.inputs(name),
        pipelines.step_time(name),
        pipelines.saved(name),
        pipelines.history(name),
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
        inputs: The job, with the measurements of its ranks.
        step_time: Measured seconds per step, if known.
        saved: What the plan saves, as measured, if known.
        history: Steps under this plan and earlier ones.
        number: The selected pipeline.
        now: Seconds since 1970.
    """

    job: Mapping[str, Any]
    planned: Planned | None
    inputs: PipelineJob
    step_time: float | None
    saved: Saved | None
    history: History
    number: int
    now: float

    def __post_init__(self) -> None:
        self.stragglers = {each["dp_rank"]: Straggler(**each) for each in self.job["stragglers"]}
        self.objective = PipelineObjective(**self.job["objective"])
        self.points = [] if self.planned is None else [
            self.planned.point(self.stragglers, pipeline, self.step_time, self.objective)
            for pipeline in range(self.job["dp_degree"])
        ]  # fmt: skip

    def content(self) -> Markup:
        parts: list[Content] = [self.top(), self.at_a_glance()]
        if self.job["status"].startswith("cannot plan"):
            parts.append(notice(_sentence(self.job["status"]), kind="bad"))
        if self.planned is not None:
            plan = self.points[self.number].knob
            parts += [
                plan_section(self.planned, plan, self.number, self.inputs),
                energy_section(self.planned.before, plan.execute(), self.number),
                self.frontier(self.planned),
            ]
            if self.job["dp_degree"] > 1:
                parts.append(self.pipelines(self.planned))
            parts.append(clocks_section(plan, self.number))
        world = self.job["dp_degree"] * self.job["pp_degree"] * self.job["tp_degree"]
        parts += [self.ranks(), history_section(self.history, world, self.now)]
        return join(*parts)

    def top(self) -> Markup:
        job = self.job
        about = (
            f"{counted(job['dp_degree'], 'pipeline')} of {counted(job['pp_degree'], 'place')} "
            f"with {counted(job['tp_degree'], 'GPU')} each. Last change "
        )
        remark = tag("p", tag("bdi", job["note"]), class_="about") if job["note"] else None
        title = heading(tag("bdi", job["name"]), about, ago(job["updated"], self.now), ".")
        return join(crumb("Pipelines", PATH), title, remark)

    def at_a_glance(self) -> Markup:
        job = self.job
        world = job["dp_degree"] * job["pp_degree"] * job["tp_degree"]
        ranks = ("Ranks", f"{job['alive']} of {world}", f"{job['registered']} registered")
        entries: list[Fact] = [("Status", _short(job["status"]), self.progress())]
        if self.planned is not None:
            prediction = predict(self.planned, self.points, self.stragglers, self.step_time)
            entries += plan_facts(
                self.planned,
                prediction,
                self.saved,
                self.objective,
                self.step_time,
                straggling=bool(self.stragglers),
            )
        return facts([*entries, *energy_facts(self.history.energy, self.now), ranks])

    def progress(self) -> str:
        """Return how far measuring or planning has come, and which ranks do what meanwhile."""
        said = _sentence(self.job["progress"]) if self.job["progress"] else ""
        if self.planned is not None:
            slow = f"{counted(len(self.stragglers), 'pipeline')} straggling"
            return f"{said} {slow if self.stragglers else ''}".strip()
        states = Counter(rank["state"] for rank in self.job["ranks"])
        ranks = ", ".join(f"{counted(number, 'rank')} {state}" for state, number in states.items())
        return f"{said} {ranks}".strip()

    def frontier(self, planned: Planned) -> Markup:
        whole = planned.solution.frontier
        kept = _thinned(list(whole), self.points)
        thin = Frontier(kept, work="an iteration", knob_name="plan")
        choices = {"": _marked(self.points[self.number])}
        reference = Point("highest clocks", planned.expected.time, planned.expected.energy)
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

    def pipelines(self, planned: Planned) -> Markup:
        fastest = planned.solution.frontier.fastest.time
        most = max(point.energy for point in self.points) / len(self.points)

        def pace(number: int) -> str:
            straggler = self.stragglers.get(number)
            if straggler is None:
                slowed = self.stragglers and self.points[number].time > fastest
                return "slowed down, as another one straggles" if slowed else "as planned"
            said = f"takes {str(straggler).partition(' takes ')[2]}"
            return f"{said}, found from its steps" if straggler.found else f"{said}, as reported"

        columns: Sequence[Column[int]] = (
            Column("pipeline", lambda n: tag("a", str(n), href=address(self.job["name"], n))),
            Column("pace", pace),
            Column("time of its plan", lambda n: seconds(self.points[n].time, 4), number=True),
            Column(
                "energy of its plan",
                lambda n: joules(self.points[n].energy / len(self.points), like=most),
                number=True,
            ),
            Column("clocks", lambda n: str(self.points[n].knob), optional=True),
        )
        inner = table(
            "Pipelines",
            columns,
            range(len(self.points))[:MAX_ROWS],
            kind=lambda n: "chosen" if n == self.number else "",
        )
        about = "A straggler runs its fastest plan; the other pipelines slow down to its pace."
        return section("Pipelines", inner, name="pipelines", about=about)

    # --- ranks ----------------------------------------------------------------------------------

    def ranks(self) -> Markup:
        own = [rank for rank in self.job["ranks"] if rank["dp_rank"] == self.number]
        inner: Content = table("Ranks", _RANKS, own[:MAX_ROWS], kind=_rank_kind)
        if not own:
            inner = tag("p", "No rank has registered.", class_="about")
        return section(f"Ranks of pipeline {self.number}", inner, name="ranks")


def _rank_kind(rank: Mapping[str, Any]) -> str:
    return "muted" if rank["state"] in ("ended", "lost") else ""


def _state(rank: Mapping[str, Any]) -> Content:
    if rank["trouble"]:
        return join(
            tag("span", "failing", class_="bad"),
            tag("span", rank["trouble"], class_="why below"),
        )
    if rank["state"] == "lost":
        return tag("span", "lost: no longer responds", class_="bad")
    if rank["measuring"] is not None:
        return join("measuring", tag("span", _measuring(rank["measuring"]), class_="why below"))
    return str(rank["state"])


def _measuring(progress: Mapping[str, Any]) -> str:
    said = f"step {min(progress['steps'] + 1, progress['expected_steps'])} of about "
    said += str(progress["expected_steps"])
    left = progress["seconds_left"]
    return said if left is None else f"{said}, {about_left(left)}"


def _clocks(rank: Mapping[str, Any]) -> Content:
    progress = rank["measuring"]
    if progress is not None:
        return f"{progress['clocks']} of {progress['expected_clocks']}"
    return rank["clocks_measured"] or NONE


_RANKS: Sequence[Column[Mapping[str, Any]]] = (
    Column("rank", lambda rank: rank["rank"]),
    Column("place", lambda rank: rank["pp_rank"], number=True),
    Column("TP rank", lambda rank: rank["tp_rank"], number=True, optional=True),
    Column("GPU", lambda rank: rank["gpu"], optional=True),
    Column("state", _state),
    Column("instructions", lambda rank: rank["instructions"] or NONE, number=True, optional=True),
    Column("clocks measured", _clocks, number=True),
    Column("reports", lambda rank: rank["reports"] or NONE, number=True, optional=True),
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

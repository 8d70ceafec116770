"""The page of one recurring job."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._captions import Sample
from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._pages import note
from zeus.drawing._shapes import Kind
from zeus.drawing._table import table
from zeus.drawing.frontier import by_time, columns_of, lay_out
from zeus.errors import FrontierError, TokenError
from zeus.frontier import Frontier, Point
from zeus.optimizer._stopping import Outcome, word_of
from zeus.optimizer.batch_size.api._answers import ProfileInfo
from zeus.optimizer.batch_size.api._commands import ListJobs
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.job._reasons import reason
from zeus.optimizer.batch_size.storage._account import CURRENCIES, gpu_name
from zeus.optimizer.batch_size.storage._overview import Overview, Overviews
from zeus.server.pages import _job_charts as charts
from zeus.server.pages import _job_tables as tables
from zeus.server.pages._job_list import job_address, tags_of
from zeus.server.pages._job_savings import Savings
from zeus.server.pages._layout import (
    columns,
    crumb,
    details,
    facts,
    heading,
    notice,
    number_in,
    pager,
    respond,
    section,
)
from zeus.server.pages._outcomes import kind_of
from zeus.server.pages._plotting import HALF, SMALL, WIDE, drawn, figure
from zeus.server.pages._units import (
    UNKNOWN,
    ago,
    counted,
    digits,
    grouped,
    joules,
    seconds,
    total_joules,
    watts,
)

_REFRESH = 5.0  # seconds, while a trial runs
_TRIALS = 25  # per page
_STRETCHES = 120  # segments of recurrences in a chart
_OTHERS = 50  # names of other jobs to choose from
_FRONTIERS = 12  # unless all are requested
_SHOWN = ("knob", "time", "energy", "time-change", "energy-change")  # columns of a frontier
_BELIEFS: tuple[tuple[Kind, str], ...] = (
    ("chosen", "chosen next"),
    ("best", "expected, has converged"),
    ("other", "expected, not tried yet"),
    ("failed", "not converged, or pruned"),
)


def check_scope(request: Request, name: str) -> None:
    """Raise `TokenError` if the token is not valid for the job."""
    scope = request.state.scope
    if scope is not None and scope != name:
        raise TokenError(f"your token is for job {scope!r} only")


def show(request: Request) -> Response:
    """Return the page of one job."""
    name = request.path_params["name"]
    check_scope(request, name)
    overviews: Overviews = request.app.state.overviews
    before = number_in(request.query_params.get("before", ""))
    overview = overviews.read(
        name, gpu=_gpu(request), stretches=_STRETCHES, before=before, most=_TRIALS
    )
    every = request.query_params.get("frontiers") == "all"
    savings = Savings(overview, request.query_params.get("of", ""))
    page = _Page(overview, savings, request.app.state.now(), before, every=every)
    if request.state.scope is None:
        recent = request.app.state.jobs.do(ListJobs(sort="updated", most=_OTHERS + 1))
        page.others = [each.name for each in recent if each.name != name][:_OTHERS]
    refresh = _REFRESH if overview.running else 0
    return respond(request, name, page.content(), at="/jobs", refresh=refresh)


def _gpu(request: Request) -> GpuModel | None:
    text, _, name = request.query_params.get("gpu", "").partition("x ")
    number = number_in(text)
    return None if number is None else GpuModel(name, number)


class _Page:
    def __init__(
        self, overview: Overview, savings: Savings, now: float, before: int | None, *, every: bool
    ) -> None:
        self.overview = overview
        self.savings = savings
        self.now = now
        self.info, self.spec = overview.info, overview.spec
        self.before = before
        self.every = every
        self.others: list[str] = []  # names of jobs to compare with

    def address(self, *, gpu: GpuModel | None = None, **query: object) -> str:
        """Return the URL of this page with other query parameters."""
        asked: dict[str, object] = {}
        gpu = gpu or self.overview.gpu
        if gpu is not None and len(self.overview.gpus) > 1:
            asked["gpu"] = f"{gpu.number}x {gpu.name}"
        return job_address(self.info.name, **asked, **query)

    def content(self) -> Markup:
        parts: list[Content] = [self.top(), self.at_a_glance()]
        if self.overview.running:
            listed = tables.running(self.overview.running, self.overview)
            parts.append(section("Running now", listed))
        if self.info.trials:
            parts += [self.choices(), self.gpus(), self.costs(), self.frontiers(), self.trials()]
        else:
            parts.append(
                notice("No trial has run yet. The first one will use the default batch size.")
            )
        parts.append(section("Specification", tables.specification(self.overview)))
        if self.others:
            parts.append(self.comparison())
        return join(*parts)

    # --- at a glance ----------------------------------------------------------------------------

    def top(self) -> Markup:
        spec = self.spec
        sign = "≥" if spec.higher_is_better else "≤"
        about = (
            f"Metric {sign} {digits(spec.target_metric, 6)} within {spec.max_epochs} epochs, "
            f"default batch size {spec.default_batch_size}. Last activity "
        )
        title = heading(tag("bdi", self.info.name), about, ago(self.info.updated, self.now), ".")
        trouble = self.info.trouble
        warning = notice(f"Needs a person: {trouble}.", kind="bad") if trouble else None
        return join(crumb("Jobs", "/jobs"), title, tags_of(self.info), warning)

    def at_a_glance(self) -> Markup:
        figures = self.savings.figures()
        return facts([*figures, self.chosen(), self.recurrences(), self.spent()])

    def chosen(self) -> tuple[str, Content, Content]:
        overview = self.overview
        if overview.running:
            trial = overview.running[0]
            reached = "unknown" if trial.metric is None else digits(trial.metric, 4)
            said = f"running: {counted(trial.epochs, 'epoch')} so far, metric {reached}"
            if len(overview.running) > 1:
                said = f"the latest of {counted(len(overview.running), 'running trial')}"
            return "Batch size chosen now", str(trial.batch_size), said
        if overview.next is None:
            return "Batch size chosen next", str(self.spec.default_batch_size), "the default"
        size, limit = overview.next.batch_size, None
        for profile in overview.profiles:
            if (profile.gpu, profile.gpus) == overview.gpu and profile.batch_size == size:
                limit = profile.power_limit
        said = reason(overview.spec, overview.next) + (f", at {watts(limit)}" if limit else "")
        return "Batch size chosen next", str(size), said

    def recurrences(self) -> tuple[str, Content, Content]:
        states: dict[str, int] = {}
        for total in self.overview.totals:
            states[total.state] = states.get(total.state, 0) + total.trials
        said = [counted(self.info.trials, "trial")]
        for state in (Outcome.STOPPED, Outcome.FAILED):
            if states.get(state):
                said.append(f"{grouped(states[state])} {word_of(state)}")
        return "Recurrences", grouped(self.info.recurrences), ", ".join(said)

    def spent(self) -> tuple[str, Content, Content]:
        totals = self.overview.totals
        measured = all(total.measured == total.trials for total in totals)
        energy = sum(total.energy for total in totals)
        used = total_joules(energy) if measured else f"at least {total_joules(energy)}"
        time_ = seconds(sum(total.time for total in totals))
        cost = joules(sum(total.cost for total in totals))
        known = any(total.measured for total in totals)
        value = used if known else UNKNOWN
        return "Energy so far", value, f"{time_} of time, cost {cost}" if totals else ""

    # --- charts ---------------------------------------------------------------------------------

    def choices(self) -> Markup:
        overview = self.overview
        states = {span.state for span in overview.spans}
        ordered = sorted(states, key=lambda state: (state != Outcome.CONVERGED, state))
        legend = [(kind_of(state), word_of(state)) for state in ordered]
        width = overview.width
        about = (
            "Each mark is a trial."
            if width == 1
            else f"Each mark stands for trials with the same outcome in {width} consecutive "
            "recurrences; its area is proportional to their share."
        )
        chart = figure(lambda frame: charts.choices(overview, frame), WIDE, legend)
        title = "Batch size of each recurrence"
        return section(title, chart, name="choices", about=about)

    def gpus(self) -> Markup | None:
        if len(self.overview.gpus) < 2:
            return None
        links = (
            tag(
                "a",
                gpu_name(gpu),
                href=f"{self.address(gpu=gpu)}#costs",
                aria_current="true" if gpu == self.overview.gpu else None,
            )
            for gpu in self.overview.gpus
        )
        return tag("nav", *links, class_="pager gpus", id="gpus", aria_label="GPUs")

    def costs(self) -> Markup:
        return join(columns(self.beliefs(), self.spending()), self.batch_sizes())

    def beliefs(self) -> Markup:
        overview = self.overview
        if not overview.costs and all(each.cost is None for each in overview.beliefs):
            unknown = "Unknown until a run has converged."
            return section("Cost of each batch size", name="costs", about=unknown)
        where = gpu_name(overview.gpu) if overview.gpu else ""
        about = (
            f"On {where}. Cost is η · energy + (1 − η) · maximum power · time of a whole run, "
            f"with η = {digits(self.spec.eta_knob)}."
        )
        kinds = charts.belief_kinds(overview)
        crowded = len(overview.beliefs) > charts.CROWD
        legend: list[tuple[Sample, str]] = [
            (charts.EXPECTED if kind == "other" and crowded else kind, text)
            for kind, text in _BELIEFS
            if kind in kinds
        ]
        unknown = " ? marks batch sizes without an estimate." if "unknown" in kinds else ""
        chart = figure(
            lambda frame: charts.beliefs(overview, frame),
            HALF,
            legend,
            note(f"Bars are 95 % intervals. Small dots are runs that converged.{unknown}"),
        )
        return section("Cost of each batch size", chart, name="costs", about=about)

    def spending(self) -> Markup:
        links = {each: f"{self.address(of=each)}#spending" for each in CURRENCIES}
        return self.savings.section(links)

    def batch_sizes(self) -> Markup:
        inner = tables.batch_sizes(self.overview)
        about = "Epochs, time and energy are means of the runs that converged."
        return section("Batch sizes", inner, name="sizes", about=about)

    def frontiers(self) -> Markup | None:
        found = [
            each
            for each in self.overview.profiles
            if (each.gpu, each.gpus) == self.overview.gpu and each.frontier is not None
        ]
        if not found:
            return None
        shown = found if self.every else sorted(found, key=self.relevance)[:_FRONTIERS]
        multiples = [self.frontier(each) for each in sorted(shown, key=lambda p: p.batch_size)]
        more = None
        if len(shown) < len(found):
            link = f"{self.address(frontiers='all')}#frontiers"
            more = tag("p", tag("a", f"Show all {len(found)}", class_="button", href=link))
        where = gpu_name(self.overview.gpu) if self.overview.gpu else ""
        return section(
            "Power limits",
            tag("div", *multiples, class_="multiples"),
            more,
            name="frontiers",
            about=f"Time and energy at each power limit on {where}; the chosen one is highlighted.",
        )

    def relevance(self, profile: ProfileInfo) -> tuple[bool, bool, int]:
        """Sort key: the next and the default batch size first, then those that ran most."""
        size, decided = profile.batch_size, self.overview.next
        runs = sum(t.trials for t in self.overview.totals if t.batch_size == size)
        return (
            decided is None or size != decided.batch_size,
            size != self.spec.default_batch_size,
            -runs,
        )

    def frontier(self, profile: ProfileInfo) -> Markup:
        title = tag("h3", f"Batch size {profile.batch_size}")
        try:
            frontier = Frontier.from_dict(profile.frontier or {})
        except FrontierError as error:
            return tag("div", title, note(f"The frontier cannot be drawn: {error}."))
        points = [point for point in frontier if _is(point, profile.power_limit)]
        chosen = {"": points[0]} if points else {}
        work = frontier.work or f"batch size {profile.batch_size}"
        picture = lay_out(frontier, chosen, work, frame=SMALL)
        cost = (
            None
            if profile.epoch_cost is None
            else note(f"An epoch costs {joules(profile.epoch_cost)}.")
        )
        size = profile.batch_size
        columns = [each for each in columns_of(frontier) if each.name in _SHOWN]
        listed = table(f"Power limits at batch size {size}", columns, by_time(frontier))
        unfolded = details("Show as a table", listed, name=f"limits-{size}")
        return tag("div", title, tag("figure", drawn(picture)), cost, unfolded)

    # --- trials ---------------------------------------------------------------------------------

    def trials(self) -> Markup:
        found = self.overview.trials
        address = f"{job_address(self.info.name)}/export.json"
        export = note(tag("a", "Export everything as JSON", href=address))
        if not found:
            listed: Content = tag("p", "There are no earlier trials.", class_="about")
        else:
            name, several = self.info.name, len(self.overview.gpus) > 1
            listed = tables.trials(name, found, gpus=several)
        return section("Trials", listed, self.pager(), export, name="trials")

    def comparison(self) -> Markup:
        """Return the form that leads to the comparison with another job."""
        names = (tag("option", value=each) for each in self.others)
        field = tag(
            "input",
            type="text",
            name="with",
            list="others",
            placeholder="Name of another job",
            aria_label="Name of another job",
            maxlength=200,
            required=True,
        )
        action = f"{job_address(self.info.name)}/compare"
        form = tag(
            "form",
            field,
            tag("datalist", *names, id="others"),
            tag("button", "Compare"),
            action=action,
            class_="inline",
        )
        return section("Compare with another job", form, name="comparison")

    def pager(self) -> Markup | None:
        found = self.overview.trials
        earlier = bool(found) and found[-1].number > 1
        later = self.before is not None and self.before <= self.info.trials
        if not (earlier or later):
            return None
        newer = min((self.before or 0) + _TRIALS, self.info.trials + 1)
        return pager(
            "Pages of trials",
            [
                ("← Later", f"{self.address(before=newer)}#trials" if later else None),
                (
                    "Earlier →",
                    f"{self.address(before=found[-1].number)}#trials" if earlier else None,
                ),
                ("Latest", f"{self.address()}#trials" if later else None),
            ],
        )


def _is(point: Point, limit: float | None) -> bool:
    knob = point.knob
    return limit is not None and isinstance(knob, int | float) and abs(knob - limit) <= 1.0

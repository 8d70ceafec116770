"""The page of one trial: its learning curve, and energy, time and power limit of its epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._captions import Sample
from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._shapes import Path
from zeus.drawing._table import Column, table
from zeus.drawing._units import Unit, energy_unit, time_unit
from zeus.errors import UnknownJobError
from zeus.optimizer._stopping import word_of
from zeus.optimizer.batch_size.api._answers import EpochInfo, TrialInfo
from zeus.optimizer.batch_size.api._commands import ListEpochs, ListTrials, ShowJob
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage._account import gpu_name
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.server.pages._job import check_scope
from zeus.server.pages._job_list import job_address
from zeus.server.pages._layout import (
    columns,
    crumb,
    details,
    facts,
    heading,
    notice,
    number_in,
    respond,
    section,
)
from zeus.server.pages._line_chart import Line, LineChart
from zeus.server.pages._outcomes import outcome
from zeus.server.pages._plotting import HALF, WIDE, figure
from zeus.server.pages._units import (
    NONE,
    UNKNOWN,
    digits,
    instant,
    joules,
    seconds,
    total_joules,
    watts,
)

_REFRESH = 5.0  # seconds, while the trial runs
_BESIDE = 20  # latest trials of the job that are drawn beside it
_CHOICES = 200  # trials to compare with
_EPOCHS = 1_000
_THIS = Path((), "line", 2.6)
_COMPARED = Path((), "chosen", 2.2, dashed=True)
_OTHERS = Path((), "axis", 1.0)


@dataclass(frozen=True)
class _Run:
    """A trial with its epochs."""

    info: TrialInfo
    epochs: Sequence[EpochInfo]

    @property
    def name(self) -> str:
        return f"trial {self.info.number}"

    def about(self) -> str:
        return f"{self.name}, batch size {self.info.batch_size}"


def show(request: Request) -> Response:
    """Return the page of one trial."""
    name = request.path_params["name"]
    check_scope(request, name)
    jobs: Jobs = request.app.state.jobs
    job = jobs.do(ShowJob(job=name))
    latest = jobs.do(ListTrials(job=name, most=_CHOICES))
    text = request.path_params["number"]
    number = number_in(text)
    this = _run(jobs, latest, name, number)
    if this is None:
        raise UnknownJobError(f"job {name!r} has no trial {text[:20]!r}")
    asked = number_in(request.query_params.get("with", ""))
    other = None if asked == number else _run(jobs, latest, name, asked)
    beside = [
        _Run(each, _epochs(jobs, each))
        for each in latest[:_BESIDE]
        if each.number not in (number, asked)
    ]
    page = _Page(JobSpec.from_dict(job.spec), this, other, beside, latest)
    refresh = _REFRESH if this.info.state == "running" else 0
    return respond(request, f"{this.name} of {name}", page.content(), at="/jobs", refresh=refresh)


def _run(jobs: Jobs, latest: Sequence[TrialInfo], job: str, number: int | None) -> _Run | None:
    if not number:
        return None
    info = next((each for each in latest if each.number == number), None)
    if info is None:
        found = jobs.do(ListTrials(job=job, before=number + 1, most=1))
        if not found or found[0].number != number:
            return None
        info = found[0]
    return _Run(info, _epochs(jobs, info))


def _epochs(jobs: Jobs, trial: TrialInfo) -> list[EpochInfo]:
    return jobs.do(ListEpochs(trial=trial.trial, most=_EPOCHS))


@dataclass(frozen=True)
class _Page:
    """The page.

    Attributes:
        spec: The job.
        this: The trial.
        other: The one to compare with, if any.
        beside: Further trials of the job, for comparison.
        latest: Trials to choose from.
    """

    spec: JobSpec
    this: _Run
    other: _Run | None
    beside: Sequence[_Run]
    latest: Sequence[TrialInfo]

    def content(self) -> Markup:
        info = self.this.info
        parts: list[Content] = [self.top(), self.figures()]
        if info.reason:
            parts.append(notice(tag("strong", "Why this batch size: "), _sentence(info.reason)))
        if info.note:
            parts.append(notice(tag("strong", "How it ended: "), _sentence(info.note)))
        parts.append(self.choice())
        if not self.this.epochs:
            parts.append(notice("It has reported no epoch."))
            return join(*parts)
        parts += [self.curve(), columns(self.energy(), self.time()), self.limits(), self.table()]
        return join(*parts)

    # --- at a glance ----------------------------------------------------------------------------

    def top(self) -> Markup:
        info, job = self.this.info, self.spec.name
        attempt = f", attempt {info.attempt + 1}" if info.attempt else ""
        where = gpu_name(GpuModel(info.gpu, info.gpus))
        about = join(
            f"Recurrence {info.recurrence}{attempt} on {where}, began ", instant(info.began), "."
        )
        return join(crumb(job, job_address(job)), heading(self.this.name.capitalize(), about))

    def figures(self) -> Markup:
        info = self.this.info
        other = None if self.other is None else self.other.info
        best = info.metric if info.best is None else info.best
        sign = "≥" if self.spec.higher_is_better else "≤"
        target = f"target {sign} {digits(self.spec.target_metric, 6)}"

        def against(show: Callable[[TrialInfo], str]) -> str:
            return "" if other is None else f"trial {other.number}: {show(other)}"

        return facts(
            [
                ("Outcome", outcome(info.state), against(lambda each: word_of(each.state))),
                ("Batch size", str(info.batch_size), against(lambda each: str(each.batch_size))),
                ("Epochs", str(info.epochs), against(lambda each: str(each.epochs))),
                ("Best metric", NONE if best is None else digits(best, 5), target),
                (
                    "Energy",
                    total_joules(info.energy, 4),
                    against(lambda each: total_joules(each.energy, 4)),
                ),
                ("Time", seconds(info.time), against(lambda each: seconds(each.time))),
                ("Cost", joules(info.cost), against(lambda each: joules(each.cost))),
            ]
        )

    def choice(self) -> Markup:
        chosen = None if self.other is None else self.other.info.number
        options = [tag("option", "no other trial", value="")]
        for each in self.latest:
            if each.number != self.this.info.number:
                said = (
                    f"trial {each.number}: recurrence {each.recurrence}, batch size "
                    f"{each.batch_size}, {word_of(each.state)}"
                )
                picked = each.number == chosen
                options.append(tag("option", said, value=each.number, selected=picked))
        label = tag("label", "Compare with ", tag("select", *options, name="with"))
        return tag("form", label, tag("button", "Show"), class_="inline")

    # --- charts ---------------------------------------------------------------------------------

    def chart(
        self,
        title: str,
        unit: Callable[[float], Unit],
        value: Callable[[EpochInfo], float | None],
        show: Callable[[float], str],
        *,
        zero: bool = True,
        mark: tuple[float, str] | None = None,
    ) -> LineChart | None:
        """Return the chart of a value of each epoch; `None` if this trial has none."""

        def line(run: _Run, style: Path) -> Line:
            points = [
                (float(each.epoch), found, f"{run.about()}, epoch {each.epoch}: {show(found)}")
                for each in run.epochs
                if (found := value(each)) is not None
            ]
            return Line(points, style)

        lines = [line(run, _OTHERS) for run in reversed(self.beside)]
        if self.other is not None:
            lines.append(line(self.other, _COMPARED))
        lines.append(line(self.this, _THIS))
        if not lines[-1].points:
            return None
        most = max(abs(found) for each in lines for _, found, _ in each.points)
        used = unit(most or 1.0)
        name = f"{title} of each epoch; the table has the same data"
        label = f"{title} ({used.name})" if used.name else title
        return LineChart(name, lines, "epoch", label, used, zero, mark)

    def legend(self) -> list[tuple[Sample, str]]:
        found: list[tuple[Sample, str]] = [(_THIS, self.this.about())]
        if self.other is not None:
            found.append((_COMPARED, self.other.about()))
        if self.beside:
            found.append((_OTHERS, "other recent trials of the job"))
        return found

    def curve(self) -> Markup:
        chart = self.chart(
            "metric",
            lambda _: Unit("", 1.0),
            lambda epoch: epoch.metric,
            lambda value: digits(value, 5),
            zero=False,
            mark=(self.spec.target_metric, "target"),
        )
        if chart is None:
            about = "It reported no validation metric."
            return section("Learning curve", name="curve", about=about)
        return section("Learning curve", figure(chart, WIDE, self.legend()), name="curve")

    def energy(self) -> Markup:
        chart = self.chart("energy", energy_unit, lambda epoch: epoch.energy, joules)
        about = None if chart is not None else "Its energy was not measured."
        inner = None if chart is None else figure(chart, HALF)
        return section("Energy of each epoch", inner, name="energy", about=about)

    def time(self) -> Markup:
        chart = self.chart("time", time_unit, lambda epoch: epoch.time, seconds)
        assert chart is not None
        return section("Time of each epoch", figure(chart, HALF), name="time")

    def limits(self) -> Markup:
        chart = self.chart(
            "power limit of each GPU",
            lambda _: Unit("W", 1.0),
            lambda epoch: epoch.power_limit,
            watts,
        )
        about = None if chart is not None else "Unknown: its reports do not say it."
        inner = None if chart is None else figure(chart, WIDE)
        return section("Power limit", inner, name="limits", about=about)

    def table(self) -> Markup:
        listed: Sequence[Column[EpochInfo]] = (
            Column("epoch", lambda each: each.epoch),
            Column("metric", lambda e: NONE if e.metric is None else digits(e.metric, 6),
                   number=True),
            Column("time", lambda each: seconds(each.time), number=True),
            Column("energy", lambda e: UNKNOWN if e.energy is None else joules(e.energy),
                   number=True),
            Column("power limit", lambda e: watts(e.power_limit), number=True, optional=True),
            Column("average power", _power, number=True, optional=True),
        )  # fmt: skip
        inner = table("Epochs", listed, self.this.epochs)
        return section("Epochs", details("Show as a table", inner, name="epoch-table"))


def _power(epoch: EpochInfo) -> str:
    return UNKNOWN if epoch.energy is None else watts(epoch.energy / epoch.time)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."

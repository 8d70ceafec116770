"""The page that lists all jobs: what they saved, sorted and filtered as requested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._table import Column, table
from zeus.optimizer._stopping import TRIAL_OUTCOMES, Outcome, word_of
from zeus.optimizer.batch_size.api._answers import JobInfo
from zeus.optimizer.batch_size.api._commands import NEVER_RAN, SORTS, STATES, ListJobs
from zeus.optimizer.batch_size.job._events import GpuModel
from zeus.optimizer.batch_size.storage._account import gpu_name
from zeus.optimizer.batch_size.storage._overview import JobPage, Overviews
from zeus.server.pages._layout import (
    aside,
    facts,
    heading,
    notice,
    number_in,
    pager,
    respond,
    unbroken,
)
from zeus.server.pages._outcomes import outcome
from zeus.server.pages._savings import saved_cell, total_figures
from zeus.server.pages._units import NONE, UNKNOWN, ago, counted, grouped, joules

_PATH = "/jobs"
_PAGE = 50  # jobs
_LONGEST = 200  # characters of a name
_REFRESH = 10.0  # seconds
_TROUBLE = "trouble"  # among the states to choose from
_DAY = 86_400.0
_TIMES = {"1": "the last day", "7": "the last week", "30": "the last month", "365": "the last year"}
_ASCENDING = ("name", "state", "gpu")  # unless reversed


def job_address(name: str, **query: object) -> str:
    """Return the URL of the page of a job."""
    text = urlencode({key: value for key, value in query.items() if value}, quote_via=quote)
    return f"{_PATH}/{quote(name, safe='')}" + (f"?{text}" if text else "")


def trial_address(job: str, number: int) -> str:
    """Return the URL of the page of a trial."""
    return f"{job_address(job)}/trials/{number}"


def link(name: str) -> Markup:
    """Return the name of a job, linked to its page."""
    return tag("a", tag("bdi", name), href=job_address(name))


@dataclass(frozen=True)
class _Asked:
    """Filters, order and position in the list, from the query parameters; empty if not given."""

    q: str = ""
    state: str = ""
    gpu: str = ""
    tag: str = ""
    days: str = ""
    sort: str = "name"
    reverse: str = ""
    page: int = 1

    @classmethod
    def of(cls, request: Request) -> _Asked:
        def text(name: str, allowed: Sequence[str] | None = None) -> str:
            value = request.query_params.get(name, "")[:_LONGEST]
            # Only a text that a database can store.
            usable = value.isprintable() and value.strip() and (not allowed or value in allowed)
            return value if usable else ""

        return cls(
            text("q"),
            text("state", (*STATES, _TROUBLE)),
            text("gpu"),
            text("tag"),
            text("days", tuple(_TIMES)),
            text("sort", SORTS) or "name",
            text("reverse", ("1",)),
            max(1, number_in(request.query_params.get("page", "")) or 1),
        )

    def command(self, scope: str | None, now: float) -> ListJobs:
        """Return the command for this page of the list; a token for one job has no other."""
        if scope is not None:
            return ListJobs(scope=scope)
        return ListJobs(
            scope=scope,
            text=self.q,
            state=self.state if self.state in STATES else None,
            gpu=self.gpu or None,
            tag=self.tag or None,
            since=max(0.0, now - _DAY * int(self.days)) if self.days else None,
            trouble=self.state == _TROUBLE,
            sort=self.sort,
            reverse=bool(self.reverse),
            skip=(self.page - 1) * _PAGE,
            most=_PAGE,
        )

    @property
    def filtered(self) -> bool:
        """Whether only some of the jobs are asked for."""
        return any((self.q, self.state, self.gpu, self.tag, self.days))

    def address(self, **changed: object) -> str:
        """Return the URL of the same list with other parameters."""
        usual = vars(_Asked())
        values = {**vars(self), "page": 1, **changed}
        query = {name: value for name, value in values.items() if value != usual[name]}
        return f"{_PATH}?{urlencode(query, quote_via=quote)}" if query else _PATH


def show(request: Request) -> Response:
    """Return the page that lists jobs, filtered and sorted as requested."""
    asked, only = _Asked.of(request), request.state.scope
    overviews: Overviews = request.app.state.overviews
    request.app.state.jobs.count()
    now = request.app.state.now()
    page = overviews.jobs(asked.command(only, now))
    content = join(
        heading("Recurring jobs", _summary(asked, page)),
        facts(total_figures(page.totals)) if page.totals.jobs and only is None else None,
        _filters(asked, page) if only is None and page.number else None,
        _table(asked, page.jobs, now) if page.jobs else _nothing(only, page.number),
        _pager(asked, later=page.later),
    )
    refresh = _REFRESH if any(job.running for job in page.jobs) else 0
    return respond(request, "Jobs", content, at=_PATH, refresh=refresh)


def _summary(asked: _Asked, page: JobPage) -> Content:
    totals = page.totals
    if not page.number:
        return ""
    which = f"{grouped(totals.jobs)} of {counted(page.number, 'job')}"
    found = which if asked.filtered else counted(totals.jobs, "job")
    said = f"{found}, {counted(totals.running, 'trial')} running now"
    if not totals.trouble:
        return f"{said}."
    needs = f"{counted(totals.trouble, 'job needs', 'jobs need')} a person"
    return join(said, ", ", tag("a", needs, href=asked.address(state=_TROUBLE)), ".")


# --- filters --------------------------------------------------------------------------------------


def _filters(asked: _Asked, page: JobPage) -> Markup:
    states = {Outcome.RUNNING.value: "running now", _TROUBLE: "needing a person"}
    states |= {each.value: f"latest {word_of(each)}" for each in TRIAL_OUTCOMES}
    states[NEVER_RAN] = "never ran"
    kept = {"sort": asked.sort, "reverse": asked.reverse}
    return tag(
        "form",
        tag(
            "input",
            type="search",
            name="q",
            value=asked.q,
            placeholder="Part of a name",
            aria_label="Part of a name",
            maxlength=_LONGEST,
        ),
        _choice("state", "In any state", states, asked.state),
        _choice("gpu", "On any GPU", dict(zip(page.gpus, page.gpus, strict=True)), asked.gpu),
        _choice("tag", "With any tag", dict(zip(page.tags, page.tags, strict=True)), asked.tag),
        _choice("days", "Active at any time", _TIMES, asked.days),
        *(
            tag("input", type="hidden", name=name, value=value)
            for name, value in kept.items()
            if value != getattr(_Asked(), name)
        ),
        tag("button", "Show"),
        tag("a", "Show all", href=_PATH) if asked.filtered else None,
        role="search",
        class_="inline",
    )


def _choice(name: str, every: str, options: dict[str, str], chosen: str) -> Markup | None:
    if not options:
        return None
    if chosen and chosen not in options:
        options = {**options, chosen: chosen}
    entries = [("", every), *options.items()]
    inner = (tag("option", text, value=value, selected=value == chosen) for value, text in entries)
    return tag("select", *inner, name=name, aria_label=every)


# --- the table ------------------------------------------------------------------------------------


def _table(asked: _Asked, jobs: Sequence[JobInfo], now: float) -> Markup:
    def column(
        sort: str, title: str, cell: Callable[[JobInfo], Content], **options: bool
    ) -> Column[JobInfo]:
        direction = ""
        if asked.sort == sort:
            rising = (sort in _ASCENDING) != bool(asked.reverse)
            direction = "ascending" if rising else "descending"
        turned = "" if asked.sort != sort or asked.reverse else "1"
        heading_ = tag("a", title, href=asked.address(sort=sort, reverse=turned))
        return Column(heading_, cell, f"by-{sort}", sorted_by=direction, **options)

    columns = [
        column("name", "job", _name),
        column("trouble", "status", _status),
        column("saved", "energy saved", _sound(lambda job: saved_cell(job, "energy")), number=True),
        column("saved_time", "time saved", _sound(lambda job: saved_cell(job, "time")),
               number=True, optional=True),
        column("saved_cost", "cost saved", _sound(lambda job: saved_cell(job, "cost")),
               number=True, optional=True),
        column("wasted", "wasted", _sound(_wasted), number=True, optional=True),
        column("batch_size", "batch size", _sound(_batch_size), number=True, optional=True),
        column("gpu", "GPU", _sound(_gpu), optional=True),
        column("recurrences", "recurrences", _sound(lambda job: grouped(job.recurrences)),
               number=True, optional=True),
        column("updated", "last activity", _sound(lambda job: unbroken(ago(job.updated, now))),
               optional=True),
    ]  # fmt: skip
    return tag("div", table("Jobs", columns, jobs), id="jobs")


def _sound(cell: Callable[[JobInfo], Content]) -> Callable[[JobInfo], Content]:
    """Return the same for a cell that is empty if the job's record is damaged."""
    return lambda job: "" if job.damage else cell(job)


def _name(job: JobInfo) -> Content:
    return join(link(job.name), tags_of(job))


def tags_of(job: JobInfo) -> Markup | None:
    """Return the tags of a job, linked to the lists of all jobs that have them."""
    chips = (tag("a", each, href=_Asked(tag=each).address(), class_="tag") for each in job.tags)
    return tag("span", *chips, class_="tags") if job.tags else None


def _status(job: JobInfo) -> Content:
    trouble = tag("span", job.trouble, class_="trouble") if job.trouble else None
    if job.damage:
        return trouble
    return join(outcome(job.state) if job.state else aside("never ran"), trouble)


def _wasted(job: JobInfo) -> Content:
    return (UNKNOWN if job.state else NONE) if job.wasted is None else joules(job.wasted, 3)


def _batch_size(job: JobInfo) -> Content:
    default = job.spec["default_batch_size"]
    size = NONE if job.batch_size is None else str(job.batch_size)
    return aside(f"{default} \u2192 ") + size


def _gpu(job: JobInfo) -> Content:
    return gpu_name(GpuModel(job.gpu, job.gpus)) if job.gpu else NONE


def _nothing(only: str | None, jobs: int) -> Markup:
    if only is not None:
        return notice("The job that your token is for does not exist yet.")
    if jobs:
        return notice("No job matches. ", tag("a", "Show all", href=_PATH))
    how = (
        tag("p", "There are no jobs yet. A job appears here after its first run starts:"),
        tag("pre", tag("code", "zeus run --job-file JOB.toml -- python train.py")),
        tag(
            "p",
            "or, in a training script, ",
            tag("code", "BatchSizeOptimizer(monitor, server_url=…, job=JobSpec(…))"),
            ".",
        ),
    )
    return tag("div", *how, id="jobs")


def _pager(asked: _Asked, *, later: bool) -> Markup | None:
    if asked.page == 1 and not later:
        return None
    earlier = asked.address(page=asked.page - 1) if asked.page > 1 else None
    return pager(
        "Pages of jobs",
        [
            ("\u2190 Previous", earlier),
            ("Next \u2192", asked.address(page=asked.page + 1) if later else None),
        ],
    )

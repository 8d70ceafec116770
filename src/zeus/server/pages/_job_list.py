"""The page that lists all jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._table import Column, table
from zeus.optimizer.batch_size.storage._overview import JobEntry, Overviews
from zeus.server.pages._layout import aside, heading, notice, pager, respond
from zeus.server.pages._outcomes import outcome
from zeus.server.pages._units import NONE, ago, counted, grouped

_PATH = "/jobs"
_PAGE = 50  # jobs
_LONGEST = 200  # characters of a name
_REFRESH = 10.0  # seconds


def job_address(name: str, **query: object) -> str:
    """Return the URL of the page of a job."""
    text = urlencode({key: value for key, value in query.items() if value}, quote_via=quote)
    return f"{_PATH}/{quote(name, safe='')}" + (f"?{text}" if text else "")


def link(name: str) -> Markup:
    """Return the name of a job, linked to its page."""
    return tag("a", tag("bdi", name), href=job_address(name))


class _Asked:
    """Filters and position in the list, from the query parameters."""

    def __init__(self, request: Request) -> None:
        self.text = self._text(request, "q") or ""
        self.running = request.query_params.get("running") == "1"
        self.after = self._text(request, "after") or ""
        self.before = self._text(request, "before")

    def _text(self, request: Request, name: str) -> str | None:
        """Return a parameter if it is text that a database can store."""
        value = request.query_params.get(name)
        return value[:_LONGEST] if value and value[:_LONGEST].isprintable() else None

    def address(self, **place: str) -> str:
        """Return the URL of the same list at another position."""
        kept = {"q": self.text or None, "running": "1" if self.running else None, **place}
        query = urlencode({name: value for name, value in kept.items() if value}, quote_via=quote)
        return f"{_PATH}?{query}" if query else _PATH


def show(request: Request) -> Response:
    """Return the page that lists jobs, filtered as requested."""
    asked, only = _Asked(request), request.state.scope
    overviews: Overviews = request.app.state.overviews
    page = overviews.jobs(
        asked.text,
        after=asked.after,
        before=asked.before,
        running=asked.running,
        most=_PAGE,
        only=only,
    )
    content = join(
        heading("Recurring jobs", _summary(page.number, page.running) if only is None else None),
        _filters(asked) if only is None and page.number else None,
        _table(page.entries, request.app.state.now())
        if page.entries
        else _nothing(only, page.number),
        _pager(asked, page.entries, earlier=page.earlier, later=page.later),
    )
    refresh = _REFRESH if any(entry.info.running for entry in page.entries) else 0
    return respond(request, "Jobs", content, at=_PATH, refresh=refresh)


def _summary(jobs: int, running: int) -> str:
    trials = f"{counted(running, 'trial')} running now"
    return f"{counted(jobs, 'job')}, {trials}." if jobs else ""


def _filters(asked: _Asked) -> Markup:
    return tag(
        "form",
        tag(
            "input",
            type="search",
            name="q",
            value=asked.text,
            placeholder="Part of a name",
            aria_label="Part of a name",
            maxlength=_LONGEST,
        ),
        tag(
            "label",
            tag("input", type="checkbox", name="running", value="1", checked=asked.running),
            " running now only",
        ),
        tag("button", "Show"),
        role="search",
        class_="inline",
    )


def _table(entries: Sequence[JobEntry], now: float) -> Markup:
    columns: list[Column[JobEntry]] = [
        Column("job", lambda entry: link(entry.info.name)),
        Column("recurrences", _sound(lambda e: grouped(e.info.recurrences)), number=True,
               optional=True),
        Column("trials", _sound(lambda e: grouped(e.info.trials)), number=True, optional=True),
        Column("batch size", _sound(_batch_size), number=True),
        Column("latest trial", _latest),
        Column("policy", _sound(lambda e: e.info.spec["policy"]), optional=True),
        Column("last activity", _sound(lambda e: ago(e.info.updated, now)), optional=True),
    ]  # fmt: skip
    return tag("div", table("Jobs", columns, entries), id="jobs")


def _sound(cell: Callable[[JobEntry], Content]) -> Callable[[JobEntry], Content]:
    """Return the same for a cell that is empty if the job's record is damaged."""
    return lambda entry: "" if entry.info.damage else cell(entry)


def _batch_size(entry: JobEntry) -> Content:
    default = entry.info.spec["default_batch_size"]
    size = NONE if entry.batch_size is None else str(entry.batch_size)
    return aside(f"{default} \u2192 ") + size


def _latest(entry: JobEntry) -> Content:
    if entry.info.damage:
        return aside("its record in the store is damaged and cannot be read")
    return outcome(entry.state) if entry.state else aside("none yet")


def _nothing(only: str | None, jobs: int) -> Markup:
    if only is not None:
        return notice("The job that your token is for does not exist yet.")
    if jobs:
        return notice("No job matches. ", tag("a", "Show all", href=_PATH))
    how = (
        tag("p", "There are no jobs yet. A job appears here after its first run starts:"),
        tag("pre", tag("code", "zeus run --job JOB.toml -- python train.py")),
        tag(
            "p",
            "or, in a training script, ",
            tag("code", "BatchSizeOptimizer(monitor, server_url=…, job=JobSpec(…))"),
            ".",
        ),
    )
    return tag("div", *how, id="jobs")


def _pager(
    asked: _Asked, entries: Sequence[JobEntry], *, earlier: bool, later: bool
) -> Markup | None:
    if not (entries and (earlier or later)):
        return None
    first, last = entries[0].info.name, entries[-1].info.name
    return pager(
        "Pages of jobs",
        [
            ("\u2190 Previous", asked.address(before=first) if earlier else None),
            ("Next \u2192", asked.address(after=last) if later else None),
        ],
    )

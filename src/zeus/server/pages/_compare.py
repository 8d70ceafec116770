"""The page that compares two jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._shapes import Path
from zeus.drawing._table import Column, table
from zeus.optimizer.batch_size.storage._account import CURRENCIES, break_even, course, gpu_name
from zeus.optimizer.batch_size.storage._overview import Overview, Overviews
from zeus.server.pages._job import check_scope
from zeus.server.pages._job_list import job_address, link
from zeus.server.pages._layout import crumb, heading, respond, section
from zeus.server.pages._line_chart import Line, LineChart
from zeus.server.pages._outcomes import outcome
from zeus.server.pages._plotting import WIDE, figure
from zeus.server.pages._savings import amount, share
from zeus.server.pages._units import NONE, UNKNOWN, digits, grouped, percent, total_joules

_STRETCHES = 120  # segments of recurrences in a chart
_STYLES = (Path((), "line", 2.4), Path((), "chosen", 2.4, dashed=True))


def compare_address(name: str, other: str) -> str:
    """Return the URL of the page that compares two jobs."""
    return f"{job_address(name)}/compare{job_address(other).removeprefix('/jobs')}"


def choose(request: Request) -> Response:
    """Lead from the form on the page of a job to the comparison with another one."""
    name, other = request.path_params["name"], request.query_params.get("with", "")
    usable = other.isprintable() and other.strip() and "/" not in other
    return RedirectResponse(compare_address(name, other) if usable else job_address(name), 303)


def show(request: Request) -> Response:
    """Return the page that compares two jobs."""
    names = request.path_params["name"], request.path_params["other"]
    for name in names:
        check_scope(request, name)
    overviews: Overviews = request.app.state.overviews
    found = [overviews.read(name, stretches=_STRETCHES, most=1) for name in names]
    title = join(tag("bdi", names[0]), " and ", tag("bdi", names[1]))
    content = join(
        crumb("Jobs", "/jobs"),
        heading(title, "Each is compared with its own default batch size at full power."),
        _figures(found),
        _chart(found),
    )
    return respond(request, f"{names[0]} and {names[1]}", content, at="/jobs")


def _figures(found: Sequence[Overview]) -> Markup:
    rows: list[tuple[str, Callable[[Overview], Content]]] = [
        *((f"{each} saved", _saved(each)) for each in CURRENCIES),
        ("compared", lambda job: job.account.words),
        ("break-even in energy", _break_even),
        ("energy so far", lambda job: total_joules(job.info.energy)),
        ("wasted in runs that missed", lambda job: total_joules(job.info.wasted)),
        ("recurrences", lambda job: grouped(job.info.recurrences)),
        ("trials", lambda job: grouped(job.info.trials)),
        ("latest trial", lambda job: outcome(job.info.state) if job.info.state else NONE),
        ("default batch size", lambda job: str(job.spec.default_batch_size)),
        ("batch size chosen next", lambda job: str(job.next.batch_size) if job.next else NONE),
        ("GPUs", lambda job: ", ".join(map(gpu_name, job.gpus)) or NONE),
        ("target", _target),
        ("weight of energy (η)", lambda job: digits(job.spec.eta_knob)),
        ("policy", lambda job: job.spec.policy),
    ]

    def column(job: Overview) -> Column[tuple[str, Callable[[Overview], Content]]]:
        return Column(link(job.info.name), lambda row: row[1](job))

    columns = [
        Column[tuple[str, Callable[[Overview], Content]]]("", lambda row: row[0]),
        *map(column, found),
    ]
    return tag("div", table("Two jobs", columns, rows), id="compared")


def _saved(currency: str) -> Callable[[Overview], Content]:
    def cell(job: Overview) -> Content:
        compared = getattr(job.account, currency)
        if compared.saved is None:
            return UNKNOWN
        return join(share(compared), f" · {amount(compared.saved, currency)}")  # type: ignore[arg-type]

    return cell


def _break_even(job: Overview) -> str:
    if job.account.energy.default is None:
        return UNKNOWN
    first = break_even(course(job.spans, job.account), "energy")
    return "not yet" if first is None else f"recurrence {grouped(first)}"


def _target(job: Overview) -> str:
    sign = "≥" if job.spec.higher_is_better else "≤"
    return f"metric {sign} {digits(job.spec.target_metric, 6)}"


def _chart(found: Sequence[Overview]) -> Markup:
    lines = []
    for job, style in zip(found, _STYLES, strict=True):
        points = []
        for point in course(job.spans, job.account):
            last = min(point.first + job.width - 1, job.info.recurrences)
            if point.energy.share is not None:
                said = f"{job.info.name}, recurrence {last}: {percent(point.energy.share)} saved"
                points.append((float(last), 100 * point.energy.share, said))
        lines.append(Line(points, style))
    title = "Energy saved so far"
    if not any(line.points for line in lines):
        about = "Unknown: neither job can be compared with its default batch size yet."
        return section(title, name="course", about=about)
    chart = LineChart(
        f"{title} by both jobs, as a share of what their defaults would have taken",
        lines,
        "recurrence",
        "energy saved so far (%)",
        mark=(0.0, "the default"),
    )
    legend = [
        (line.style, job.info.name) for line, job in zip(lines, found, strict=True) if line.points
    ]
    return section(title, figure(chart, WIDE, legend), name="course")

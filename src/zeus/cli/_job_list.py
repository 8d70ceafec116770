"""The list of `zeus jobs list`: which jobs, in which order, and what they saved."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from zeus.cli._parser import number, whole_number
from zeus.cli._terminal import MISSING, Console, clean, plural
from zeus.monitor._measurement import show_energy, show_seconds
from zeus.optimizer.batch_size.api._answers import JobInfo, JobTotals
from zeus.optimizer.batch_size.api._api import JobsApi
from zeus.optimizer.batch_size.api._commands import SORTS, STATES, ListJobs, SumJobs

_PAGE = 100
_DAY = 86_400.0
OPTIONS = ("--sort", "--reverse", "--name", "--state", "--gpu", "--tag", "--days", "--trouble",
           "--most")  # fmt: skip
_HEADING = (
    "job",
    "status",
    "energy saved",
    "time saved",
    "cost saved",
    "default",
    "wasted",
    "batch size",
    "recurrences",
    "trials",
    "running",
    "last activity",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the list."""
    group = parser.add_argument_group("options of `list`")
    group.add_argument(
        "--sort",
        choices=SORTS,
        metavar="KEY",
        help=f"order: {', '.join(SORTS)} (default: name; most saved, wasted or recent first)",
    )
    group.add_argument("--reverse", action="store_true", default=None, help="the other way round")
    group.add_argument("--name", dest="text", metavar="TEXT", help="names that contain TEXT")
    group.add_argument(
        "--state", choices=STATES, metavar="STATE", help=f"state: {', '.join(STATES)}"
    )
    group.add_argument("--gpu", metavar="MODEL", help="GPU model of the latest trial")
    group.add_argument("--tag", metavar="TAG", help="one of the tags")
    group.add_argument(
        "--days", type=number(0, 1e5), metavar="N", help="active within the last N days"
    )
    group.add_argument(
        "--trouble", action="store_true", default=None, help="only jobs that need a person"
    )
    group.add_argument("--most", type=whole_number(1), metavar="N", help="at most N jobs")


def print_list(api: JobsApi, arguments: argparse.Namespace, console: Console) -> None:
    """Print the list."""
    since = None if arguments.days is None else max(0.0, time.time() - _DAY * arguments.days)
    which: dict[str, Any] = {
        "text": arguments.text or "",
        "state": arguments.state,
        "gpu": arguments.gpu,
        "tag": arguments.tag,
        "since": since,
        "trouble": bool(arguments.trouble),
    }
    asked = ListJobs(sort=arguments.sort or "name", reverse=bool(arguments.reverse), **which)
    jobs = list(_pages(api, asked, arguments.most))
    if arguments.json:
        console.print_json([job.to_dict() for job in jobs])
        return
    if not jobs:
        console.print("No jobs." if which == _EVERY else "No job matches.")
        return
    rows = [_HEADING, *map(_row, jobs)]
    console.print_table(rows, right=(2, 3, 4, 6, 7, 8, 9, 10))
    troubles = [f"{clean(job.name)}: {clean(job.damage or job.trouble)}" for job in jobs]
    troubles = [said for said, job in zip(troubles, jobs, strict=True) if job.trouble]
    if troubles:
        console.print("", "Jobs that need a person:", *(f"  {said}" for said in troubles))
    console.print("", _summary(api.do(SumJobs(**which))))


_EVERY = {"text": "", "state": None, "gpu": None, "tag": None, "since": None, "trouble": False}


def _pages(api: JobsApi, asked: ListJobs, most: int | None) -> Iterator[JobInfo]:
    taken = 0
    while most is None or taken < most:
        wanted = _PAGE if most is None else min(_PAGE, most - taken)
        page = api.do(replace(asked, skip=taken, most=wanted))
        yield from page
        taken += len(page)
        if len(page) < wanted:
            return


def _row(job: JobInfo) -> tuple[str, ...]:
    if job.damage:
        return clean(job.name), "damaged", *[MISSING] * (len(_HEADING) - 2)
    latest = MISSING if job.batch_size is None else str(job.batch_size)
    return (
        clean(job.name),
        job.state or "new",
        *saved(job),
        job.basis or MISSING,
        MISSING if job.wasted is None else show_energy(job.wasted, 3),
        f"{job.spec['default_batch_size']} -> {latest}",
        str(job.recurrences),
        str(job.trials),
        str(job.running),
        instant(job.updated),
    )


def saved(about: JobInfo | JobTotals) -> tuple[str, str, str]:
    """Return saved energy, time and cost, each with its share of what the default would take."""
    return (
        _amount(about.saved_energy, about.default_energy, _joules),
        _amount(about.saved_time, about.default_time, show_seconds),
        _amount(about.saved_cost, about.default_cost, _joules),
    )


def _joules(value: float) -> str:
    return show_energy(value, 3)


def _amount(value: float | None, default: float | None, show: Callable[[float], str]) -> str:
    if value is None or default is None:
        return MISSING
    text = show(abs(value))
    share = f" ({100 * value / default:.1f} %)" if default else ""
    return f"{'-' if value < 0 else ''}{text}{share}"


def _summary(totals: JobTotals) -> str:
    jobs = plural(totals.jobs, "job")
    if totals.saved_energy is None:
        return f"{jobs}: energy saved is unknown, because none can be compared with its default yet"
    energy, seconds, cost = saved(totals)
    predicted = f", {totals.predicted} with a predicted default" if totals.predicted else ""
    return (
        f"{jobs}: {energy} of energy saved, {seconds} of time, {cost} of cost, against the default "
        f"batch sizes at full power ({totals.compared} compared{predicted})"
    )


def instant(seconds: float) -> str:
    """Format a time in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))

"""Lists of jobs: filtered, sorted and summed up by the database, to be quick with many jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, case, func, select

from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import JobTotals
from zeus.optimizer.batch_size.api._commands import FILTERS, NEVER_RAN, JobFilter, ListJobs
from zeus.store._tables import accounts, jobs, tags, trials

# The latest trial of each job; none has the number 0.
_LATEST = and_(trials.c.job == jobs.c.id, trials.c.number == jobs.c.trials)
_STATE = case((jobs.c.running > 0, Outcome.RUNNING.value), else_=trials.c.state)
_IN_TROUBLE = accounts.c.trouble != ""

# Expressions, and whether their natural order is descending.
_SORTS: Mapping[str, tuple[ColumnElement[Any], bool]] = {
    "name": (jobs.c.name, False),
    "saved": (accounts.c.saved_energy, True),
    "saved_time": (accounts.c.saved_time, True),
    "saved_cost": (accounts.c.saved_cost, True),
    "wasted": (accounts.c.wasted, True),
    "trouble": (case((_IN_TROUBLE, 1), else_=0), True),
    "updated": (jobs.c.updated, True),
    "created": (jobs.c.created, True),
    "state": (_STATE, False),
    "gpu": (trials.c.gpu, False),
    "batch_size": (trials.c.batch_size, True),
    "recurrences": (jobs.c.recurrences, True),
    "trials": (jobs.c.trials, True),
    "running": (jobs.c.running, True),
    "energy": (accounts.c.energy, True),
    "time": (accounts.c.time, True),
    "cost": (accounts.c.cost, True),
}
_ABOUT = (
    "energy",
    "unmeasured",
    "time",
    "cost",
    "wasted",
    "saved_energy",
    "saved_time",
    "saved_cost",
    "default_energy",
    "default_time",
    "default_cost",
    "basis",
    "comparison",
    "trouble",
)
_DETAILS = (
    select(
        jobs.c.id,
        trials.c.gpu,
        trials.c.gpus,
        trials.c.batch_size,
        _STATE.label("state"),
        accounts.c.tally,
        *(accounts.c[name] for name in _ABOUT),
    )
    .select_from(jobs.join(accounts, accounts.c.job == jobs.c.id).outerjoin(trials, _LATEST))
    .where(jobs.c.id.in_(bindparam("ids", expanding=True)))
)
_TAGS = (
    select(tags.c.job, tags.c.tag)
    .where(tags.c.job.in_(bindparam("ids", expanding=True)))
    .order_by(tags.c.tag)
)
_UNCOUNTED = (
    select(accounts.c.job)
    .where(accounts.c.tally.is_(None))
    .order_by(accounts.c.job)
    .limit(bindparam("most"))
)
_RUNNING = select(func.count()).select_from(trials).where(trials.c.lease_until.is_not(None))
_UNKNOWN = "not computed yet"


def found(connection: Connection, asked: ListJobs) -> list[int]:
    """Return the numbers of the requested jobs, in their order."""
    # Only numbers are sorted, not whole rows: those are read afterwards, for one page.
    statement = _matching(select(jobs.c.id), asked, asked.sort)
    if asked.after:
        statement = statement.where(
            jobs.c.name < asked.after if asked.reverse else jobs.c.name > asked.after
        )
    key, descending = _SORTS[asked.sort]
    order = key.desc() if descending != asked.reverse else key.asc()
    if asked.sort != "name":
        statement = statement.order_by(order.nulls_last())
    if asked.sort == "trouble":
        statement = statement.order_by(jobs.c.updated.desc())
    statement = statement.order_by(order if asked.sort == "name" else jobs.c.name)
    statement = statement.limit(asked.most).offset(asked.skip)
    return list(connection.execute(statement).scalars())


def sums(connection: Connection, asked: JobFilter[Any]) -> JobTotals:
    """Return sums over the matching jobs."""
    compared = accounts.c.saved_energy.is_not(None)

    def over_compared(name: str) -> ColumnElement[Any]:
        return func.sum(case((compared, accounts.c[name])))

    # Without filters, rows of jobs, which have their long specifications, need not be read.
    every = not any(asked.content().get(each) for each in FILTERS) and asked.scope is None
    running: ColumnElement[Any] = func.coalesce(func.sum(jobs.c.running), 0)
    if every:
        running = _RUNNING.scalar_subquery()
    columns = (
        func.count(),
        running,
        func.count(case((_IN_TROUBLE, 1))),
        *(func.coalesce(func.sum(accounts.c[name]), 0.0) for name in ("energy", "time", "cost")),
        func.coalesce(func.sum(accounts.c.unmeasured), 0),
        func.coalesce(func.sum(accounts.c.wasted), 0.0),
        func.count(accounts.c.saved_energy),
        func.count(case((and_(compared, accounts.c.basis == "predicted"), 1))),
        *(over_compared(f"saved_{name}") for name in ("energy", "time", "cost")),
        *(over_compared(f"default_{name}") for name in ("energy", "time", "cost")),
    )
    statement = select(*columns)
    statement = statement.select_from(accounts) if every else _matching(statement, asked, "")
    return JobTotals(*connection.execute(statement).one())


def gpus(connection: Connection, most: int) -> list[str]:
    """Return the GPU models of the latest trials of jobs, in alphabetical order."""
    statement = (
        select(trials.c.gpu)
        .select_from(jobs.join(trials, _LATEST))
        .distinct()
        .order_by(trials.c.gpu)
        .limit(most)
    )
    return list(connection.execute(statement).scalars())


def all_tags(connection: Connection, most: int) -> list[str]:
    """Return the tags of all jobs, in alphabetical order."""
    statement = select(tags.c.tag).distinct().order_by(tags.c.tag).limit(most)
    return list(connection.execute(statement).scalars())


def about(connection: Connection, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return what `JobInfo` says of jobs besides their rows, by the numbers of the jobs."""
    wanted = list(ids)
    if not wanted:
        return {}
    result: dict[int, dict[str, Any]] = {}
    for row in connection.execute(_DETAILS, {"ids": wanted}).mappings():
        known: dict[str, Any] = {**row, "tags": []}
        result[known.pop("id")] = known
        if known.pop("tally") is None:
            known["comparison"] = _UNKNOWN
        for name, nothing in (("gpu", ""), ("gpus", 0), ("state", "")):
            known[name] = known[name] or nothing
    for job, tag in connection.execute(_TAGS, {"ids": wanted}):
        result[job]["tags"].append(tag)
    return result


def uncounted(connection: Connection, most: int) -> list[int]:
    """Return jobs whose account was not computed yet."""
    return list(connection.execute(_UNCOUNTED, {"most": most}).scalars())


def _matching(statement: Select[Any], asked: JobFilter[Any], sort: str) -> Select[Any]:
    source = jobs.join(accounts, accounts.c.job == jobs.c.id)
    if asked.state is not None or asked.gpu is not None or sort in ("state", "gpu", "batch_size"):
        source = source.outerjoin(trials, _LATEST)
    statement = statement.select_from(source)
    if asked.scope is not None:
        statement = statement.where(jobs.c.name == asked.scope)
    if asked.text:
        lower = func.lower(jobs.c.name)
        statement = statement.where(lower.contains(asked.text.lower(), autoescape=True))
    if asked.state == NEVER_RAN:
        statement = statement.where(jobs.c.trials == 0)
    elif asked.state is not None:
        statement = statement.where(_STATE.in_([asked.state]))
    if asked.gpu is not None:
        statement = statement.where(trials.c.gpu == asked.gpu)
    if asked.tag is not None:
        statement = statement.where(
            jobs.c.id.in_(select(tags.c.job).where(tags.c.tag == asked.tag))
        )
    if asked.since is not None:
        statement = statement.where(jobs.c.updated >= asked.since)
    if asked.until is not None:
        statement = statement.where(jobs.c.updated <= asked.until)
    if asked.trouble:
        statement = statement.where(_IN_TROUBLE)
    return statement

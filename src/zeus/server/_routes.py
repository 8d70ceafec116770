"""API routes of recurring jobs, health and metrics, thin wrappers around `Jobs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import PlainTextResponse, Response

from zeus.errors import TokenError, UnknownJobError
from zeus.optimizer.batch_size.api._api import (
    Decision,
    JobInfo,
    ProfileInfo,
    TrialInfo,
    Verdict,
)
from zeus.optimizer.batch_size.api._commands import (
    Create,
    Decide,
    Delete,
    End,
    PutProfile,
    Renew,
    ReportEpoch,
)
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.server._bodies import DecideBody, EndBody, EpochBody, JobBody, ProfileBody
from zeus.server._metrics import gauge
from zeus.server._responses import ALWAYS, ALWAYS_OF_TEXT, Json, documented, refusal_of
from zeus.server._writer import Writer

router = APIRouter(responses=ALWAYS)

_MOST = 1_000  # entries per page
_Number = Annotated[int, Query(ge=0, lt=2**31)]
_Most = Annotated[int, Query(ge=1, le=_MOST)]
_BODY = documented(400, 413, 415, 422)
_FOUND = documented(404, 422, 500)
_KNOWN = {**_BODY, **documented(404, 409, 500)}


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


def _writer(request: Request) -> Writer:
    writer: Writer = request.app.state.writer
    return writer


def _scope(request: Request) -> str | None:
    """Return the name of the only job that the token permits; `None` for all."""
    scope: str | None = request.state.scope
    return scope


def _check(request: Request, name: str) -> None:
    scope = _scope(request)
    if scope is not None and scope != name:
        raise TokenError(f"the token is for job {scope!r} only")


# --- trials: first, because they are requested most often -----------------------------------------


@router.post("/api/jobs/{name}/trials", response_model=Decision, responses=_KNOWN)
async def decide(request: Request, name: str, body: DecideBody) -> Response:
    """Begin a trial. Idempotent: the same request returns the same trial."""
    command = Decide(scope=_scope(request), job=name, **vars(body))
    return Json((await _writer(request).do(command)).to_dict())


@router.get("/api/jobs/{name}/trials", response_model=list[TrialInfo], responses=_FOUND)
def list_trials(
    request: Request, name: str, before: _Number | None = None, most: _Most = 100
) -> Response:
    """List the trials of a job, the latest first."""
    _check(request, name)
    return Json([info.to_dict() for info in _jobs(request).trials(name, before, most)])


@router.post("/api/trials/{trial}/epochs", response_model=Verdict, responses=_KNOWN)
async def report_epoch(request: Request, trial: str, body: EpochBody) -> Response:
    """Report an epoch. Idempotent: a repeated report counts once."""
    command = ReportEpoch(scope=_scope(request), trial=trial, **vars(body))
    return Json((await _writer(request).do(command)).to_dict())


@router.post("/api/trials/{trial}/end", response_model=Verdict, responses=_KNOWN)
async def end_trial(request: Request, trial: str, body: EndBody) -> Response:
    """End a trial that failed or was cancelled."""
    command = End(scope=_scope(request), trial=trial, **vars(body))
    return Json((await _writer(request).do(command)).to_dict())


@router.post("/api/trials/{trial}/renew", response_model=Verdict, responses=_FOUND)
async def renew_trial(request: Request, trial: str) -> Response:
    """Renew the lease of a running trial."""
    command = Renew(scope=_scope(request), trial=trial)
    return Json((await _writer(request).do(command)).to_dict())


# --- jobs ---------------------------------------------------------------------------------------


@router.post("/api/jobs", response_model=JobInfo, responses={**_BODY, **documented(409, 500)})
async def create_job(request: Request, body: JobBody) -> Response:
    """Create a job unless it exists. Idempotent for the same specification."""
    spec = JobSpec(**{**body.model_dump(), "power_limits": tuple(body.power_limits)})
    info = await _writer(request).do(Create(scope=_scope(request), spec=spec))
    return Json(info.to_dict())


@router.get("/api/jobs", response_model=list[JobInfo], responses=documented(422))
def list_jobs(
    request: Request, after: Annotated[str, Query(max_length=200)] = "", most: _Most = 100
) -> Response:
    """List jobs in the order of their names."""
    scope = _scope(request)
    if scope is None:
        usable = after if after.isprintable() else ""
        return Json([info.to_dict() for info in _jobs(request).jobs(usable, most)])
    try:
        return Json([_jobs(request).job(scope).to_dict()])
    except UnknownJobError:
        return Json([])


@router.get("/api/jobs/{name}", response_model=JobInfo, responses=_FOUND)
def show_job(request: Request, name: str) -> Response:
    """Return one job."""
    _check(request, name)
    return Json(_jobs(request).job(name).to_dict())


@router.delete("/api/jobs/{name}", status_code=204, responses=_FOUND, response_class=Response)
async def delete_job(request: Request, name: str) -> Response:
    """Delete a job with its trials, events and profiles."""
    await _writer(request).do(Delete(scope=_scope(request), job=name))
    return Response(status_code=204)


@router.get("/api/jobs/{name}/log", response_model=list[dict[str, Any]], responses=_FOUND)
def show_log(request: Request, name: str, after: _Number = 0, most: _Most = 100) -> Response:
    """List the events of a job, from the one after number `after`."""
    _check(request, name)
    return Json(_jobs(request).log(name, after, most))


@router.get("/api/jobs/{name}/profiles", response_model=list[ProfileInfo], responses=_FOUND)
def show_profiles(request: Request, name: str) -> Response:
    """List the measurements at the batch sizes of a job."""
    _check(request, name)
    return Json([info.to_dict() for info in _jobs(request).profiles(name)])


@router.put("/api/jobs/{name}/profiles", response_model=ProfileInfo, responses=_KNOWN)
async def put_profile(request: Request, name: str, body: ProfileBody) -> Response:
    """Store the measurements at a batch size; they replace earlier ones."""
    command = PutProfile(scope=_scope(request), job=name, **body.model_dump())
    return Json((await _writer(request).do(command)).to_dict())


# --- the server itself --------------------------------------------------------------------------


@router.get("/healthz", response_class=PlainTextResponse, responses=ALWAYS_OF_TEXT)
async def health(request: Request) -> Response:
    """Check that the server can write to its store."""
    trouble = await request.app.state.health.trouble()
    if trouble:
        said = f"the store of this server is not writable: {trouble}"
        return refusal_of(request.scope, 503, "StorageError", said, **{"Retry-After": "2"})
    return PlainTextResponse("ok\n")


@router.get("/metrics", response_class=PlainTextResponse, responses=ALWAYS_OF_TEXT)
def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    jobs, running = _jobs(request).numbers()
    writer = _writer(request)
    lines = [
        *gauge("zeus_jobs", jobs, "Recurring jobs in the store."),
        *gauge("zeus_trials_running", running, "Trials that have begun and not ended."),
        *gauge(
            "zeus_commands_total", writer.commands, "Commands that this server executed.", "counter"
        ),
        *gauge(
            "zeus_transactions_total",
            writer.batches,
            "Transactions that committed them.",
            "counter",
        ),
        *request.app.state.planner.lines(),
        *request.app.state.metrics.lines(),
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

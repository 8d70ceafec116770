"""API routes of pipeline jobs, thin wrappers around `Pipelines`.

They run in the thread pool, except long polling for a plan: it awaits an event, so that thousands
of ranks can wait.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from zeus.errors import PipelineError, ServerError, TokenError, UnknownJobError
from zeus.optimizer.pipeline_frequency.job._messages import (
    MAX_NAME,
    MAX_RANKS,
    MAX_SECONDS,
    Directive,
    Instruction,
    Measured,
    RankPlace,
    Registration,
    Straggler,
)
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.server._pipeline_bodies import (
    EventAnswer,
    FrontierAnswer,
    JobAnswer,
    JobSummary,
    LeaveBody,
    MeasurementsBody,
    OperationAnswer,
    OptionAnswer,
    RegistrationBody,
    SequenceBody,
    StragglerBody,
    TroubleBody,
)
from zeus.server._planner import Hub
from zeus.server._responses import ALWAYS, Json, documented

router = APIRouter(responses=ALWAYS)

MAX_WAIT = 60.0  # seconds
_LOOK_AGAIN = 5.0  # seconds between checks for changes by another server on the same store
_MADE_AGAIN = 5.0  # seconds to wait for plans that must be recomputed
_Rank = Annotated[int, Path(ge=0, lt=MAX_RANKS)]
_Session = Annotated[str, Query(min_length=1, max_length=MAX_NAME)]
_Version = Annotated[int, Query(ge=0, lt=2**31)]
_Wait = Annotated[float, Query(ge=0, le=MAX_WAIT)]
_StepTime = Annotated[float | None, Query(ge=0, le=MAX_SECONDS)]
_Pipeline = Annotated[int, Query(ge=0, lt=MAX_RANKS)]
_Most = Annotated[int, Query(ge=1, le=1_000)]
_FOUND = documented(404, 422)
_KNOWN = {**documented(400, 413, 415, 422), **documented(404, 409)}
_ASKED = {**_FOUND, **documented(409)}


def _pipelines(request: Request) -> Pipelines:
    pipelines: Pipelines = request.app.state.pipelines
    return pipelines


def _check(request: Request, name: str) -> None:
    scope = request.state.scope
    if scope is not None and scope != name:
        raise TokenError(f"the token is for job {scope!r} only")


def _note_tenant(request: Request, name: str) -> None:
    """Record the tenant of a job before it is planned; tokens for all jobs are one tenant."""
    request.app.state.planner.owned_by(name, request.state.scope or "")


# --- ranks ----------------------------------------------------------------------------------------


@router.put("/api/pipelines/{name}/ranks/{rank}", response_model=Directive, responses=_KNOWN)
def register_rank(request: Request, name: str, rank: _Rank, body: RegistrationBody) -> Response:
    """Register a rank. A previous session of that rank is notified, and keeps its old clocks."""
    _check(request, name)
    if body.seat.rank != rank:
        raise PipelineError(f"the rank must be that of the URL, but got rank={body.seat.rank}")
    registration = Registration(
        body.session,
        RankPlace(**vars(body.seat)),
        body.gpu,
        tuple(body.clocks),
        body.blocking_power,
        body.note,
    )
    return Json(_pipelines(request).register(name, registration).to_dict())


@router.put(
    "/api/pipelines/{name}/ranks/{rank}/sequence", response_model=Directive, responses=_KNOWN
)
def put_sequence(request: Request, name: str, rank: _Rank, body: SequenceBody) -> Response:
    """Set the sequence of instructions that a rank runs in every step."""
    _check(request, name)
    sequence = [_instruction(each) for each in body.instructions]
    return Json(_pipelines(request).put_sequence(name, rank, body.session, sequence).to_dict())


@router.put(
    "/api/pipelines/{name}/ranks/{rank}/measurements", response_model=Directive, responses=_KNOWN
)
def put_measurements(request: Request, name: str, rank: _Rank, body: MeasurementsBody) -> Response:
    """Report time and energy of the instructions of a rank at each clock."""
    _check(request, name)
    _note_tenant(request, name)
    measured = Measured.from_dict(body.model_dump())
    standing = _pipelines(request).put_measurements(name, rank, body.session, measured)
    return Json(standing.to_dict())


@router.post(
    "/api/pipelines/{name}/ranks/{rank}/trouble", response_model=Directive, responses=_KNOWN
)
def report_trouble(request: Request, name: str, rank: _Rank, body: TroubleBody) -> Response:
    """Report that a rank cannot measure or set clocks."""
    _check(request, name)
    standing = _pipelines(request).report_trouble(name, rank, body.session, body.message)
    return Json(standing.to_dict())


@router.post(
    "/api/pipelines/{name}/ranks/{rank}/leave",
    status_code=204,
    responses=_KNOWN,
    response_class=Response,
)
def leave(request: Request, name: str, rank: _Rank, body: LeaveBody) -> Response:
    """Report that a rank has ended."""
    _check(request, name)
    _note_tenant(request, name)
    _pipelines(request).leave(name, rank, body.session)
    return Response(status_code=204)


@router.get("/api/pipelines/{name}/ranks/{rank}/plan", response_model=Directive, responses=_ASKED)
async def show_plan(  # noqa: PLR0917  (its parameters are those of the URL)
    request: Request,
    name: str,
    rank: _Rank,
    session: _Session,
    version: _Version = 0,
    wait: _Wait = 0.0,
    step_time: _StepTime = None,
) -> Response:
    """Return the plan of a rank: when it is newer than `version`, or after `wait` seconds."""
    _check(request, name)
    if request.state.read_only:  # this request counts as a heartbeat of the rank
        raise TokenError("this token is read-only, and only a rank may ask for its plan")
    hub: Hub = request.app.state.hub
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    patience = loop.time() + max(wait, _MADE_AGAIN)
    ask = partial(
        _pipelines(request).standing, name, rank, session, version=version, step_time=step_time
    )
    while True:
        with hub.listening(name) as news:
            try:
                standing = await run_sync(ask)
            except ServerError:
                left = patience - loop.time()
                if left <= 0 or hub.stopping:
                    raise
            else:
                left = deadline - loop.time()
                if standing.version != version or left <= 0 or hub.stopping:
                    return Json(standing.to_dict())
            try:
                await asyncio.wait_for(news.wait(), min(left, _LOOK_AGAIN))
            except TimeoutError:
                continue


# --- jobs -----------------------------------------------------------------------------------------


@router.get("/api/pipelines", response_model=list[JobSummary])
def list_pipelines(request: Request) -> Response:
    """List all pipeline jobs by name, or the one that the token is for."""
    scope = request.state.scope
    if scope is None:
        return Json(_pipelines(request).jobs())
    try:
        found = _pipelines(request).job(scope)
    except UnknownJobError:
        return Json([])
    return Json([{key: found[key] for key in JobSummary.model_fields}])


@router.get("/api/pipelines/{name}", response_model=JobAnswer, responses=_FOUND)
def show_pipeline(request: Request, name: str) -> Response:
    """Return one pipeline job with its ranks."""
    _check(request, name)
    return Json(_pipelines(request).job(name))


@router.delete("/api/pipelines/{name}", status_code=204, responses=_FOUND, response_class=Response)
def delete_pipeline(request: Request, name: str) -> Response:
    """Delete a pipeline job. Ranks that still run register again."""
    _check(request, name)
    _pipelines(request).delete(name)
    return Response(status_code=204)


@router.get("/api/pipelines/{name}/frontier", response_model=FrontierAnswer, responses=_FOUND)
def show_frontier(request: Request, name: str) -> Response:
    """Return all plans of a job, and which of them each pipeline follows."""
    _check(request, name)
    return Json(_pipelines(request).frontier(name))


@router.get("/api/pipelines/{name}/profile", response_model=list[OptionAnswer], responses=_FOUND)
def show_profile(request: Request, name: str) -> Response:
    """Return the measurements of each computation; empty until there is a plan."""
    _check(request, name)
    return Json(_pipelines(request).profile(name))


@router.get("/api/pipelines/{name}/plan", response_model=list[OperationAnswer], responses=_FOUND)
def show_operations(request: Request, name: str, pipeline: _Pipeline = 0) -> Response:
    """Return the plan of a pipeline, sorted by start; empty until there is one."""
    _check(request, name)
    return Json(_pipelines(request).plan(name, pipeline))


@router.get("/api/pipelines/{name}/events", response_model=list[EventAnswer], responses=_FOUND)
def show_events(request: Request, name: str, most: _Most = 100) -> Response:
    """Return the events of a job, the latest first."""
    _check(request, name)
    return Json([asdict(each) for each in _pipelines(request).events(name, most)])


@router.post("/api/pipelines/{name}/stragglers", response_model=JobAnswer, responses=_KNOWN)
def report_straggler(request: Request, name: str, body: StragglerBody) -> Response:
    """Report that a pipeline became slower, or is healthy again: the others adapt at once."""
    _check(request, name)
    straggler = Straggler(**vars(body))
    return Json(_pipelines(request).report_straggler(name, straggler))


def _instruction(entry: list[Any]) -> Instruction:
    name, chunk, *where = entry
    whole = isinstance(chunk, int) and all(isinstance(each, int | None) for each in where)
    if not isinstance(name, str) or not whole:
        raise PipelineError(
            f"an instruction must be [name, chunk, microbatch, stage], but got {entry!r}"
        )
    return Instruction(name, chunk, *where)

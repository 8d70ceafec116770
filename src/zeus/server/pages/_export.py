"""Export of a job as one JSON document, with the keys of `zeus jobs export`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from zeus.errors import UnknownJobError
from zeus.optimizer.batch_size.api._answers import JobInfo
from zeus.optimizer.batch_size.api._commands import ListTrials, ShowJob, ShowLog, ShowProfiles
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.server.pages._job import check_scope
from zeus.server.pages._layout import HEADERS

_PAGE = 1_000  # entries per read


def show(request: Request) -> Response:
    """Stream the document in parts: it may be long."""
    name = request.path_params["name"]
    check_scope(request, name)
    jobs: Jobs = request.app.state.jobs
    info = jobs.do(ShowJob(job=name))
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="job.json"'}
    return StreamingResponse(_parts(jobs, info), 200, headers, "application/json")


def _parts(jobs: Jobs, info: JobInfo) -> Iterator[str]:
    yield f'{{"job":{_text(info.to_dict())},"profiles":'
    # If the job is deleted meanwhile, the lists end early, and the result is still valid JSON.
    try:
        profiles = [each.to_dict() for each in jobs.do(ShowProfiles(job=info.name))]
    except UnknownJobError:
        profiles = []
    yield f'{_text(profiles)},"trials":['
    yield from _list(_trials(jobs, info.name))
    yield '],"log":['
    yield from _list(_log(jobs, info.name))
    yield "]}\n"


def _list(pages: Iterator[Sequence[dict[str, Any]]]) -> Iterator[str]:
    between = ""
    try:
        for page in pages:
            yield between + ",".join(map(_text, page))
            between = ","
    except UnknownJobError:
        return


def _trials(jobs: Jobs, name: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the trials, the latest first."""
    before = None
    while page := jobs.do(ListTrials(job=name, before=before, most=_PAGE)):
        yield [each.to_dict() for each in page]
        before = page[-1].number


def _log(jobs: Jobs, name: str) -> Iterator[list[dict[str, Any]]]:
    after = 0
    while page := jobs.do(ShowLog(job=name, after=after, most=_PAGE)):
        yield page
        after = page[-1]["sequence"]


def _text(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))

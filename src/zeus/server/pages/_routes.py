"""Routes of the pages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from zeus.server.pages import _assets as assets
from zeus.server.pages import _compare as compare
from zeus.server.pages import _export as export
from zeus.server.pages import _job as job
from zeus.server.pages import _job_list as job_list
from zeus.server.pages import _pipelines as pipelines
from zeus.server.pages import _service as service
from zeus.server.pages import _service_list as service_list
from zeus.server.pages import _sign_in as sign_in
from zeus.server.pages import _trial as trial


def _home(_request: Request) -> Response:
    return RedirectResponse("/jobs", 303)


routes = [
    Route("/", _home),
    Route("/jobs", job_list.show),
    Route("/jobs/{name}", job.show),
    Route("/jobs/{name}/export.json", export.show),
    Route("/jobs/{name}/trials/{number}", trial.show),
    Route("/jobs/{name}/compare", compare.choose),
    Route("/jobs/{name}/compare/{other}", compare.show),
    Route(pipelines.PATH, pipelines.show_list),
    Route(f"{pipelines.PATH}/{{name}}", pipelines.show),
    Route(service_list.PATH, service_list.show),
    Route(f"{service_list.PATH}/{{name}}", service.show),
    Route(sign_in.SIGN_IN, sign_in.show),
    Route(sign_in.SIGN_IN, sign_in.enter, methods=["POST"]),
    Route(sign_in.SIGN_OUT, sign_in.leave, methods=["POST"]),
    Route(f"{assets.PREFIX}{{name}}", assets.serve),
]

#: Paths that need no token, besides everything under `assets.PREFIX`.
OPEN = (sign_in.SIGN_IN, sign_in.SIGN_OUT)

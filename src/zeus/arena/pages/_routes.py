"""Routes of the pages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from zeus.arena.pages import _board as board
from zeus.arena.pages import _export as export
from zeus.arena.pages import _round as round_page
from zeus.server.pages import _assets as assets
from zeus.server.pages import _sign_in as sign_in


def _home(_request: Request) -> Response:
    return RedirectResponse("/arena", 303)


routes = [
    Route("/", _home),
    Route("/arena", round_page.show_form),
    Route("/arena/rounds", round_page.ask, methods=["POST"]),
    Route("/arena/rounds/{name}", round_page.show),
    Route("/arena/rounds/{name}/stream", round_page.stream),
    Route("/arena/rounds/{name}/vote", round_page.vote, methods=["POST"]),
    Route("/arena/rounds/{name}/judgement", round_page.judge, methods=["POST"]),
    Route("/board", board.show),
    Route("/board/export.csv", export.as_csv),
    Route("/board/export.json", export.as_json),
    Route(sign_in.SIGN_IN, sign_in.show),
    Route(sign_in.SIGN_IN, sign_in.enter, methods=["POST"]),
    Route(sign_in.SIGN_OUT, sign_in.leave, methods=["POST"]),
    Route(f"{assets.PREFIX}{{name}}", assets.serve),
]

"""The page that lists services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._table import Column, table
from zeus.optimizer.serving.api._commands import ListServices
from zeus.optimizer.serving.storage._service import Services
from zeus.server.pages._layout import heading, respond, unbroken
from zeus.server.pages._service_words import (
    bound_of,
    joules_each,
    latency,
    lines,
    saved,
    setting,
    state_word,
    verdict,
)
from zeus.server.pages._units import NONE, ago, counted

PATH = "/services"
REFRESH, SELDOM = 5.0, 15.0  # seconds: while reports come, and until they come again


def address(name: str, span: str = "") -> str:
    """Return the URL of a service, with a span of time."""
    query = f"?span={span}#course" if span else ""
    return f"{PATH}/{quote(name, safe='')}{query}"


def alive(state: str) -> bool:
    """Whether reports come in a state."""
    return state in ("controlled", "observed")


def show(request: Request) -> Response:
    """Return the page that lists all services, or the one that the token is for."""
    services: Services = request.app.state.services
    found = services.do(ListServices(scope=request.state.scope))
    now = request.app.state.now()
    reporting = sum(alive(each["state"]) for each in found)
    about = f"{counted(len(found), 'service')}, {reporting} reporting now."
    content = join(
        heading("Services", about if found else None),
        _list(found, now) if found else _nothing(),
    )
    refresh = REFRESH if reporting else SELDOM
    return respond(request, "Services", content, at=PATH, refresh=refresh)


def _list(services: Sequence[Mapping[str, Any]], now: float) -> Markup:
    def name(each: Mapping[str, Any]) -> Content:
        return tag("a", tag("bdi", each["name"]), href=address(each["name"]))

    def held(each: Mapping[str, Any]) -> Content:
        return _unless_damaged(each, setting(each["setting"], each["knob"]))

    def each_token(each: Mapping[str, Any]) -> Content:
        energy = (each["now"] or {}).get("joules_per_token")
        return NONE if energy is None else joules_each(energy)

    def saving(each: Mapping[str, Any]) -> Content:
        return saved(each["saving"], observe=each["observe"])

    columns: Sequence[Column[Mapping[str, Any]]] = (
        Column("service", name),
        Column("state", _state),
        Column("bounds, latest minute", _bounds),
        Column("setting", held, number=True, optional=True),
        Column("per token", each_token, number=True, optional=True),
        Column("saved", saving, number=True, optional=True),
        Column(
            "last report",
            lambda each: _unless_damaged(each, ago(each["heard"], now)),
            optional=True,
        ),
    )
    return tag("div", table("Services", columns, services), id="services")


def _unless_damaged(service: Mapping[str, Any], said: Content) -> Content:
    return NONE if service["state"] == "damaged" else said


def _state(service: Mapping[str, Any]) -> Content:
    word = state_word(service["state"])
    if service["trouble"]:
        return join(word, tag("span", service["trouble"], class_="why below"))
    if service["threatened"] and alive(service["state"]):
        return join(word, tag("span", "a bound is threatened", class_="why below"))
    return word


def _bounds(service: Mapping[str, Any]) -> Content:
    return lines(
        *(
            join(
                f"{bound_of(each).name}: ",
                unbroken(_latest(each), " of ", limit_of(each), " "),
                verdict(each["now"]["kept"]),
            )
            for each in service["bounds"]
        )
    )


def _latest(bound: Mapping[str, Any]) -> str:
    return latency(bound["now"]["measured"], bound["seconds"])


def limit_of(bound: Mapping[str, Any]) -> str:
    """Format how long a latency may be."""
    return latency(bound["seconds"], bound["seconds"])


def _nothing() -> Markup:
    how = (
        tag("p", "There are no services yet. A service appears here when it is controlled:"),
        tag(
            "pre",
            tag(
                "code",
                "zeus slo --to http://localhost:8000 --bound ttft:p99:1.5 --server http://…:8420",
            ),
        ),
        tag(
            "p",
            "or, in a program, ",
            tag("code", 'ServingOptimizer(monitor, bounds, service="…", server_url="http://…")'),
            ". With ",
            tag("code", "--observe"),
            " nothing is changed, and what would be saved is predicted.",
        ),
    )
    return tag("div", *how, id="services")

"""The page of one service: bounds, setting, energy and savings, now and over time, and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._table import Column, table
from zeus.optimizer.serving.storage._service import Services
from zeus.optimizer.serving.storage._service_state import Service
from zeus.optimizer.serving.storage._summaries import info
from zeus.server.pages._job import check_scope
from zeus.server.pages._layout import (
    aside,
    crumb,
    details,
    facts,
    heading,
    notice,
    respond,
    section,
    unbroken,
)
from zeus.server.pages._service_charts import RANGES, USUAL, ServiceCharts
from zeus.server.pages._service_list import PATH, REFRESH, SELDOM, address, alive, limit_of
from zeus.server.pages._service_words import (
    bound_of,
    joules_each,
    latency,
    lines,
    nothing_saved,
    setting,
    state_word,
    unit_of,
    verdict,
)
from zeus.server.pages._units import (
    NONE,
    UNKNOWN,
    ago,
    counted,
    digits,
    grouped,
    instant,
    joules,
    kilowatt_hours,
    percent,
    watts,
)

_DECISIONS = 20


def show(request: Request) -> Response:
    """Return the page of one service."""
    name = request.path_params["name"]
    check_scope(request, name)
    services: Services = request.app.state.services
    service = services.whole(name)
    chosen = request.query_params.get("span", USUAL)
    page = _Page(service, request.app.state.now(), chosen if chosen in RANGES else USUAL)
    refresh = REFRESH if alive(page.state) else SELDOM
    return respond(request, name, page.content(), at=PATH, refresh=refresh)


@dataclass
class _Page:
    """The page of one service.

    Attributes:
        service: All that is known of it.
        now: Seconds since 1970.
        chosen: The span of time that is shown.
    """

    service: Service
    now: float
    chosen: str

    def __post_init__(self) -> None:
        assert self.service.runs is not None
        self.runs = self.service.runs
        self.run = self.runs.latest
        self.start = self.run.start
        self.state = self.service.state(self.now)
        self.info = info(self.service, self.state, self.service.minute)

    def content(self) -> Markup:
        name = self.service.name
        # The first run is no other one than before.
        began = [run.began for run in (self.run, *self.runs.past)]
        began = began if self.runs.older.runs else began[:-1]
        charts = ServiceCharts(
            self.service.spans, self.start, began, self.chosen, partial(address, name)
        )
        parts = (self.top(), self.notices(), self.at_a_glance(), self.bounds(), charts.section())
        return join(*parts, self.decisions(), self.history())

    def top(self) -> Markup:
        start = self.start
        what = " with ".join(filter(None, (start.engine, start.model)))
        gpus = f"{start.gpus} × {start.gpu}" if start.gpu else counted(start.gpus, "GPU")
        where = f" on {start.host}" if start.host else ""
        title = heading(
            tag("bdi", self.service.name),
            tag("bdi", what or "A service"),
            f"{where}, {gpus}, a decision every {start.interval:g} s. Last report ",
            ago(self.service.heard, self.now),
            ".",
        )
        return join(crumb("Services", PATH), title)

    def notices(self) -> Markup:
        found: list[Content] = []
        if self.state == "silent":
            restoring = join(
                " After a kill, its GPUs keep their setting until the next start of Zeus there; ",
                tag("code", "zeus restore"),
                " gives the previous one back at once.",
            )
            found.append(
                notice(
                    "Not heard of since ",
                    instant(self.service.heard),
                    ": the process that watches the service was killed, or cannot reach this "
                    "server. All that it reported until then is below.",
                    None if self.start.observe else restoring,
                    kind="bad",
                )
            )
        elif self.state == "ended":
            restored = "." if self.start.observe else "; the previous setting is in force again."
            found.append(notice("This run ended ", ago(self.run.ended or 0.0, self.now), restored))
        if self.run.state.trouble and self.state != "ended":
            found.append(notice(_sentence(self.run.state.trouble), kind="bad"))
        return tag("div", *found, id="notices")

    # --- key figures --------------------------------------------------------------------------

    def at_a_glance(self) -> Markup:
        state, now = self.run.state, self.info["now"]
        observe = self.start.observe
        unit = unit_of(self.start.knob)
        highest = f"of {digits(self.start.highest)} {unit}" if self.start.highest else ""
        entries: list[tuple[str, Content, Content]] = [
            ("State", tag("span", state_word(self.state), class_="words"), self.threat()),
            (
                "Setting that would be held" if observe else "Setting",
                tag("span", setting(self.info["setting"], self.start.knob), class_="unbroken"),
                "; ".join(filter(None, (highest, state.reason))),
            ),
            self.kept(),
            self.saved(),
            self.predicted(),
            (
                "Energy per generated token",
                joules_each(None if now is None else now["joules_per_token"]),
                f"in the latest minute; {joules_each(state.joules_per_token)} over this run",
            ),
        ]
        if now is not None:
            entries += [
                ("Power of the GPUs", watts(_rounded(now["power"])), "in the latest minute"),
                (
                    "Load",
                    f"{digits(now['running'], 3)} at once",
                    f"{digits(now['waiting'], 3)} waiting; {digits(now['arrived'], 3)} requests/s "
                    f"and {digits(now['generated_tokens'], 3)} generated tokens/s",
                ),
            ]
        total = self.runs.totals
        energy = kilowatt_hours(total.energy) if total.energy else UNKNOWN
        entries.append(("Energy so far", energy, f"in {counted(total.runs, 'run')}"))
        return facts(entries)

    def threat(self) -> str:
        if not alive(self.state):
            return ""
        if self.run.state.threatened:
            return "a bound is threatened, so the highest setting follows"
        return "nothing is changed" if self.start.observe else "no bound is threatened"

    def kept(self) -> tuple[str, Content, Content]:
        found = [each for each in self.info["bounds"] if each["run"]["kept"] is not None]
        broken = [bound_of(each).name for each in found if not each["run"]["kept"]]
        if not found:
            return "Bounds over this run", UNKNOWN, "no request yet"
        if broken:
            word = tag("span", f"{len(broken)} of {len(found)} broken", class_="bad")
            return "Bounds over this run", word, ", ".join(broken)
        said = tag("span", "all kept" if len(found) > 1 else "kept", class_="good")
        return "Bounds over this run", said, f"{counted(len(found), 'bound')} with requests"

    def saved(self) -> tuple[str, Content, Content]:
        name, share = "Saved, measured", self.info["saving"]["measured"]
        if self.start.observe:
            return name, NONE, "nothing is changed"
        if share is None:
            return name, UNKNOWN, "not known yet: it takes energies, and some time to learn"
        if nothing_saved(self.info["saving"]["predicted"] or 0.0):
            return name, "none yet", "the highest setting was in force nearly always"
        state = self.run.state
        kind = "good" if share > 0 else None
        said = (
            f"{joules(state.measured, 3, like=state.compared)} measured, instead of "
            f"{joules(state.compared, 3)} that are predicted at the highest setting"
        )
        return name, tag("span", percent(share), class_=kind), said

    def predicted(self) -> tuple[str, Content, Content]:
        share = self.info["saving"]["predicted"]
        if share is None:
            return "Saved, predicted", UNKNOWN, "not known yet"
        if self.start.observe:
            said = "a prediction, from curves that are assumed where no setting was tried"
            return "Would be saved, predicted", percent(share), said
        state = self.run.state
        said = f"{joules(state.chosen, 3, like=state.highest)} at the chosen settings, instead of "
        said += f"{joules(state.highest, 3)}; both are predictions"
        return "Saved, predicted", percent(share), said

    # --- bounds -------------------------------------------------------------------------------

    def bounds(self) -> Markup:
        columns: Sequence[Column[Mapping[str, Any]]] = (
            Column("bound", lambda each: join(bound_of(each).name, " ", unbroken(limit_of(each)))),
            Column("latest minute", lambda each: _kept(each, "now"), number=True),
            Column("this run", lambda each: _kept(each, "run"), number=True),
            Column("longer than it", _above, number=True, optional=True),
            Column("minutes kept", _minutes, number=True),
        )
        about = (
            "The latency that the given percentage of requests did not exceed. A bound is kept if "
            "no more requests than it allows took longer."
        )
        inner = table("Bounds", columns, self.info["bounds"])
        return section("Bounds", inner, name="bounds", about=about)

    # --- the past -----------------------------------------------------------------------------

    def decisions(self) -> Markup | None:
        """Return the latest settings, with their reasons."""
        unit = unit_of(self.start.knob)
        found: list[tuple[float, str, str]] = []
        for each in sorted(self.service.spans, key=lambda span: span.begin):
            shown = setting({"prefill": each.prefill, "decode": each.decode}, self.start.knob)
            if not found or found[-1][1:] != (shown, each.reason):
                found.append((each.end, shown, each.reason))
        if not found:
            return None
        columns: Sequence[Column[tuple[float, str, str]]] = (
            Column("until", lambda row: ago(row[0], self.now)),
            Column(f"mean setting ({unit})", lambda row: row[1], number=True),
            Column("then decided", lambda row: row[2]),
        )
        inner = table("Latest decisions", columns, found[: -_DECISIONS - 1 : -1])
        return section("Decisions", details("The latest decisions", inner, name="latest"),
                       name="decisions")  # fmt: skip

    def history(self) -> Markup:
        columns: Sequence[Column[Mapping[str, Any]]] = (
            Column("began", lambda run: instant(run["began"])),
            Column("end", self.end),
            Column("requests", lambda run: grouped(round(run["requests"])), number=True,
                   optional=True),
            Column("energy", lambda run: joules(run["energy"]), number=True, optional=True),
            Column("per token", lambda run: joules_each(run["joules_per_token"]), number=True),
            Column("saved, measured", lambda run: percent(run["saving"]["measured"])
                   if run["saving"]["measured"] is not None else NONE, number=True, optional=True),
            Column("bounds kept", lambda run: f"{run['bounds_kept']} of {run['bounds']}"
                   if run["bounds"] else NONE, number=True),
        )  # fmt: skip
        older = self.runs.older.runs
        about = "From the begin of a process that controls the service to its end."
        if older:
            about += f" {counted(older, 'run')} before these are only in the energy so far."
        inner = table("Runs", columns, self.info["runs"])
        return section("Runs", inner, name="runs", about=about)

    def end(self, run: Mapping[str, Any]) -> Content:
        if run["ended"] is not None:
            return instant(run["ended"])
        if run is self.info["runs"][0] and alive(self.state):
            return "goes on"
        return join(tag("span", "not heard of since ", class_="bad"), instant(run["heard"]))


def _above(found: Mapping[str, Any]) -> Content:
    run = found["run"]
    if not run["requests"]:
        return NONE
    allowed = 1 - found["percent"] / 100
    return lines(_small(run["above"]), aside(f"{_small(allowed)} allowed"))


def _small(share: float) -> str:
    return f"{digits(100 * share, 2)}\N{NO-BREAK SPACE}%"


def _minutes(found: Mapping[str, Any]) -> Content:
    total, kept = found["minutes"], found["minutes_kept"]
    if not total:
        return NONE
    return lines(percent(kept / total), aside(f"{grouped(kept)} of {grouped(total)}"))


def _kept(found: Mapping[str, Any], when: str) -> Content:
    value = latency(found[when]["measured"], found["seconds"])
    return lines(value, verdict(found[when]["kept"])) if found[when]["requests"] else NONE


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."

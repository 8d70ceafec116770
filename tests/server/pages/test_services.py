"""Pages of services in a browser: what is kept and saved, over time, and who stopped reporting."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest
from tests.browser import follow
from tests.present import present
from tests.server.child import serving
from tests.server.pages.asking import OURS, ask
from tests.server.pages.services import Time, run_service

from zeus.frontier import LatencyBound
from zeus.optimizer.serving.api._commands import ReportService, StartService
from zeus.optimizer.serving.api._messages import BoundRecord, RunState, ServiceStart
from zeus.optimizer.serving.api._spans import Span
from zeus.optimizer.serving.storage._service import Services
from zeus.store import Store, Tokens
from zeus.testing import Traffic

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
DESK = {"viewport": {"width": 1180, "height": 900}}
HOSTILE = "<img src=x onerror=alert(1)> \"&' ?#+ü"
SPACE = "\N{NO-BREAK SPACE}"
CHAT, TIGHT, KILLED, WATCHED = "chat@gpu1:8000", "tight", "killed@gpu2:8000", "watched"
WIDE = (LatencyBound("ttft p99", 3.5), LatencyBound("tpot p99", 0.2))
HARD = (LatencyBound("ttft p99", 0.3), LatencyBound("tpot p99", 0.045))
PATH = f"/services/{quote(CHAT, safe='')}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Services of all kinds; those that go on report a moment ago."""
    storage = f"sqlite:///{tmp_path_factory.mktemp('services')}/jobs.db"
    store, now = Store(storage), time.time()
    passing = Time(now)
    services = Services(store, passing)
    found = {}
    runs: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
        (CHAT, 90_000, 240, {"close": False}),
        (CHAT, 420, 420, {"close": False}),
        (TIGHT, 120, 120, {"close": False, "bounds": HARD}),
        (KILLED, 5_000, 300, {"close": False}),
        ("ended", 5_000, 120, {}),
        (WATCHED, 300, 300, {"close": False, "observe": True}),
        ("phases", 240, 240, {"phases": True}),
    )
    for name, ago, seconds, options in runs:
        passing.now = now - ago
        traffic = Traffic.poisson(1.2 if name != TIGHT else 2.5, seconds - 40, seed=6)
        found[name] = run_service(
            services, name, traffic, passing, **{"bounds": WIDE, **options}
        ).report
    passing.now = now
    start = ServiceStart(
        session="x", model="<b>m</b>", engine="e" * 200, bounds=(BoundRecord("itl", 95.0, 0.05),)
    )
    services.do(StartService(service=HOSTILE, start=start))
    store.close()
    with serving(storage, "--no-token") as server:
        yield server, storage, found


@pytest.fixture
def server(site):
    """The server; services that go on have just been heard of."""
    server, storage, _ = site
    store = Store(storage)
    with store.writing() as connection:
        from sqlalchemy import text

        connection.execute(
            text("UPDATE zeus_services SET heard = :now WHERE name NOT IN (:killed, 'ended')"),
            {"now": time.time(), "killed": KILLED},
        )
    store.close()
    return server


def fits(page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_list_says_who_keeps_what(server, open_page):
    page = open_page(f"{server.url}/jobs", **DESK)
    follow(page, page.get_by_role("link", name="Services", exact=True))
    assert page.locator("header nav [aria-current]").inner_text() == "Services"
    rows = {
        row.locator("th").inner_text(): row.inner_text()
        for row in page.locator("#services tbody tr").all()
    }
    assert set(rows) == {CHAT, TIGHT, KILLED, WATCHED, "ended", "phases", HOSTILE}
    assert "controlled" in rows[CHAT]
    assert "ttft p99: " in rows[CHAT]
    assert "of 3.5" in rows[CHAT]
    assert "kept" in rows[CHAT]
    assert "MHz" in rows[CHAT]
    assert "broken" in rows[TIGHT]
    assert "a bound is threatened" in rows[TIGHT]
    assert "none yet" in rows[TIGHT]  # at the highest setting all the time
    assert "not heard of" in rows[KILLED]
    assert "observed only" in rows[WATCHED]
    assert "would save" in rows[WATCHED]
    assert "ended" in rows["ended"]
    follow(page, page.get_by_role("link", name=CHAT, exact=True))
    assert page.get_by_role("heading", level=1).inner_text() == CHAT


def test_a_service_shows_its_bounds_setting_energy_and_runs(site, server, open_page):
    _, storage, reports = site
    report = reports[CHAT]
    store = Store(storage)
    state = present(Services(store).whole(CHAT).runs).latest.state
    store.close()
    # What is shown is not older than a second.
    assert report.seconds - state.seconds < 1.5
    page = open_page(server.url + PATH, **DESK)
    assert "vLLM with mistral-7b on gpu1, 1 × Tesla V100" in page.locator("#heading").inner_text()
    facts = page.locator("#facts").inner_text()
    assert f"{100 * present(state.forecast.measured_saving):.1f}{SPACE}%" in facts
    assert f"{100 * present(state.forecast.predicted_saving):.1f}{SPACE}%" in facts
    assert "predicted at the highest setting" in facts
    assert f"{present(state.joules_per_token):.3g}{SPACE}J over this run" in facts
    assert "all kept" in facts
    assert "in 2 runs" in facts
    bounds = page.locator("#bounds tbody tr")
    assert bounds.locator("th").all_inner_texts() == [
        f"ttft p99 3.5{SPACE}s",
        f"tpot p99 200{SPACE}ms",
    ]
    total, kept = report.minutes(report.bounds[0])
    assert f"{kept} of {total}" in bounds.first.inner_text()
    charts = page.locator("#course svg.wide")
    assert charts.count() == 6
    assert "99 % of requests took at most this long" in page.locator("#course").inner_text()
    # The values of a chart, by keyboard.
    charts.first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").is_visible()
    assert "MHz" in page.locator(".tip").inner_text()
    runs = page.locator("#runs tbody tr").all_inner_texts()
    assert "goes on" in runs[0]
    assert "not heard of since" in runs[1]
    follow(page, page.locator("#ranges").get_by_role("link", name="All"))
    page.wait_for_url("**span=all*")
    assert "another run begins" in page.locator("#course").inner_text()
    page.locator("#latest summary").click()
    assert "MHz" in page.locator("#latest tbody").inner_text()
    assert fits(page)


def test_one_that_was_killed_says_since_when_and_what_to_do(server, open_page):
    page = open_page(f"{server.url}/services/{quote(KILLED, safe='')}", **DESK)
    said = page.locator("#notices").inner_text()
    assert "Not heard of since 20" in said
    assert "zeus restore" in said
    assert page.locator("#notices [role=alert]").count() == 1
    assert page.locator("#course svg.wide").count() == 6
    page.goto(f"{server.url}/services/ended")
    assert "This run ended" in page.locator("#notices").inner_text()
    page.goto(f"{server.url}/services/{WATCHED}")
    facts = page.locator("#facts").inner_text()
    assert "Setting that would be held" in facts
    assert "Would be saved, predicted" in facts
    assert "nothing is changed" in facts
    page.goto(f"{server.url}/services/phases")
    assert "for prompts (prefill)" in page.locator("#course").inner_text()


def test_what_has_not_begun_has_words_and_names_do_nothing(server, open_page):
    page = open_page(f"{server.url}/services", **DESK)
    follow(page, page.get_by_role("link", name=HOSTILE))
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    shown = page.locator("main").inner_text()
    assert "No interval has been reported yet." in shown
    assert "no request yet" in shown
    answer = ask(server, f"/services/{quote(HOSTILE, safe='')}")
    assert {name for name, _ in answer.page().elements} <= OURS
    missing = ask(server, "/services/nobody")
    assert missing.status == 404
    assert "There is no service" in missing.page().text
    assert ask(server, f"{PATH}?span=%3Cb%3E").status == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_phone_by_day_and_by_night(server, open_page, scheme):
    page = open_page(f"{server.url}/services", color_scheme=scheme, **PHONE)
    assert fits(page)
    for name in (CHAT, HOSTILE, KILLED):
        page.goto(f"{server.url}/services/{quote(name, safe='')}")
        assert fits(page), name
    page.goto(server.url + PATH)
    assert page.locator("#course svg.narrow").first.is_visible()
    assert not page.locator("#course svg.wide").first.is_visible()
    ink, paper = page.eval_on_selector(
        "#course svg.narrow text",
        "e => [getComputedStyle(e).fill, getComputedStyle(document.body).backgroundColor]",
    )
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert ink != paper


def test_a_page_keeps_up(site, server, open_page):
    from playwright.sync_api import expect

    store = Store(site[1])
    services = Services(store)
    bounds = (BoundRecord("ttft", 99.0, 1.5),)
    services.do(StartService(service="live", start=ServiceStart(session="s", bounds=bounds)))
    page = open_page(f"{server.url}/services/live", **DESK)
    expect(page.locator("#course")).to_contain_text("No interval has been reported yet.")
    now = time.time()
    span = Span(begin=now - 5, end=now, seconds=5.0, decode=990.0, prefill=990.0, running=3.0)
    state = RunState(decode=990.0, prefill=990.0, reason="least power", threatened=True)
    services.do(
        ReportService(service="live", session="s", number=1, spans=[span.to_dict()], state=state)
    )
    expect(page.locator("#facts")).to_contain_text(f"990{SPACE}MHz")
    expect(page.locator("#facts")).to_contain_text("a bound is threatened")
    expect(page.locator("#course svg.wide").first).to_be_visible()
    store.close()


def test_an_empty_list_says_how_to_begin_and_tokens_are_for_their_own(tmp_path):
    storage = f"sqlite:///{tmp_path}/jobs.db"
    store = Store(storage)
    tokens = Tokens(store)
    mine, _ = tokens.create("mine", now=time.time())
    with serving(storage) as server:
        bearer = {"Authorization": f"Bearer {mine}"}
        assert "There are no services yet" in ask(server, "/services", **bearer).text
        services = Services(store)
        bounds = (BoundRecord("ttft", 99.0, 1.5),)
        for name in ("mine", "theirs"):
            services.do(StartService(service=name, start=ServiceStart(session="s", bounds=bounds)))
        shown = ask(server, "/services", **bearer).page().text
        assert "mine" in shown
        assert "theirs" not in shown
        assert ask(server, "/services/mine", **bearer).status == 200
        assert ask(server, "/services/theirs", **bearer).status == 403
        assert ask(server, "/services/theirs").status == 303
    store.close()

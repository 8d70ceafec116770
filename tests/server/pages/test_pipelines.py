"""The pages of pipeline jobs in a real browser: by day, by night, on a phone, and live."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from tests.browser import follow
from tests.optimizer.pipeline_frequency.job.reports import registering, registration
from tests.server.child import serving
from tests.server.test_pipelines import _planned, orders_of, report_steps, tell_all

from zeus.optimizer.pipeline_frequency.api._commands import (
    PutSequence,
    ReportProgress,
    ReportStraggler,
    ReportTrouble,
    SetObjective,
    ShowFrontier,
    ShowPlan,
)
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._objective import PipelineObjective
from zeus.optimizer.pipeline_frequency.job._planning import Messages
from zeus.optimizer.pipeline_frequency.job._progress import Progress
from zeus.server.pages._pipeline_facts import message_facts
from zeus.server.pages._units import seconds
from zeus.store import Store, Tokens

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DESK = {"viewport": {"width": 1280, "height": 900}}
HOSTILE = "<img src=x onerror=alert(1)> \"&' ..?#+ü"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    storage = f"sqlite:///{tmp_path_factory.mktemp('pages')}/jobs.db"
    with serving(storage, "--no-token") as server:
        api = RemotePipelines(server.url, timeout=60.0)
        tell_all(api, "gpt3", (3, 4, 1), orders_of(4, 6))
        _planned(api, "gpt3")
        api.do(registering(HOSTILE, registration(0, (2, 4, 2), note="<script>alert(2)</script>")))
        api.do(
            ReportTrouble(job=HOSTILE, rank=0, session="session 0", message="<b>no permission</b>")
        )
        yield server


@pytest.fixture
def api(started):
    return RemotePipelines(started.url, timeout=60.0)


@pytest.fixture
def server(started, api):
    # However long the tests before took: ranks of which nothing is heard are lost after a minute.
    for rank in range(12):
        api.do(ShowPlan(job="gpt3", rank=rank, session=f"session {rank}"))
    return started


def fits(page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_job_shows_its_pipeline_plan_frontier_and_ranks(server, api, open_page):
    planned = api.do(ShowFrontier(job="gpt3"))["points"][0]["time"]
    page = open_page(f"{server.url}/pipelines/gpt3", **DESK)
    saved = page.locator("#facts > div", has_text="Saved, measured")
    assert "not known yet" in saved.inner_text()
    assert page.locator("#history").count() == 0
    report_steps(api, "gpt3", 1.031 * planned, ranks=12)
    page.goto(f"{server.url}/pipelines")
    assert page.locator("header nav [aria-current]").inner_text() == "Pipelines"
    follow(page, page.get_by_role("link", name="gpt3", exact=True))
    assert page.get_by_role("heading", level=1).inner_text() == "gpt3"
    facts = page.locator("#facts").inner_text()
    assert "planned" in facts
    assert "as fast as without a plan" in facts
    assert "12 of 12" in facts
    assert "+3.1\N{NO-BREAK SPACE}% compared with the plan" in facts
    assert "As fast as possible" in facts
    assert "10.0\N{NO-BREAK SPACE}%" in saved.inner_text()
    assert "20 steps under the plan against 3 reference steps" in saved.inner_text()
    # 12 ranks, 20 steps of 90 J and 3 of 100 J each.
    assert f"{12 * (20 * 90 + 3 * 100) / 3600:.3g}\N{NO-BREAK SPACE}Wh" in facts
    assert page.locator("#history tbody tr").count() == 1
    assert seconds(1.031 * planned, 4) in page.locator("#history").inner_text()
    # Every operation, before and now, with words for those who point at it.
    boxes = page.locator("#plan rect:has(title)")
    assert boxes.count() == 2 * 4 * 6 * 2
    assert "MHz" in boxes.last.locator("title").text_content()
    assert page.locator("#frontier svg.wide").is_visible()
    assert page.locator("#ranks tbody tr").count() == 4
    assert page.locator("#clocks tbody tr").count() == 8
    energy = page.locator("#energy tbody tr")
    assert energy.count() == 4 + 1, "each place, and all of them"
    assert re.search(r"\b[1-9]\d* of 48\b", energy.last.inner_text()), "some have no slack"
    assert "Power of all GPUs" in page.locator("#plan svg").text_content()
    follow(page, page.locator("#pipelines").get_by_role("link", name="2", exact=True))
    page.wait_for_url("**/pipelines/gpt3?pipeline=2*")
    assert page.locator("#ranks tbody th").all_inner_texts() == ["8", "9", "10", "11"]
    assert fits(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_phone_by_day_and_by_night(server, open_page, scheme):
    page = open_page(f"{server.url}/pipelines", color_scheme=scheme, **PHONE)
    hostile = quote(HOSTILE, safe="")
    for path in ("/pipelines", "/pipelines/gpt3", f"/pipelines/{hostile}"):
        page.goto(server.url + path)
        assert fits(page), path
    page.goto(f"{server.url}/pipelines/gpt3")
    assert page.locator("#frontier svg.narrow").is_visible()
    colors = page.eval_on_selector(
        "#plan svg text", "e => [getComputedStyle(e).fill, getComputedStyle(document.body).color]"
    )
    dark = page.eval_on_selector("body", "e => getComputedStyle(e).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
    assert colors[0] != dark
    # The picture keeps its size, and scrolls by itself.
    assert page.locator("#plan svg").bounding_box()["width"] > 800


def test_a_page_keeps_up_with_stragglers(server, api, open_page):
    from playwright.sync_api import expect

    page = open_page(f"{server.url}/pipelines", **DESK)
    page.clock.install()
    page.goto(f"{server.url}/pipelines/gpt3")
    usual = page.locator("#pipelines td").nth(1).inner_text()
    api.do(ReportStraggler(job="gpt3", straggler=Straggler(1, slowdown=1.2)))
    page.clock.run_for(6_000)
    expect(page.locator("#pipelines tbody tr").nth(1)).to_contain_text(
        "takes 1.2 times as long, as reported"
    )
    expect(page.locator("#events")).to_contain_text("pipeline 1 takes 1.2 times as long")
    expect(page.locator("#facts")).to_contain_text("without stragglers")
    expect(page.locator("#facts > div").first).to_contain_text("1 pipeline straggling")
    expect(page.locator("#pipelines tbody tr").first).to_contain_text("slowed down, as another")
    assert page.locator("#pipelines td").nth(1).inner_text() != usual
    api.do(ReportStraggler(job="gpt3", straggler=Straggler(1, healthy=True)))
    page.clock.run_for(6_000)
    expect(page.locator("#facts")).to_contain_text("as fast as without a plan")
    api.do(SetObjective(job="gpt3", objective=PipelineObjective(max_slowdown=1.1)))
    page.clock.run_for(6_000)
    expect(page.locator("#facts")).to_contain_text("At most 1.1 times the time of the highest")
    assert page.locator("#pipelines td").nth(1).inner_text() != usual
    api.do(SetObjective(job="gpt3", objective=PipelineObjective(peak_power=1e5)))
    page.clock.run_for(6_000)
    expect(page.locator("#facts")).to_contain_text("not measured: with a bounded power")
    api.do(SetObjective(job="gpt3", objective=PipelineObjective()))


def test_names_do_nothing(server, open_page):
    page = open_page(f"{server.url}/pipelines", **DESK)
    dialogs: list[str] = []

    def dismiss(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    follow(page, page.get_by_role("link", name=HOSTILE))
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE
    assert "rank 0 cannot take part: <b>no permission</b>" in page.locator(".notice").inner_text()
    assert page.locator("img").count() == 0
    assert dialogs == []


def test_a_token_shows_its_own_job_only(tmp_path):
    storage = f"sqlite:///{tmp_path}/jobs.db"
    store = Store(storage)
    secret, _ = Tokens(store).create("mine", now=0.0)
    other, _ = Tokens(store).create("another", now=0.0)
    store.close()
    with serving(storage) as server:
        RemotePipelines(server.url, secret, timeout=60.0).do(registering("mine", registration(0)))

        def read(path: str, token: str) -> str:
            headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
            with urlopen(Request(server.url + path, headers=headers), timeout=60) as answer:
                return answer.read().decode()

        assert "mine" in read("/pipelines", secret)
        assert "mine" not in read("/pipelines", other)
        with pytest.raises(OSError, match="403"):
            read("/pipelines/mine", other)
        with pytest.raises(OSError, match="404"):
            read("/pipelines/another", other)


def test_the_slowest_link_is_shown_beside_the_others():
    (fact,) = message_facts(Messages({0: 0.005, 1: 0.05, 2: 0.006}, block=True))
    assert fact == (
        "Slowest message",
        seconds(0.05),
        f"between stages 1 and 2; {seconds(0.005)} to {seconds(0.006)} on other links; both ranks "
        "wait for each",
    )
    ((_, _, said),) = message_facts(Messages({0: 0.02, 1: 0.001, 2: 0.001}, block=False))
    assert said == f"between stages 0 and 1; {seconds(0.001)} on other links"
    ((_, _, said),) = message_facts(Messages({0: 0.02}, block=False))
    assert said == "between stages 0 and 1"
    assert message_facts(Messages({}, block=False)) == []


def test_progress_and_a_few_of_many_cycles(server, api, open_page):
    orders, degrees = orders_of(2, 40), (1, 2, 1)
    tell_all(api, "long", degrees, orders, [0])
    page = open_page(f"{server.url}/pipelines/long", **DESK)
    assert "1 rank measured" in page.locator("#facts").inner_text()
    who = registration(1, degrees)
    of: dict[str, Any] = {"job": "long", "rank": 1, "session": who.session}
    api.do(registering("long", who))
    api.do(PutSequence(**of, instructions=orders[1]))
    api.do(ReportProgress(**of, progress=Progress(4, 9, 3, 6, 8.0)))
    page.goto(f"{server.url}/pipelines/long")
    said = "easuring, step 5 of about 9, about 40 seconds left"
    assert f"M{said}. 1 rank measured, 1 rank measuring" in page.locator("#facts").inner_text()
    row = page.locator("#ranks tbody tr").nth(1).inner_text()
    assert "step 5 of about 9" in row
    assert "3 of 6" in row
    assert fits(page)
    page.goto(f"{server.url}/pipelines")
    assert f"m{said}" in page.locator("#jobs").inner_text()
    page.goto(f"{server.url}/pipelines/long")
    tell_all(api, "long", degrees, orders, [1])
    _planned(api, "long")
    page.goto(f"{server.url}/pipelines/long")
    assert "No step of it was measured by all places" in page.locator("#plan").inner_text()
    assert page.locator("#plan h3").inner_text() == "Four cycles from its middle"
    cycles = page.locator("#plan .cycles rect:has(title)")
    assert 2 * 2 * 8 <= cycles.count() < 2 * 2 * 8 + 12
    assert fits(page)

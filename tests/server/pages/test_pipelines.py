"""The pages of pipeline jobs in a real browser: by day, by night, on a phone, and live."""

from __future__ import annotations

from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from tests.browser import follow
from tests.optimizer.pipeline_frequency.job.reports import registering, registration
from tests.server.child import serving
from tests.server.test_pipelines import _planned, orders_of, tell_all

from zeus.optimizer.pipeline_frequency.api._commands import (
    ReportStraggler,
    ReportTrouble,
    ShowFrontier,
    ShowPipeline,
    ShowPlan,
)
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import Straggler
from zeus.optimizer.pipeline_frequency.job._planning import Messages
from zeus.server.pages._pipelines import message_facts
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
    version, planned = (
        api.do(ShowPipeline(job="gpt3"))["version"],
        api.do(ShowFrontier(job="gpt3"))["points"][0]["time"],
    )
    api.do(
        ShowPlan(
            job="gpt3", rank=0, session="session 0", version=version, step_time=1.031 * planned
        )
    )
    page = open_page(f"{server.url}/pipelines", **DESK)
    assert page.locator("header nav [aria-current]").inner_text() == "Pipelines"
    follow(page, page.get_by_role("link", name="gpt3", exact=True))
    assert page.get_by_role("heading", level=1).inner_text() == "gpt3"
    facts = page.locator("#facts").inner_text()
    assert "planned" in facts
    assert "as fast as without a plan" in facts
    assert "12 of 12" in facts
    assert "+3.1\N{NO-BREAK SPACE}% compared with the plan" in facts
    # Every operation, before and now, with words for those who point at it.
    boxes = page.locator("#plan rect:has(title)")
    assert boxes.count() == 2 * 4 * 6 * 2
    assert "MHz" in boxes.last.locator("title").text_content()
    assert page.locator("#frontier svg.wide").is_visible()
    assert page.locator("#ranks tbody tr").count() == 4
    assert page.locator("#clocks tbody tr").count() == 8
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
    expect(page.locator("#pipelines tbody tr").nth(1)).to_contain_text("takes 1.2 times as long")
    expect(page.locator("#events")).to_contain_text("pipeline 1 takes 1.2 times as long")
    expect(page.locator("#facts")).to_contain_text("without stragglers")
    assert page.locator("#pipelines td").nth(1).inner_text() != usual
    api.do(ReportStraggler(job="gpt3", straggler=Straggler(1, healthy=True)))
    page.clock.run_for(6_000)
    expect(page.locator("#facts")).to_contain_text("as fast as without a plan")


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
    ((_, _, said),) = message_facts(Messages({0: 0.02}, block=False))
    assert said == "between stages 0 and 1"
    assert message_facts(Messages({}, block=False)) == []

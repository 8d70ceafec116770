"""The whole round in a real browser: by mouse, by keyboard, on a phone, by day and by night."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest
from tests.arena.processes import ArenaProcess, arena, fake_model
from tests.browser import follow
from tests.server.pages.test_in_browser import DESK, PHONE, contrast, fits, luminance

from zeus.arena._rows import BoardRow, Estimate
from zeus.arena._storage import ArenaStorage
from zeus.store import Store

EVIL = "<img src=x onerror=alert(1)> </div><script>alert(2)</script> &amp; ünïcödé 日本 "


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[ArenaProcess]:
    storage = f"sqlite:///{tmp_path_factory.mktemp('arena')}/arena.db"
    store = Store(storage)
    rows = [
        BoardRow(
            model=f"<b>imported {number}</b>",
            source="import",
            gpu="H100" if number % 2 else "A100",
            task="chat",
            setting=f"batch ≤ {number}",
            energy_per_response=Estimate(100.0 / number),
            energy_per_token=Estimate(1.0 / number),
            tpot=0.01 * number,
            throughput=100.0 * number,
        )
        for number in range(1, 71)
    ]
    ArenaStorage(store).add_rows(rows, 0.0)
    store.close()
    with contextlib.ExitStack() as stack:
        models = {
            "Alpha <1>": stack.enter_context(fake_model(text=EVIL * 3, joules=12.5, tokens=40)),
            "Beta & Co": stack.enter_context(fake_model(words=60, word="b", joules=31.0)),
        }
        yield stack.enter_context(arena(storage, models))


def ask(page, site: ArenaProcess, prompt: str = "Which <b>one</b> is it?") -> None:
    page.goto(f"{site.url}/arena")
    page.get_by_label("Your prompt").fill(prompt)
    follow(page, page.get_by_role("button", name="Ask both"))


def complete(page) -> None:
    page.get_by_role("button", name="A is better").wait_for(state="visible")


def test_a_round_by_mouse(site, open_page):
    page = open_page(site.url, **DESK)
    assert page.url.endswith("/arena")
    ask(page, site)
    assert page.locator(".prompt").inner_text() == "Which <b>one</b> is it?"
    # Nothing tells them apart yet, and there is no vote before both are complete.
    for name in ("Alpha", "Beta"):
        assert name not in page.content()
    complete(page)
    texts = {side: page.locator(f"#{side}-answer").inner_text() for side in ("left", "right")}
    assert sorted(texts.values())[0].startswith("<img src=x onerror=alert(1)>")
    assert fits(page)
    assert page.get_by_text("hidden until your vote").count() == 2
    loud = next(side for side, text in texts.items() if text.startswith("b0"))
    button = "A is better" if loud == "left" else "B is better"
    follow(page, page.get_by_role("button", name=button))
    assert "Was it worth it?" in page.locator("legend").inner_text()
    assert "2.5 times the energy" in page.locator("legend").inner_text()
    assert "31 ±\xa01.6\xa0J" in page.locator(f"#{loud} .energy").inner_text()
    for name in ("Alpha", "Beta"):
        assert name not in page.content()
    follow(page, page.get_by_role("button", name="Yes, worth it"))
    assert "Beta & Co" in page.locator(f"#{loud} h2").inner_text()
    assert page.get_by_role("heading", level=1).inner_text() == "The models"
    page.reload()  # the same again
    assert "Beta & Co" in page.locator(f"#{loud} h2").inner_text()
    follow(page, page.get_by_role("link", name="See the board"))
    assert page.get_by_role("heading", level=1).inner_text() == "Board"


def test_a_round_by_keyboard_only(site, open_page):
    page = open_page(f"{site.url}/arena", **DESK)
    assert page.evaluate("document.activeElement.id") == "prompt"
    page.keyboard.type("By keyboard?\nReally: 1, 2, 3")
    assert page.url.endswith("/arena")  # digits in the prompt vote for nothing
    with page.expect_navigation():
        page.keyboard.press("Control+Enter")
    complete(page)
    with page.expect_navigation():
        page.keyboard.press("4")
    assert page.locator(".badge").count() == 0
    # Focus goes through everything that can be pressed, and answers can be scrolled.
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.value"))
    assert {"left-answer", "right-answer", "none"} <= reached
    with page.expect_navigation():
        page.keyboard.press("1")
    assert page.get_by_text("Alpha <1>").first.is_visible()
    with page.expect_navigation():
        page.keyboard.press("1")
    assert page.url.endswith("/arena")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_round_on_a_phone(site, open_page, scheme):
    page = open_page(site.url, color_scheme=scheme, **PHONE)

    def readable(*selectors: str) -> None:
        assert fits(page), page.url
        bright = luminance(page, "body", "backgroundColor")
        assert bright > 0.8 if scheme == "light" else bright < 0.05
        for selector in selectors:
            assert contrast(page, selector) >= 4.5, selector

    readable("h1", ".rules", "label")
    ask(page, site, "On a phone? " + "long" * 100)
    complete(page)
    left, right = (page.locator(f"#{side}").bounding_box() for side in ("left", "right"))
    assert right["y"] > left["y"] + left["height"]  # one below the other
    readable("h1", ".answer", ".energy", "legend")
    size = page.get_by_role("button", name="Both alike").bounding_box()
    assert size["height"] >= 40  # fingers
    page.get_by_role("button", name="Both alike").tap()
    page.locator("#judge").wait_for()
    readable(".energy strong")
    page.get_by_role("button", name="No, both alike").tap()
    page.locator(".unveiled").wait_for()
    readable(".unveiled", ".model")
    page.goto(f"{site.url}/board")
    readable("h1", "thead a", ".below")


def test_an_interrupted_stream_goes_on(site, browser):
    context = browser.new_context(**DESK)
    page = context.new_page()
    tries = []

    def once(route) -> None:
        tries.append(route.request.url)
        if len(tries) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/stream", once)
    ask(page, site)
    complete(page)
    assert len(tries) == 2
    texts = [page.locator(f"#{side}-answer").inner_text() for side in ("left", "right")]
    assert sum(len(re.findall(r"\bb\d+", text)) for text in texts) == 60
    context.close()


def test_the_board_is_filtered_sorted_and_exported(site, open_page):
    page = open_page(f"{site.url}/board?source=import", **DESK)
    cells = page.locator("#rows tbody th")
    assert cells.count() == 25
    assert cells.first.inner_text().startswith("<b>imported 70</b>")  # least energy per token
    follow(page, page.get_by_role("link", name="Next →"))
    assert cells.first.inner_text().startswith("<b>imported 45</b>")
    follow(page, page.get_by_role("link", name="Time per token"))
    assert cells.first.inner_text().startswith("<b>imported 1</b>")
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Time per token")
    follow(page, page.get_by_role("link", name="Time per token"))
    assert cells.first.inner_text().startswith("<b>imported 70</b>")
    page.get_by_label("Part of a model's name").fill("imported 7")
    page.get_by_label("Gpus").select_option("H100")
    follow(page, page.get_by_role("button", name="Filter"))
    assert cells.all_inner_texts()[0].startswith("<b>imported 7</b>")
    assert cells.count() == 1
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("model,source,gpu,task,setting,responses,energy_per_response,")
    page.goto(f"{site.url}/board?source=import")
    chart = page.locator("#energy-against-latency svg.wide")
    assert chart.locator("circle").count() == 70
    assert page.locator("#energy-against-win-rate").count() == 0
    page.goto(f"{site.url}/board?text=nothing+of+the+kind")
    assert page.get_by_text("No row matches these filters.").is_visible()

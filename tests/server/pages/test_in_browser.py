"""Pages in a real browser: they look right by day, by night and on a phone, and keep up."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from tests.browser import follow
from tests.server.pages.conftest import HOSTILE
from tests.server.pages.world import A40, Life, frontier, spec

from zeus.optimizer.batch_size.api._commands import ListTrials, ReportEpoch, ShowProfiles

PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
DESK = {"viewport": {"width": 1280, "height": 900}}
JOB = "/jobs/nightly-bert"


def fits(page) -> bool:
    """Whether nothing sticks out to the side."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def luminance(page, selector: str, name: str) -> float:
    """How bright a color of an element is, 0 to 1."""
    color = page.eval_on_selector(selector, f"e => getComputedStyle(e).{name}")
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", color)[:3])
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page, selector: str) -> float:
    """Of a text with the page behind it, as WCAG counts it."""
    pair = luminance(page, selector, "color"), luminance(page, "body", "backgroundColor")
    return (max(pair) + 0.05) / (min(pair) + 0.05)


def test_one_job_at_a_desk(site, open_page):
    page = open_page(site.url("/jobs"), **DESK)
    follow(page, page.get_by_role("link", name="nightly-bert"))
    assert page.get_by_role("heading", level=1).inner_text() == "nightly-bert"
    assert page.title() == "nightly-bert · Zeus"
    assert fits(page)

    # Figure 4: a mark for every trial, each with words for those who point at it.
    trials = site.life.jobs.do(ListTrials(job="nightly-bert"))
    chart = page.locator("#choices svg.wide")
    assert chart.is_visible()
    assert not page.locator("#choices svg.narrow").is_visible()
    words = chart.locator("title").all_text_contents()
    assert len(words) == len(trials)
    for trial in trials:
        said = f"recurrence {trial.recurrence}: batch size {trial.batch_size}, "
        assert any(text.startswith(said) for text in words)
    # What is not a circle did not converge.
    others = [t for t in trials if t.state not in ("converged", "expired", "cancelled")]
    assert chart.locator("path:has(title)").count() == len(others) > 1
    legend = page.locator("#choices .legend li").all_inner_texts()
    assert legend[0].strip() == "converged"
    assert "running" in " ".join(legend)

    # Beliefs, frontiers and the default.
    assert page.locator("#costs svg.wide").is_visible()
    assert page.locator("#spending .legend li").count() == 2
    profiles = [p for p in site.life.jobs.do(ShowProfiles(job="nightly-bert")) if p.gpu == A40]
    assert page.locator("#frontiers svg").count() == len(profiles) > 2
    page.locator("#course summary").click()
    assert page.locator("#course tbody tr").count() > 10
    page.locator("#limits-64 summary").click()
    assert page.locator("#limits-64 tbody tr").count() == len(frontier(A40, 64))

    # Another GPU has profiles and costs of its own.
    follow(page, page.get_by_role("link", name="Tesla V100"))
    assert "Tesla V100" in page.locator("#costs .about").inner_text()
    assert page.locator("#frontiers svg").count() < len(profiles)
    follow(page, page.get_by_role("link", name="Earlier →"))
    assert page.locator("#trials tbody th").last.inner_text() == "1"

    # By keyboard: the first stop leads past the navigation.
    page.goto(site.url(JOB))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    # On paper there is nothing to press.
    page.emulate_media(media="print")
    assert not page.locator("header nav").is_visible()
    assert not page.locator("nav.pager").last.is_visible()
    assert page.locator("#choices svg.wide").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_phone_by_day_and_by_night(site, open_page, scheme):
    page = open_page(site.url("/jobs"), color_scheme=scheme, **PHONE)
    for path in ("/jobs", JOB, f"/jobs/{quote(HOSTILE, safe='')}", "/jobs/empty"):
        page.goto(site.url(path))
        assert fits(page), path
        bright = luminance(page, "body", "backgroundColor")
        assert bright > 0.8 if scheme == "light" else bright < 0.05
        for selector in ("h1", ".about", "main a", "dt"):
            if page.locator(selector).count():
                assert contrast(page, selector) >= 4.5, (path, selector)
    page.goto(site.url(JOB))
    assert page.locator("#choices svg.narrow").is_visible()
    assert not page.locator("#choices svg.wide").is_visible()
    size = page.eval_on_selector(
        "#choices svg.narrow text", "e => e.getBoundingClientRect().height"
    )
    assert size > 9  # pixels: letters are not shrunk with the window


def test_names_do_nothing(site, open_page):
    page = open_page(site.url("/jobs"), **DESK)
    dialogs: list[str] = []

    def dismiss(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    follow(page, page.get_by_role("link", name=HOSTILE))
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    assert "onclick" in page.locator("#trials").inner_text()
    assert dialogs == []


def test_the_list_is_filtered_as_one_types(site, open_page):
    page = open_page(site.url("/jobs"), **DESK)
    assert page.locator("#jobs tbody tr").count() >= 3
    page.get_by_role("searchbox").fill("EMPT")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=EMPT*")
    assert page.locator("#jobs tbody th").all_inner_texts() == ["empty"]
    assert page.get_by_role("searchbox").input_value() == "EMPT"
    page.get_by_label("In any state").select_option("running")
    follow(page, page.get_by_role("button", name="Show"))
    assert "No job matches" in page.locator("main").inner_text()


def test_a_page_keeps_up_with_a_trial_that_runs(site, open_page):
    from playwright.sync_api import expect

    jobs = site.life.jobs
    life = Life(jobs, site.life.clock, spec("lively"))
    life.recur(1)
    trial, _ = life.run(most=1)
    page = open_page(site.url("/jobs/empty"), timezone_id="Asia/Tokyo", **DESK)
    page.clock.install()
    page.goto(site.url("/jobs/lively"))
    epochs = page.locator("#running-now td").nth(1)
    expect(epochs).to_have_text("1")
    page.locator("#course summary").click()
    # Instants are told in the reader's own time.
    began = page.locator("#running-now time")
    here = began.inner_text()
    assert int(began.get_attribute("datetime")[11:13]) == (int(here[11:13]) - 9) % 24

    jobs.do(ReportEpoch(trial=trial, epoch=2, time=60.0, energy=9e3, metric=0.7))
    page.clock.run_for(6_000)
    expect(epochs).to_have_text("2")
    # What somebody has unfolded stays so.
    expect(page.locator("#course table")).to_be_visible()
    assert began.inner_text() == here

    jobs.do(ReportEpoch(trial=trial, epoch=3, time=60.0, energy=9e3, metric=0.95))
    page.clock.run_for(6_000)
    expect(page.locator("#facts")).to_contain_text("chosen next")
    assert page.locator("main").get_attribute("data-refresh") is None


def test_signing_in_and_out(guarded, open_page):
    page = open_page(f"{guarded.server.url}/jobs/mine", **PHONE)
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in"
    assert fits(page)
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type(guarded.one_job)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/mine")
    assert page.get_by_role("heading", level=1).inner_text() == "mine"
    assert page.evaluate("document.cookie") == ""  # scripts do not see it
    assert fits(page)
    follow(page, page.get_by_role("button", name="Sign out"))
    page.wait_for_url("**/sign-in")
    page.goto(f"{guarded.server.url}/jobs/mine")
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in"


CHARTS = ("#choices", "#costs", "#spending", "#frontiers")


@pytest.mark.parametrize("chart", CHARTS)
def test_pointing_at_a_chart_shows_its_values(site, open_page, chart):
    page = open_page(site.url(JOB), **DESK)
    drawing = page.locator(f"{chart} svg[role=img]").first
    words = drawing.locator("title").all_text_contents()
    assert words
    drawing.scroll_into_view_if_needed()
    target = drawing.locator(":has(> title)").last
    target.hover(force=True)
    tip = page.locator(".tip")
    assert tip.is_visible()
    assert tip.inner_text() in words
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_keys_go_from_value_to_value_of_a_chart(site, open_page):
    page = open_page(site.url(f"{JOB}/trials/5"), **DESK)
    chart = page.locator("#curve svg.wide")
    words = chart.locator("title").all_text_contents()
    assert len(words) > 3
    chart.focus()
    tip = page.locator(".tip")

    def press(key: str) -> int:
        """Press a key; the number of the value in the chart that is shown then."""
        page.keyboard.press(key)
        values = "[...chart.querySelectorAll('[data-tip]')]"
        lit = chart.evaluate(f"chart => {values}.flatMap((v, n) => v.matches('.lit') ? [n] : [])")
        assert len(lit) == 1  # two values may have the same text, so the text does not tell which
        assert tip.inner_text() == words[lit[0]]
        return lit[0]

    seen = [press("ArrowRight") for _ in words]
    assert sorted(seen) == list(range(len(words)))  # each value once
    assert [press("ArrowLeft") for _ in words[1:]] == seen[-2::-1]
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_finger_on_a_chart_shows_its_values(site, open_page):
    page = open_page(site.url(f"{JOB}/trials/5?with=2"), **PHONE)
    assert fits(page)
    chart = page.locator("#energy svg.narrow")
    chart.scroll_into_view_if_needed()
    box = chart.locator(":has(> title)").last.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert "epoch" in page.locator(".tip").inner_text()


def test_two_jobs_are_picked_from_a_page(site, open_page):
    page = open_page(site.url("/jobs/empty"), **DESK)
    page.get_by_label("Name of another job").fill("nightly-bert")
    follow(page, page.get_by_role("button", name="Compare"))
    assert page.url.endswith("/jobs/empty/compare/nightly-bert")
    assert fits(page)

"""The page in a real browser: the slider, the details, by day and night, on desks and phones."""

from __future__ import annotations

import json
import random
import re

import pytest

from zeus.errors import FrontierError
from zeus.frontier import Deadline, Energy, Frontier, Point, Time, ZeusCost

SWEEP = Frontier(
    [
        Point(250, 3515, 774_000, 20, 3000),
        Point(225, 3580, 720_000, 20, 3000),
        Point(200, 3660, 684_000),
        Point(175, 3852, 641_000),
        Point(150, 4149, 600_000),
        Point(100, 6781, 667_000),
    ],
    "one epoch of <ImageNet> & more",
    knob_name="power limit",
    knob_unit="W",
    max_power=250,
)
CHOSEN = {
    "Energy": Energy().select(SWEEP),
    "Time": Time().select(SWEEP),
    "Deadline 3000 s": Deadline(3000).select(SWEEP),
}
DESK = {"width": 1000, "height": 800}
PHONE = {"width": 360, "height": 740}


@pytest.fixture
def page_of(tmp_path, open_page):
    """Write the page of a frontier, and open it."""

    def make(frontier, viewport=DESK, scheme="light", touch=False, **options):
        path = tmp_path / "frontier.html"
        path.write_text(frontier.to_html(**options), encoding="utf-8")
        return open_page(
            path,
            viewport=viewport,
            color_scheme=scheme,
            has_touch=touch,
            reduced_motion="reduce",
        )

    return make


SLIDE = """(slider, values) => values.map((value) => {
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
  return document.getElementById("choice").textContent;
})"""


def slide(page, *etas):
    """What is said at each of these places of the slider."""
    return page.locator("#eta").evaluate(SLIDE, [f"{eta:.2f}" for eta in etas])


def chosen_knob(page):
    """What the visible plot, the text and the table agree on."""
    labels = page.locator("figure > svg:visible .mark.chosen")
    assert labels.count() == 1
    knob = labels.get_attribute("aria-label").partition(":")[0]
    assert page.locator("#choice strong").text_content() == knob
    rows = page.locator("#points tr.chosen")
    assert rows.count() == 1
    assert rows.get_attribute("aria-current") == "true"
    assert knob.startswith(rows.locator("th").text_content())
    return knob


def box_of_chosen(page):
    return page.locator("figure > svg:visible .mark.chosen .dot").bounding_box()


# --- the slider ---------------------------------------------------------------------------------


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_moving_the_slider_moves_the_choice(page_of, viewport, scheme):
    page = page_of(SWEEP, viewport, scheme, chosen=CHOSEN)
    places = set()
    for eta in (0.0, 0.3, 0.5, 1.0):
        slide(page, eta)
        expected = ZeusCost(eta).select(SWEEP).point
        assert chosen_knob(page) == f"{expected.knob} W"
        box = box_of_chosen(page)
        places.add((box["x"], box["y"]))
        assert page.locator("#eta-value").text_content() == f"{eta:.2f}"
    assert len(places) > 1
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_it_can_be_moved_by_keys_and_says_what_that_does(page_of):
    page = page_of(SWEEP, eta_knob=0.5)
    slider = page.get_by_label("η, the weight of energy against time")
    assert slider.get_attribute("aria-valuetext") == "0.50, chooses 200 W"
    slider.focus()
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext") == "1.00, chooses 150 W"
    assert page.locator("#choice").text_content() == (
        "150 W: 18.0 % slower, 22.5 % less energy than 250 W. Cost 600.0 kJ."
    )
    page.keyboard.press("Home")
    assert chosen_knob(page) == "250 W"
    assert "Cost 878.8 kJ" in page.locator("#choice").text_content()


def test_it_starts_where_it_is_told(page_of):
    assert page_of(SWEEP, eta_knob=1.0).locator("#eta").input_value() == "1"
    with pytest.raises(FrontierError, match="`0 <= eta_knob <= 1` must hold, but got eta_knob=2"):
        SWEEP.to_html(eta_knob=2)


def noisy_frontier(random_numbers):
    count = random_numbers.randrange(1, 9)

    def uncertainty(value):
        return random_numbers.choice([None, 0.0, value * random_numbers.uniform(0, 0.1)])

    # Narrow ranges, so that some costs come near enough to each other to tie.
    points = []
    spread = random_numbers.choice([0.001, 0.5])
    for knob in range(count):
        time = 12 * (1 + random_numbers.uniform(-0.2, 0.2) * spread)
        energy = 2000 * (1 + random_numbers.uniform(-0.4, 0.4) * spread)
        points.append(Point(knob, time, energy, uncertainty(time), uncertainty(energy)))
    return Frontier(points, max_power=random_numbers.uniform(200, 300))


def test_it_chooses_as_the_objective_does(page_of):
    """Also where costs tie within their uncertainty."""
    random_numbers = random.Random(23)
    page = page_of(SWEEP)
    ties = 0
    for _ in range(25):
        frontier = noisy_frontier(random_numbers)
        page.set_content(frontier.to_html())
        etas = (0, 0.13, 0.37, 0.5, 0.77, 1)
        for eta, said in zip(etas, slide(page, *etas), strict=True):
            selection = ZeusCost(eta).select(frontier)
            assert said.partition(":")[0] == str(selection.point.knob), (frontier, eta)
            assert ("a tie with" in said) == selection.tie
            ties += selection.tie
    assert 10 < ties < 140


def test_without_a_maximum_power_there_is_no_slider_but_a_reason(page_of):
    page = page_of(Frontier(SWEEP), chosen={"Energy": SWEEP.at(150)})
    assert page.locator("#eta").count() == 0
    assert page.get_by_text("There is no slider over η: ZeusCost needs").count() == 1
    assert page.get_by_role("heading", name="Choices of objectives").count() == 1
    page.locator("svg.wide .mark").first.hover()
    assert page.locator("#details").is_visible()


# --- details ------------------------------------------------------------------------------------


def test_pointing_at_a_point_tells_about_it(page_of):
    page = page_of(SWEEP, chosen=CHOSEN)
    details = page.locator("#details")
    assert details.is_hidden()
    page.locator('svg.wide .mark[aria-label^="150 W"] .dot').hover()
    assert details.locator("strong").text_content() == "150 W"
    assert details.locator("span").all_text_contents() == [
        "69.15 min (+18.0 %)",
        "600 kJ (-22.5 %)",
        "144.6 W on average",
        "chosen by Energy",
    ]
    page.locator("h1").hover()
    assert details.is_hidden()


def test_touching_near_a_point_is_enough_and_the_details_stay_on_the_screen(page_of):
    page = page_of(SWEEP, PHONE, touch=True)
    for knob in (250, 100):
        dot = page.locator(f'svg.narrow .mark[aria-label^="{knob} W"] .dot').bounding_box()
        page.touchscreen.tap(dot["x"] + 12, dot["y"] + 10)
        assert page.locator("#details strong").text_content() == f"{knob} W"
        box = page.locator("#details").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    page.locator("h1").tap()
    assert page.locator("#details").is_hidden()


def test_arrow_keys_go_from_point_to_point(page_of):
    page = page_of(SWEEP)
    page.locator("#eta").focus()
    page.keyboard.press("Tab")
    told = page.locator("#details strong")
    seen = [told.text_content()]
    for _ in range(7):
        page.keyboard.press("ArrowRight")
        seen.append(told.text_content())
    assert seen == ["250 W", "225 W", "200 W", "175 W", "150 W", "100 W", "100 W", "100 W"]
    page.keyboard.press("ArrowLeft")
    assert told.text_content() == "150 W"
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()


def test_the_tables_tell_the_rest(page_of):
    page = page_of(SWEEP, chosen=CHOSEN, reference=SWEEP.at(225))
    assert "Changes are against 225 W" in page.locator(".summary").text_content()
    rows = page.locator("#objectives tbody tr")
    cells = [" ".join(rows.nth(at).inner_text().split()) for at in range(rows.count())]
    assert cells == [
        "Energy 150 W +15.9 % -16.7 %",
        "Time 250 W -1.8 % +7.5 %",
        "Deadline 3000 s (not kept) "
        "no point takes 3000 s or less; the fastest takes 3515 s 250 W -1.8 % +7.5 %",
    ]
    assert page.locator("#points tbody tr").count() == 6


# --- what must always hold ----------------------------------------------------------------------


def luminance(color):
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(page_of, scheme):
    """Contrast of text as WCAG asks for: 4.5; of what is drawn: 3."""
    page = page_of(SWEEP, scheme=scheme, chosen=CHOSEN)
    look = "all => all.map((one) => [getComputedStyle(one).color, getComputedStyle(one).fill])"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")

    def contrast(color):
        low, high = sorted((luminance(color), luminance(paper)))
        return (high + 0.05) / (low + 0.05)

    assert (luminance(paper) > 0.9) == (scheme == "light")
    for text in ("h1", ".summary", ".note", "#points td", "#points th", "#choice strong"):
        for color, _ in page.locator(text).evaluate_all(look):
            assert contrast(color) >= 4.5, text
    for drawn, least in (("text", 4.5), (".mark.best .dot", 3), (".mark.chosen .dot", 3)):
        for _, fill in page.locator(f"svg.wide {drawn}").evaluate_all(look):
            assert contrast(fill) >= least, drawn


def overlapping(boxes):
    return [
        (a, b)
        for index, a in enumerate(boxes)
        for b in boxes[:index]
        # Boxes have the halo in them, and are higher than letters.
        if a["x"] + 2 < b["x"] + b["width"] - 2
        and b["x"] + 2 < a["x"] + a["width"] - 2
        and a["y"] + 4 < b["y"] + b["height"] - 4
        and b["y"] + 4 < a["y"] + a["height"] - 4
    ]


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_texts_on_the_plot_do_not_overlap_and_are_not_cut_off(page_of, viewport):
    page = page_of(SWEEP, viewport, chosen=CHOSEN)
    for eta in (0, 0.5, 1):
        slide(page, eta)
        texts = page.locator("figure > svg:visible text:visible")
        boxes = texts.evaluate_all("texts => texts.map((text) => text.getBoundingClientRect())")
        assert overlapping(boxes) == []
        assert len(boxes) > 15
        frame = page.locator("figure > svg:visible").bounding_box()
        for box in boxes:
            assert frame["x"] - 1 <= box["x"]
            assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1


def test_a_choice_without_a_label_of_its_own_gets_one(page_of):
    many = Frontier([Point(n, 100 + n, 1e6 / (100 + n)) for n in range(300)], max_power=70)
    page = page_of(many)
    slide(page, 0.5)
    knob = ZeusCost(0.5).select(many).point.knob
    assert 0 < knob < 299
    assert page.locator("svg.wide .floating").text_content() == str(knob)
    assert page.locator("details").count() == 1  # the long table is folded
    slide(page, 1)
    assert page.locator("svg.wide .floating").count() == 0


def test_far_points_are_in_the_table_but_not_on_the_plot(page_of):
    page = page_of(SWEEP.with_points([*SWEEP, Point(50, 90_000, 9e6)]))
    assert page.locator("svg.wide .mark").count() == 6
    assert page.locator("#points tbody tr").count() == 7
    assert page.get_by_text("dominated (2, 1 of them off the plot)").count() == 1


def test_a_choice_between_the_points_is_drawn(page_of):
    page = page_of(SWEEP, chosen={"Mine": SWEEP.between(160)})
    assert page.locator("svg.wide .mark.picked").get_attribute("aria-label").startswith("160 W")
    slide(page, 1)
    assert chosen_knob(page) == "150 W"  # the slider chooses what was measured


def test_names_cannot_break_out(page_of):
    evil = "</script><script>window.broken = 1</script><img src=x onerror=alert(1)>{{data}}\x00"
    frontier = Frontier(
        [Point(evil, 1, 2), Point("b", 2, 1)], evil, knob_name=evil, knob_unit=evil, max_power=3
    )
    page = page_of(frontier, chosen={evil: frontier.points[0]}, title=evil)
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.locator("h1").text_content() == evil[:-1]
    assert page.title() == evil[:-1]


def test_it_is_one_file_without_network():
    html = SWEEP.to_html(chosen=CHOSEN)
    assert "default-src 'none'" in html
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert not re.search(r"https?://(?!www\.w3\.org/)", html)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert len(json.loads(data[1])["points"]) == 6

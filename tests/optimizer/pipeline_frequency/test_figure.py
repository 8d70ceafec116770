"""Pictures say what the plan does, to scale."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tests.present import present

from zeus.drawing._files import rendered
from zeus.drawing._shapes import Bar, Path
from zeus.drawing._svg import svg
from zeus.optimizer.pipeline_frequency import build, solve
from zeus.optimizer.pipeline_frequency._figure import Others, draw

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def pipeline(profile):
    return build(
        profile, "1f1b", 4, 80.0, communication=0.01, data_loading=0.02, name="<three> & co"
    )


@pytest.fixture
def solution(pipeline):
    return solve(pipeline, 30)


def boxes(document):
    """Place and length of what has a tooltip, by its words."""
    found: dict[str, list] = {}
    for rect in ElementTree.fromstring(document).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            place = float(rect.attrib["x"]), float(rect.attrib["width"])
            found.setdefault(present(title.text), []).append(place)
    return found


def test_the_pipeline_is_drawn_to_scale_before_and_after(pipeline, solution):
    before, plan = pipeline.at_highest_frequency(), solution.plans[-1]
    document = svg(draw(before, plan, solution))
    assert "<three>" not in document
    assert "&lt;three&gt; &amp; co" in document
    drawn = [box for places in boxes(document).values() for box in places]
    on_ranks = [op for op in pipeline.operations if op.device is not None]
    assert len(drawn) == 2 * len(on_ranks)
    # Widths and places are proportional to seconds, in both panels alike.
    longest = max(before.time, plan.time)
    scale = (1200 - 84 - 36) / longest
    for words, places in boxes(document).items():
        start, end = map(float, present(re.search(r": ([\d.]+) to ([\d.]+) ms", words)).groups())
        for x, width in places:
            assert x == pytest.approx(84 + start / 1e3 * scale, abs=0.1)
            assert width == pytest.approx((end - start) / 1e3 * scale, abs=0.2)


def test_colors_tell_power(pipeline, solution):
    before, plan = pipeline.at_highest_frequency(), solution.plans[-1]
    shapes = draw(before, plan, solution).shapes
    fills: dict[int, set] = {}
    for shape in shapes:
        if isinstance(shape, Bar) and "MHz" in shape.tooltip:
            watts = int(present(re.search(r"(\d+) W$", shape.tooltip))[1])
            fills.setdefault(watts, set()).add(shape.fill)
    hottest = fills[max(fills)]
    assert hottest == {"#7a1450"}
    assert len(fills) > 1
    assert all(len(colors) <= 2 for colors in fills.values())


def test_the_frontier_is_drawn_with_what_it_is_compared_with(pipeline, solution):
    before, plan = pipeline.at_highest_frequency(), solution.plans[0]
    places = [(1.01 * point.time, 1.1 * point.energy) for point in solution.frontier]
    plain = draw(before, plan, solution)
    compared = draw(before, plan, solution, Others("theirs", places))
    lines = [
        [shape for shape in picture.shapes if isinstance(shape, Path) and shape.color == "other"]
        for picture in (plain, compared)
    ]
    assert list(map(len, lines)) == [0, 2]  # its entry in the legend, and itself
    assert len(lines[1][1].corners) == len(places)
    text = svg(compared)
    assert ">theirs<" in text
    assert ">theirs<" not in svg(plain)
    assert "proven lower bound" in text
    assert f"plans ({len(solution.plans)})" in text


def test_a_single_plan_can_be_drawn(profile):
    lonely = build(profile, "gpipe", 1, 1e6)  # waiting is so dear that only the fastest will do
    solution = solve(lonely)
    document = svg(draw(lonely.at_highest_frequency(), solution.plans[0], solution))
    ElementTree.fromstring(document)
    assert "nan" not in document


def test_png(pipeline, solution):
    pytest.importorskip("matplotlib")
    drawing = draw(pipeline.at_highest_frequency(), solution.plans[0], solution)
    image = rendered(lambda _: drawing, ".png")
    assert image.startswith(b"\x89PNG\r\n")
    width, height = (int.from_bytes(image[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (2 * drawing.width, 2 * drawing.height)

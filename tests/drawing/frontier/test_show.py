"""Tables and plots for people."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontier.strategies import frontiers, joules, seconds, settings_of_a_knob

from zeus.errors import PictureError
from zeus.frontier import Deadline, Energy, Frontier, Point, Selection

SWEEP = Frontier(
    [
        Point(250, 3515, 774_000, 20, 9000),
        Point(175, 3852, 641_000),
        Point(150, 4149, 600_000),
        Point(100, 6781, 667_000),
    ],
    "one epoch of <ImageNet> & more",
    knob_name="power limit",
    knob_unit="W",
)


def test_text_table():
    assert str(SWEEP).splitlines() == [
        "one epoch of <ImageNet> & more: 4 points, 3 on the frontier",
        "power limit (W)    time (min)  energy (kJ)  power (W)   Δ time  Δ energy",
        "            250  58.59 ± 0.33    774.0 ± 9      220.2   +0.0 %    +0.0 %  *",
        "            175         64.20        641.0      166.4   +9.6 %   -17.2 %  *",
        "            150         69.15        600.0      144.6  +18.0 %   -22.5 %  *",
        "            100        113.02        667.0       98.4  +92.9 %   -13.8 %",
    ]


def test_latencies_have_columns_of_their_own():
    points = [Point(1410, 40, 7000, latencies={"p99": 0.1165, "p50": 0.04}), Point(1005, 41, 5000)]
    assert str(Frontier(points, "requests")).splitlines()[1:] == [
        "knob  time (s)  energy (kJ)  power (W)  Δ time  Δ energy  p99 (ms)  p50 (ms)",
        "1410     40.00        7.000      175.0  +0.0 %    +0.0 %    116.50     40.00  *",
        "1005     41.00        5.000      122.0  +2.5 %   -28.6 %         -         -  *",
    ]


def test_rich_table():
    table = pytest.importorskip("rich.table")
    rendered = SWEEP.__rich__()
    assert isinstance(rendered, table.Table)
    assert rendered.row_count == 4


@given(frontiers)
def test_every_frontier_has_a_table(frontier):
    assert len(str(frontier).splitlines()) == len(frontier) + 2


def elements(svg, tag):
    return list(ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def texts(svg):
    return ["".join(element.itertext()) for element in elements(svg, "text")]


def test_plot_says_what_it_shows():
    svg = SWEEP.to_svg(chosen=Energy().select(SWEEP))
    said = texts(svg)
    assert said[0] == "one epoch of <ImageNet> & more"
    assert said[1] == "Chosen: 150 W, 18.0 % slower, 22.5 % less energy than 250 W"
    legend = {"on the frontier (3)", "dominated (1)", "chosen"}
    assert {"time (min)", "energy (kJ)", *legend} <= set(said)
    assert {"250 W", "175 W", "150 W", "100 W"} <= set(said)
    (line,) = elements(svg, "polyline")
    assert len(line.attrib["points"].split()) == 3
    tooltips = [element.text for element in elements(svg, "title")]
    assert "250 W: 58.58 ± 0.33 min, 774 ± 9 kJ, 220.2 W" in tooltips
    assert svg == SWEEP.to_svg(chosen=SWEEP.at(150))


def test_plot_without_a_choice():
    said = texts(SWEEP.to_svg(title="Mine"))
    assert said[:2] == ["Mine", "Energy over time, by power limit"]
    assert "chosen" not in said
    assert SWEEP._repr_svg_() == SWEEP.to_svg()


def test_choosing_the_fastest_and_what_is_not_among_the_points():
    assert "Chosen: 250 W, the fastest" in texts(SWEEP.to_svg(chosen=SWEEP.fastest))
    said = texts(SWEEP.to_svg(chosen=SWEEP.between(125)))
    assert "125 W" in said


def test_marks_are_inside_and_labels_do_not_overlap():
    many = Frontier([Point(n, 10 + n, 1000 - 3 * n + n * n / 20) for n in range(60)])
    for frontier in (SWEEP, many):
        svg = frontier.to_svg(chosen=frontier.points[1])
        for circle in elements(svg, "circle"):
            assert 76 <= float(circle.attrib["cx"]) <= 732
            assert 0 <= float(circle.attrib["cy"]) <= 418
        boxes = []
        for label in elements(svg, "text"):
            if label.attrib.get("font-size") == "12" and "(" not in (label.text or ""):
                width = 6 * len(label.text)
                shift = {"middle": width / 2, "end": width}.get(label.attrib.get("text-anchor"), 0)
                left, bottom = float(label.attrib["x"]) - shift, float(label.attrib["y"])
                boxes.append((left, left + width, bottom - 12, bottom))
        for index, a in enumerate(boxes):
            for b in boxes[:index]:
                assert a[0] >= b[1] or b[0] >= a[1] or a[2] >= b[3] or b[2] >= a[3]


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            Point,
            settings_of_a_knob,
            st.one_of(seconds, st.floats(1e-300, 1e300)),
            st.one_of(joules, st.floats(0, 1e300)),
        ),
        min_size=1,
        max_size=6,
    ),
    st.text(max_size=100),
)
def test_every_frontier_has_a_plot(points, work):
    frontier = Frontier(points, work)
    svg = frontier.to_svg(chosen=frontier.least_energy)
    assert elements(svg, "circle")
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<t(ext|itle).*?</t", "", svg))
    svg.encode()


def test_thousands_of_points_can_be_plotted():
    frontier = Frontier([Point(n, 100 + n, 1e6 / (100 + n)) for n in range(3000)])
    assert len(elements(frontier.to_svg(), "circle")) == 3001


def test_plot_into_a_file(tmp_path):
    path = tmp_path / "frontier.svg"
    SWEEP.plot(path)
    assert path.read_text(encoding="utf-8") == SWEEP.to_svg()
    with pytest.raises(PictureError, match=r"one of '\.svg', '\.png', '\.html', but got '.*pdf'"):
        SWEEP.plot(tmp_path / "frontier.pdf")


# --- several choices ----------------------------------------------------------------------------


def test_each_choice_is_named():
    chosen: dict[str, Selection | Point] = {
        "Energy": Energy().select(SWEEP),
        "Budget": SWEEP.at(150),
        "Deadline": Deadline(60).select(SWEEP),
    }
    said = texts(SWEEP.to_svg(chosen=chosen))
    assert said[1] == "Energy over time, by power limit"
    assert said[said.index("150 W") + 1] == "Energy, Budget"
    assert said[said.index("250 W") + 1] == "Deadline (not kept)"


def test_a_choice_is_compared_with_the_reference():
    said = texts(SWEEP.to_svg(chosen=SWEEP.at(175), reference=SWEEP.at(150)))
    assert said[1] == "Chosen: 175 W, 7.2 % faster, 6.8 % more energy than 150 W"
    said = texts(SWEEP.to_svg(chosen=SWEEP.at(150), reference=SWEEP.at(150)))
    assert said[1] == "Chosen: 150 W"


def test_a_choice_in_a_crowd_is_named_at_the_end_of_a_line():
    crowd = [Point(n, 10 + n % 5, 100 + n // 5) for n in range(25)]
    frontier = Frontier([*crowd, Point(99, 9.9, 90), Point(98, 9.5, 130)])
    said = texts(frontier.to_svg(chosen={"a rather long name": frontier.at(2)}))
    assert said[said.index("2") + 1] == "a rather long name"


# --- what is far off, and what is crowded -------------------------------------------------------


def test_what_is_beaten_by_far_does_not_squeeze_the_frontier():
    frontier = SWEEP.with_points([*SWEEP, Point(50, 20_000, 700_000), Point(25, 4000, 9e6)])
    svg = frontier.to_svg()
    assert "dominated (3, 2 of them off the plot)" in texts(svg)
    assert len(elements(svg, "circle")) == 4 + 2  # and two in the legend
    for chosen, reference in ((frontier.at(50), None), (None, frontier.at(50))):
        said = texts(frontier.to_svg(chosen=chosen, reference=reference))
        assert "50 W" in said
        assert "25 W" not in said


def test_many_marks_do_not_wipe_out_the_line():
    def radii(count):
        frontier = Frontier([Point(n, 100 + n, 1e6 / (100 + n)) for n in range(count)])
        _, *marks = elements(frontier.to_svg(), "circle")  # the first is the legend's
        return {(mark.attrib["r"], mark.attrib.get("stroke")) for mark in marks}

    assert radii(40) == {("4.5", "#ffffff")}
    assert radii(41) == {("2", None)}


def test_a_long_title_is_set_smaller_and_then_cut():
    def title(text):
        return elements(SWEEP.to_svg(title=text), "text")[0]

    assert title("x" * 40).attrib["font-size"] == "17"
    assert 12.5 < float(title("x" * 70).attrib["font-size"]) < 17
    assert title("x" * 70).text == "x" * 70
    assert title("x" * 700).text.endswith("x…")

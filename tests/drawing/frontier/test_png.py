"""The PNG shows what the SVG shows."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from tests.drawing.frontier.test_show import SWEEP

from zeus.drawing._colors import DAY, parts
from zeus.drawing._shapes import Mark, Text
from zeus.drawing.frontier import lay_out
from zeus.frontier import Frontier, Point

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")

CHOSEN = {"Energy": SWEEP.at(150), "Time": SWEEP.at(250)}


def image_of(frontier, tmp_path, **options):
    path = tmp_path / "frontier.png"
    frontier.plot(path, **options)
    return Image.open(io.BytesIO(path.read_bytes())).convert("RGB")


def color(name):
    return parts(DAY[name])


def test_each_mark_is_where_the_svg_has_it(tmp_path):
    image = image_of(SWEEP, tmp_path, chosen=CHOSEN)
    assert image.size == (1520, 960)
    marks = [shape for shape in lay_out(SWEEP, CHOSEN, "").shapes if isinstance(shape, Mark)]
    found = [
        (mark.kind, mark.about.knob, image.getpixel((round(2 * mark.x), round(2 * mark.y))))
        for mark in marks
        if isinstance(mark.about, Point)
    ]
    assert found == [
        ("other", 100, color("paper")),  # hollow
        ("best", 175, color("line")),
        ("chosen", 150, color("chosen")),
        ("chosen", 250, color("chosen")),
    ]


def test_each_text_is_drawn_and_stays_on_the_sheet(tmp_path):
    image = image_of(SWEEP, tmp_path, chosen=CHOSEN, title="W" * 200)
    white = Image.new("RGB", image.size, color("paper"))
    left, top, right, bottom = _difference(image, white)
    assert 20 < left < 60
    assert 20 < top < 60
    assert right <= 2 * (760 - 28) + 12  # a tick's label may stick out by half
    assert bottom < 960 - 20
    for text in (shape for shape in lay_out(SWEEP, CHOSEN, "").shapes if isinstance(shape, Text)):
        if not text.rotated and text.about is None and text.size < 12:  # ticks
            x, y = 2 * text.x, 2 * text.y
            area = image.crop((round(x - 24), round(y - 14), round(x + 24), round(y)))
            assert min(low for low, _ in area.getextrema()) < 150, text


def _difference(image, other):
    from PIL import ImageChops

    return ImageChops.difference(image, other).getbbox()


def test_odd_texts_are_taken_as_they_are(tmp_path):
    odd = Frontier(
        [Point("$\\frac{1}{0}$ \x00\n漢字", 1, 2), Point("%s{}", 2, 1)], "漢字 $x^$ \ud800"
    )
    assert image_of(odd, tmp_path, chosen=odd.points[0]).size == (1520, 960)


def test_it_says_what_it_is_to_those_who_cannot_see(tmp_path):
    SWEEP.plot(tmp_path / "frontier.png")
    with Image.open(tmp_path / "frontier.png") as image:
        assert image.text["Title"] == (
            "one epoch of <ImageNet> & more: energy over time by power limit"
        )


def test_without_matplotlib_the_cure_is_named(tmp_path):
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from zeus.frontier import Frontier, Point\n"
        "frontier = Frontier([Point(1, 1, 1)])\n"
        "frontier.plot('a.svg'); frontier.plot('a.html'); frontier.plot('a.png')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert re.search(r"MissingExtraError: .*pip install 'zeus-energy\[plot\]'", done.stderr)
    assert {path.name for path in tmp_path.iterdir() if path.name[0] == "a"} == {"a.svg", "a.html"}


def test_nothing_of_it_is_imported_before_it_is_needed():
    script = (
        "import sys; from zeus.frontier import Frontier, Point\n"
        "Frontier([Point(1, 1, 1)]).to_html()\n"
        "print([name for name in ('matplotlib', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

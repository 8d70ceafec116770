"""Colors: told apart by everybody, readable by day and by night."""

from __future__ import annotations

from itertools import combinations

import pytest

from zeus.drawing import _colors as colors
from zeus.drawing._colors import DAY, NIGHT, contrast, readable_on, shade, style_sheet

# How linear light is seen by those who lack one kind of cone (Machado, Oliveira, Fernandes 2009).
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red cones": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green cones": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue cones": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
ROWS = (colors.BLUE, colors.ORANGE, colors.GREEN, colors.AMBER, colors.PURPLE, colors.SKY)


def linear(color):
    shares = [part / 255 for part in colors.parts(color)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]


def lab(light):
    """Linear red, green and blue as CIELAB, in which distances are what people see."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        sum(a * c for a, c in zip(row, light, strict=True)) / whole
        for row, whole in zip(matrix, white, strict=True)
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one, two, vision):
    seen = []
    for color in (one, two):
        light = linear(color)
        mixed = (sum(a * c for a, c in zip(row, light, strict=True)) for row in vision)
        seen.append(lab([min(max(c, 0.0), 1.0) for c in mixed]))
    return sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


@pytest.mark.parametrize("vision", VISION)
def test_things_side_by_side_are_told_apart_with_any_color_vision(vision):
    near = {
        (one, two): round(distance(one, two, VISION[vision]))
        for one, two in combinations(ROWS, 2)
        if distance(one, two, VISION[vision]) < 15
    }
    assert near == {}
    for table in (DAY, NIGHT):
        assert distance(table["line"], table["chosen"], VISION[vision]) > 40


@pytest.mark.parametrize("table", [DAY, NIGHT], ids=["day", "night"])
def test_texts_and_lines_stand_out(table):
    assert table.keys() == DAY.keys()
    for role in ("ink", "muted", "line", "chosen"):
        assert contrast(table[role], table["paper"]) >= 4.5, role  # as texts need it
    assert contrast(table["other"], table["paper"]) >= 3  # as marks need it


def test_amounts_also_differ_in_brightness():
    brightness = [lab(linear(shade(step / 20)))[0] for step in range(21)]
    assert brightness == sorted(brightness, reverse=True)
    assert brightness[0] - brightness[-1] > 60
    for step in range(21):
        assert contrast(readable_on(shade(step / 20)), shade(step / 20)) >= 4


def test_contrast():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == contrast("#ffffff", "#777777")
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_shades():
    greys = ("#000000", "#808080", "#ffffff")
    found = [shade(share, greys) for share in (-1, 0, 0.5, 1, 2)]
    assert found == ["#000000", "#000000", "#808080", "#ffffff", "#ffffff"]
    assert readable_on("#000000") == DAY["paper"]
    assert readable_on("#ffffff") == DAY["ink"]


def test_pages_have_the_same_colors_as_paper_by_day():
    day, night = style_sheet().split("@media")
    assert all(f"--{role}: {color};" in day for role, color in DAY.items())
    assert all(f"--{role}: {color};" in night for role, color in NIGHT.items())

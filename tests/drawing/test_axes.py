"""Sides of plots, and shapes of all kinds, as SVG and as PNG."""

from __future__ import annotations

import re

import pytest

from zeus.drawing._axes import Axis, LogAxis, Steps, axes, round_values
from zeus.drawing._looks import LOOKS
from zeus.drawing._png import png
from zeus.drawing._shapes import Bar, Frame, Mark, Path, Picture
from zeus.drawing._svg import svg
from zeus.drawing._units import Unit

ONE = Unit("", 1.0)
FRAME = Frame(300, 200, 60, 20, 20, 60, (8, 6))


def picture(*shapes):
    return Picture("", FRAME.width, FRAME.height, shapes)


@pytest.mark.parametrize(
    ("high", "labels"),
    [(2.7, "0 1 2"), (4.7, "0 1 2 3 4"), (12.0, "0 2 4 6 8 10 12"), (25.0, "0 5 10 15 20 25")],
)
def test_whole_numbers_are_labelled_by_whole_numbers(high, labels):
    ticks = Axis(ONE, 0.0, high, 0.0, 100.0, whole=True).ticks(6)
    assert " ".join(label for _, label in ticks) == labels
    assert [place for place, _ in ticks] == sorted(place for place, _ in ticks)


def test_round_values():
    labels = [label for _, label in round_values(0, 1, 5)]
    assert labels == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert round_values(3.0, 3.0, 5) == [(3.0, "3")]


def test_steps_are_evenly_spaced_and_thinned_out_where_there_are_many():
    row = Steps(["8", "16", "32", "64"], 100.0, 0.0)
    assert row.ticks(9) == [(87.5, "8"), (62.5, "16"), (37.5, "32"), (12.5, "64")]
    assert [label for _, label in row.ticks(2)] == ["8", "32"]
    assert len(Steps([str(size) for size in range(256)], 0.0, 300.0).ticks(10)) <= 10


def test_kinds_of_marks_are_told_apart_without_colors():
    def outline(kind):
        drawn = svg(picture(Mark(50.0, 50.0, 5.0, kind)))
        shapes = re.findall(r'<(?:circle|path)[^>]*(?: r| d)="([^"]+)"', drawn)
        fill = re.findall(r'fill="([^"]+)"', drawn)[-1] == "#ffffff"
        return tuple(shapes), fill

    assert len({outline(kind) for kind in LOOKS}) == len(LOOKS)


def test_every_shape_is_drawn_as_an_image_too():
    pytest.importorskip("matplotlib")
    x, y = Axis(ONE, 0.0, 9.0, 60.0, 280.0), Steps(["a", "b"], 140.0, 20.0)
    plain = tuple(axes(FRAME, x, y, "x", "y"))
    others = (
        *(Mark(100.0, 100.0, 6.0, kind) for kind in LOOKS),
        Path(((90.0, 90.0), (200.0, 130.0)), "ink"),
        Path(((90.0, 90.0), (200.0, 130.0)), "ink", dashed=True),
        Bar(90.0, 90.0, 200.0, 130.0, "idle"),
        Bar(90.0, 90.0, 200.0, 130.0, "#7a1450"),
        Bar(90.0, 90.0, 200.0, 130.0, "#7a1450", "ink"),
    )
    images = {png(picture(*plain, *more)) for more in ((), *((shape,) for shape in others))}
    assert len(images) == 1 + len(others)


def test_a_logarithmic_axis_has_round_labels_and_even_decades():
    axis = LogAxis.over([0.04, 20.0], Unit("J", 1.0), 0.0, 300.0)
    assert [label for _, label in axis.ticks(7)] == ["0.03", "0.1", "0.3", "1", "3", "10", "30"]
    assert axis.place(1.0) - axis.place(0.1) == pytest.approx(axis.place(10.0) - axis.place(1.0))
    assert 0.0 < axis.place(0.04) < axis.place(20.0) < 300.0
    assert axis.place(0.0) == 0.0  # clamped
    close = LogAxis.over([0.023, 0.030], Unit("ms", 1e-3), 0.0, 300.0)
    assert [label for _, label in close.ticks(6)] == ["20", "25", "30", "35"]

"""Pictures: nothing covers anything, and units are those that people use."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from paper import style
from zeus.errors import MissingExtraError

pytest.importorskip("matplotlib")


def test_labels_cover_neither_points_nor_each_other():
    with style.styled():
        _, (axes,) = style.panels()
        random = np.random.default_rng(0)
        points = [tuple(point) for point in random.random((25, 2)).tolist()]
        axes.plot(*zip(*points, strict=True), "o")
        style.label_points(axes, points, [f"point {number}" for number in range(25)])
        boxes = [text.get_window_extent() for text in axes.texts]
        places = axes.transData.transform(points)
        assert len(boxes) > 12
        for number, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:number])
            assert not any(box.contains(*place) for place in places)


def test_without_matplotlib_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'zeus-energy\[plot\]'"),
        style.styled(),
    ):
        pass


def test_the_callers_own_style_stays():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style.styled():
        assert matplotlib.rcParams["svg.hashsalt"] == "zeus"
    assert dict(matplotlib.rcParams) == before

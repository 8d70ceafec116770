"""Files of pictures, texts in them, and templates of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zeus.drawing._captions import heading, legend
from zeus.drawing._files import kind_of, rendered
from zeus.drawing._pages import filled
from zeus.drawing._shapes import Path as Line
from zeus.drawing._shapes import Picture, Text
from zeus.drawing._text import estimated_width, fitted
from zeus.errors import PictureError


def test_kinds_of_files():
    assert kind_of("a/B.SVG") == ".svg"
    assert kind_of(Path("plan.png")) == ".png"
    assert kind_of("page.html", (".svg", ".html")) == ".html"
    with pytest.raises(PictureError, match=r"one of '.svg', '.png', but got 'plan.pdf'"):
        kind_of("plan.pdf")
    with pytest.raises(ValueError, match="but got 'svg'"):
        kind_of("svg")


def test_a_picture_is_laid_out_with_the_widths_of_its_own_font():
    pytest.importorskip("matplotlib")
    widths = []

    def lay_out(measure):
        widths.append(measure("ll", 10.0))
        return Picture("two", 10, 20, ())

    assert rendered(lay_out, ".svg").startswith(b"<svg")
    image = rendered(lay_out, ".png")
    assert [int.from_bytes(image[at : at + 4], "big") for at in (16, 20)] == [20, 40]
    assert widths[0] == estimated_width("ll", 10.0) > widths[1] > 0


def test_what_is_too_long_is_cut():
    assert fitted("abc", 10.0, 100.0) == "abc"
    cut = fitted("abc" * 40, 10.0, 100.0)
    assert cut.endswith("…")
    assert 90 < estimated_width(cut, 10.0) <= 100
    title, line = heading(0.0, 300.0, "t" * 200, "l" * 200)
    assert isinstance(title, Text)
    assert isinstance(line, Text)
    assert (title.size, title.text[-1], line.text[-1]) == (12.5, "…", "…")


def test_entries_of_a_legend_do_not_touch():
    entries: list[tuple[Any, str]]
    entries = [("best", "one"), (Line((), "line", dashed=True), "another"), ("chosen", "third")]
    texts = [shape for shape in legend(10.0, 50.0, entries) if isinstance(shape, Text)]
    ends = [text.x + estimated_width(text.text, text.size) for text in texts]
    assert [text.text for text in texts] == ["one", "another", "third"]
    assert all(end + 10 < text.x for end, text in zip(ends, texts[1:], strict=False))


def test_templates_are_filled_in_one_pass():
    assert filled("a {{one}} b {{two}} {{one}}", {"one": "{{two}}", "two": "2"}) == (
        "a {{two}} b 2 {{two}}"
    )


def test_equal_widths_are_equal_however_a_python_adds_up():
    # Python 3.11 rounds every addition of fractions, later ones only the sum.
    for text in ("t" * 200, "abc" * 40, "mW@" * 33):
        alone = estimated_width(text[0], 100.0)
        assert estimated_width(text[0] * len(text), 100.0) == alone * len(text)

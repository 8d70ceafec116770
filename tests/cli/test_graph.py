"""Graphs in blocks and in ASCII."""

from __future__ import annotations

import io

from zeus.cli._graph import graph, sparkline
from zeus.cli._terminal import Console


def console(encoding: str = "utf-8") -> Console:
    return Console(io.TextIOWrapper(io.BytesIO(), encoding=encoding))


def test_one_line():
    assert sparkline(console(), [0, 25, 50, 75, 100, 140], 100) == "▁▂▄▆██"


def test_an_unknown_value_is_a_gap_and_zero_is_not():
    assert sparkline(console(), [None, 0, None], 100) == " ▁ "
    assert graph(console(), [None, 0], 100, 2) == ["  ", " ▁"]


def test_several_lines():
    assert graph(console(), [25, 50, 75, 100], 100, 2) == ["  ▄█", "▄███"]


def test_ascii():
    assert sparkline(console("ascii"), [0, 50, 100], 100) == "_=#"
    assert graph(console("ascii"), [50, 100], 100, 2) == [" #", "##"]


def test_a_scale_of_zero_divides_nothing():
    assert sparkline(console(), [0.0], 0.0) == "▁"

"""The screen of `zeus top`: order, selection, and what fits on it."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from zeus.cli._gpu_rows import Frame, GpuRow, Holder, sorted_rows
from zeus.cli._keys import Key
from zeus.cli._live_view import LiveView
from zeus.cli._power_history import PowerHistory
from zeus.cli._snapshot import GpuReading, ProcessReading
from zeus.cli._summary import Peaks, summary
from zeus.cli._terminal import Console, width


def console(columns: int = 80, lines: int = 24, encoding: str = "utf-8") -> Console:
    class Sized(Console):
        def size(self) -> tuple[int, int]:
            return columns, lines

    return Sized(io.TextIOWrapper(io.BytesIO(), encoding=encoding))


def row(index: int, watts: float | None, **changes) -> GpuRow:
    history = PowerHistory()
    for at in range(100):
        history.add(at / 10, watts or 0.0)
    gpu = GpuReading(
        index, "NVIDIA A100-SXM4-80GB", f"GPU-{index}", power=watts, power_limit=400,
        energy=10.0 * (watts or 0), utilization=0.5, temperature=50,
    )  # fmt: skip
    return GpuRow(replace(gpu, **changes), "", history, seconds=10.0)


def frame(*rows: GpuRow, **more) -> Frame:
    return Frame(10.0, rows, now=9.9, **more)


def many(count: int, processes: int = 1) -> Frame:
    of_first = tuple(ProcessReading(100 + each, "python", "me", None) for each in range(processes))
    rows = [row(at, 100.0 + at) for at in range(count)]
    first = replace(rows[0], gpu=replace(rows[0].gpu, processes=of_first))
    return frame(first, *rows[1:])


def selected(lines: list[str]) -> int:
    (line,) = (line for line in lines if line.startswith("> "))
    return int(line.split()[1])


def shown(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.match(r"[> ] +(\d+)  NVIDIA", line))]


# Order


def test_the_largest_first_and_unknown_ones_last():
    rows = [row(0, 50.0), row(1, None), row(2, 90.0), row(3, 50.0)]
    order = [each.gpu.index for each in sorted_rows(rows, "power")]
    assert order == [2, 0, 3, 1]
    assert [each.gpu.index for each in sorted_rows(rows, "power", reverse=True)] == [0, 3, 2, 1]
    assert [each.gpu.index for each in sorted_rows(rows, "index", reverse=True)] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("p", {"power": 999}),
        ("e", {"energy": 1e9}),
        ("u", {"utilization": 1.0}),
        ("t", {"temperature": 99}),
    ],
)
def test_keys_sort(key, changes):
    view = LiveView(console())
    rows = frame(row(0, 100.0), row(1, 100.0), row(2, 100.0, **changes))
    assert shown(view.lines(rows)) == [0, 1, 2]
    view.press(key)
    assert shown(view.lines(rows)) == [2, 0, 1]
    view.press("r")
    assert shown(view.lines(rows)) == [0, 1, 2]
    view.press("i")
    assert shown(view.lines(rows)) == [0, 1, 2]


def test_a_selected_gpu_stays_selected_where_it_moves():
    view = LiveView(console(), "power")
    view.lines(frame(row(0, 300.0), row(1, 200.0), row(2, 100.0)))
    view.press(Key.DOWN)
    assert selected(view.lines(frame(row(0, 300.0), row(1, 200.0), row(2, 100.0)))) == 1
    assert selected(view.lines(frame(row(0, 300.0), row(1, 50.0), row(2, 100.0)))) == 1
    # Without a choice, the first line is meant.
    view.press(Key.HOME)
    assert selected(view.lines(frame(row(0, 10.0), row(1, 50.0), row(2, 100.0)))) == 2


# Scrolling


def test_keys_scroll_through_more_gpus_than_lines():
    view = LiveView(console())
    gpus = many(70)
    first = shown(view.lines(gpus))
    assert first[0] == 0
    assert 8 <= len(first) < 24
    for key, expected in (
        (Key.END, 69), (Key.UP, 68), (Key.PAGE_UP, 68 - len(first)), (Key.HOME, 0), (Key.UP, 0),
        (Key.DOWN, 1), (Key.PAGE_DOWN, 1 + len(first)), (Key.END, 69), (Key.DOWN, 69),
    ):  # fmt: skip
        view.press(key)
        lines = view.lines(gpus)
        assert selected(lines) == expected
        assert expected in shown(lines)
        assert len(shown(lines)) == len(first)
    assert f"{70 - len(first) + 1}-70 of 70" in lines[0]


def test_tab_scrolls_processes():
    view = LiveView(console())
    gpus = many(8, processes=30)
    lines = view.lines(gpus)
    assert any("PID" in line and "of 30" in line for line in lines)
    view.press(Key.TAB)
    view.press(Key.END)
    lines = view.lines(gpus)
    assert any(line.startswith("> 129") for line in lines)
    view.press(Key.TAB)
    view.press(Key.DOWN)
    assert any(re.match(r">\s+1  NVIDIA", line) for line in view.lines(gpus))


def test_gpus_that_disappear_leave_a_selection():
    view = LiveView(console())
    view.lines(many(70))
    view.press(Key.END)
    assert selected(view.lines(many(3))) == 2
    assert view.lines(frame())[0].startswith("Zeus")


@pytest.mark.parametrize("columns", [1, 20, 40, 80, 200])
@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5, 8, 11, 12, 24, 60])
@pytest.mark.parametrize("count", [0, 1, 8, 70])
def test_any_size(columns, lines, count):
    view = LiveView(console(columns, lines))
    for gpus in (many(count, 40) if count else frame(), frame(nodes={"n1": "unreachable"})):
        drawn = view.lines(gpus)
        assert len(drawn) <= lines
    if count:
        for key in (Key.END, Key.TAB, Key.DOWN, Key.PAGE_UP):
            view.press(key)
            drawn = view.lines(many(count, 40))
            assert len(drawn) <= lines
            if lines > 1:
                assert sum(line.startswith("> ") for line in drawn) >= 1


def test_at_80_columns_nothing_of_the_table_is_cut():
    lines = LiveView(console()).lines(many(8))
    assert len(lines) == 24
    table = [line for line in lines if "NVIDIA" in line]
    assert len(table) == 8
    assert all(width(line) <= 80 for line in lines)
    assert all("▂" in line for line in table)


# Graph and holders


def test_the_graph_has_limit_mean_and_highest():
    lines = LiveView(console()).lines(frame(row(0, 300.0)))
    assert "GPU 0  mean 300 W in 2 min · highest 300 W · limit 400 W" in lines
    assert any(line.startswith("  400 W ") for line in lines)
    assert any(line.startswith("    0 W ") and "█" in line for line in lines)
    assert any(line.startswith("   mean ") for line in lines)


def test_other_times():
    view = LiveView(console())
    gpus = frame(row(0, 300.0))
    view.press("+")
    assert any("in 5 min" in line for line in view.lines(gpus))
    for _ in range(20):
        view.press("-")
    assert any("in 60 s" in line for line in view.lines(gpus))


def test_ascii_only():
    lines = LiveView(console(encoding="ascii")).lines(many(70))
    assert all(line.isascii() for line in map(console(encoding="ascii").plain, lines))
    assert any("#" in line for line in lines)


def test_who_holds_a_knob():
    held = replace(row(1, 200.0), holders=(Holder("power limit", "200 W", "alice", "(process 7)"),))
    view = LiveView(console(120))
    lines = view.lines(frame(row(0, 100.0), held))
    assert "held by" in lines[2]
    assert any("alice" in line for line in lines if "NVIDIA" in line)
    view.press(Key.DOWN)
    lines = view.lines(frame(row(0, 100.0), held))
    assert "  power limit 200 W held by alice (process 7)" in lines


def test_nodes_are_named_and_unreachable_ones_shown():
    other = replace(row(0, 200.0), node="node7:9842")
    gpus = frame(row(0, 100.0), other, nodes={"node7:9842": None, "node8:9842": "unreachable: no"})
    lines = LiveView(console()).lines(gpus)
    assert "node8:9842  unreachable: no" in lines
    assert any("node7:9842" in line and "200 W" in line for line in lines)
    assert any("local" in line and "100 W" in line for line in lines)


# Summary


def test_the_summary_has_energy_and_power_of_each_and_all():
    peaks = Peaks()
    gpus = frame(row(0, 100.0), row(1, 300.0), row(2, None, energy=None))
    peaks.add(gpus)
    peaks.add(frame(row(0, 250.0), row(1, 100.0)))
    text = "\n".join(summary(console(), gpus, peaks))
    assert "10 s" in text
    assert re.search(r"0  NVIDIA \S+ +1000 J +0\.0002778 kWh +100 W +250 W", text), text
    assert re.search(r"1  NVIDIA \S+ +3000 J +0\.0008333 kWh +300 W +300 W", text), text
    assert re.search(r"2  NVIDIA \S+ +- +- +- +0 W", text), text
    assert re.search(r"all +4000 J +0\.001111 kWh +400 W +400 W", text), text

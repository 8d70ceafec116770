"""The screen of `zeus top`: what fits of it, and what keys change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zeus import __version__
from zeus.cli._gpu_rows import SORTS, Frame, GpuRow, sorted_rows
from zeus.cli._gpu_table import (
    gpu_table,
    host_table,
    node_lines,
    power_color,
    process_table,
    show,
    totals,
)
from zeus.cli._graph import graph, sparkline
from zeus.cli._keys import Key
from zeus.cli._terminal import Console, pad
from zeus.monitor._measurement import show_seconds

_SPANS = (60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)  # seconds of a graph
_SORT_KEYS = {name[0]: name for name in SORTS}
_HELP = "q quit  arrows select  Tab processes  p e u t i s sort  r reverse  + - time"
_MARK, _NO_MARK = "> ", "  "
_AXIS = 7  # columns of the graph's labels
_FEW_LINES, _MANY_LINES = 4, 8  # of a graph
_TALL = 36  # lines of a terminal with room for the larger graph
_SPACIOUS = 12  # lines of a terminal with room for a blank one
_FEWEST_PROCESSES = 2
_ROUNDING = 1e-6  # lines


class LiveView:
    """Lays out frames for a terminal of any size.

    Args:
        console: The terminal.
        sort: Order of the GPUs, one of `SORTS`.
    """

    def __init__(self, console: Console, sort: str = "index") -> None:
        self._console = console
        self._sort = sort
        self._reverse = False
        self._span = 1
        self._gpus = _List()
        self._processes = _List()
        self._in_processes = False
        self._order: list[tuple[str, str, int]] = []
        # The selected GPU, which keeps being selected wherever it moves; `None` for the first line.
        self._chosen: tuple[str, str, int] | None = None

    def press(self, key: str) -> None:
        """Handle a key."""
        lower = key.lower()
        if lower in _SORT_KEYS:
            self._sort_by(_SORT_KEYS[lower])
        elif lower == "s":
            names = list(SORTS)
            self._sort_by(names[(names.index(self._sort) + 1) % len(names)])
        elif lower == "r":
            self._reverse = not self._reverse
        elif key in "+=-_":
            step = 1 if key in "+=" else -1
            self._span = min(max(self._span + step, 0), len(_SPANS) - 1)
        elif key == Key.TAB:
            self._in_processes = not self._in_processes
        elif self._in_processes and self._processes.height:
            self._processes.press(key)
        elif self._gpus.press(key):
            at = self._gpus.selected
            self._chosen = self._order[at] if 0 < at < len(self._order) else None

    def _sort_by(self, name: str) -> None:
        self._sort, self._reverse = name, False

    def lines(self, frame: Frame) -> list[str]:
        """Return the lines of the screen."""
        console = self._console
        columns, height = console.size()
        rows = sorted_rows(frame.rows, self._sort, reverse=self._reverse)
        self._order = [row.identity for row in rows]
        if self._chosen in self._order:
            self._gpus.selected = self._order.index(self._chosen)
        elif self._chosen is None:
            self._gpus.selected = 0
        processes = process_table(console, frame.rows)
        parts = {
            "nodes": node_lines(console, frame),
            "graph": self._graph(frame, rows, columns, height),
            "host": host_table(console, frame),
        }
        spacious = height >= _SPACIOUS
        fixed = 1 + (height > 3) + spacious
        room = _shared_out(
            height - fixed,
            len(rows),
            {name: len(lines) for name, lines in parts.items()},
            len(processes),
        )
        table = self._gpu_lines(frame, rows, columns, room.gpus)
        shown = [table, *(parts[name] for name in room.parts)]
        shown.append(self._process_lines(processes, room.processes))
        body = [line for part in shown if part for line in ("", *part)][1:]
        if not rows and not any(shown):
            body = ["No device can be monitored; `zeus env` shows why."]
        title = [self._title(frame, len(rows)), *([""] if spacious else [])]
        lines = [*title, *body[: height - fixed]]
        if height > 3:
            lines += [""] * (height - 1 - len(lines))
            lines.append(console.style(_HELP, "dim"))
        return lines

    def _title(self, frame: Frame, count: int) -> str:
        console = self._console
        order = f"by {self._sort}" + (" reversed" if self._reverse else "")
        hidden = f", {self._gpus.range(count)}" if self._gpus.height < count else ""
        name = console.style(f"Zeus {__version__}", "bold")
        return f"{name}  {totals(frame)}  {console.style(order + hidden, 'dim')}"

    def _gpu_lines(
        self, frame: Frame, rows: Sequence[GpuRow], columns: int, height: int
    ) -> list[str]:
        if not rows or height < 1:
            self._gpus.window(len(rows), 0)
            return []
        visible = self._gpus.window(len(rows), max(height - 1, 1))
        span = _SPANS[self._span]

        def history(row: GpuRow, length: int) -> str:
            if row.history is None:
                return ""
            text = sparkline(self._console, row.history.means(frame.now, span, length), _scale(row))
            return self._console.style(text, power_color(row.gpu.power, row.gpu.power_limit))

        heading, *lines = gpu_table(
            self._console,
            rows[visible],
            columns - len(_MARK),
            named=bool(frame.nodes),
            history=history,
            history_heading=f"last {show_seconds(span)}",
        )
        selected = self._gpus.selected - visible.start
        marks = [_MARK if at == selected else _NO_MARK for at in range(len(lines))]
        marked = [mark + line for mark, line in zip(marks, lines, strict=True)]
        return marked if height < 2 else [_NO_MARK + heading, *marked]

    def _graph(self, frame: Frame, rows: Sequence[GpuRow], columns: int, height: int) -> list[str]:
        """Return the graph of the selected GPU, and who holds its knobs."""
        if not rows:
            return []
        console = self._console
        row = rows[min(self._gpus.selected, len(rows) - 1)]
        if row.history is None or row.history.highest is None:
            return []
        span = _SPANS[self._span]
        mean = row.history.mean(frame.now - span, frame.now)
        name = f"{row.node} GPU {row.gpu.index}".strip()
        facts = [
            f"mean {show(mean, 'W')} in {show_seconds(span)}",
            f"highest {show(row.history.highest, 'W')}",
            f"limit {show(row.gpu.power_limit, 'W')}",
        ]
        caption = f"{console.style(name, 'bold')}  {' · '.join(facts)}"
        held = [
            f"  {holder.knob} {holder.value} held by {holder.user or 'unknown'} {holder.detail}"
            for holder in row.holders
        ]
        lines = _MANY_LINES if height >= _TALL else _FEW_LINES
        values = row.history.means(frame.now, span, max(columns - _AXIS - 2, 1))
        return [caption, *map(str.rstrip, held), *self._drawn(row, values, mean, lines)]

    def _drawn(
        self, row: GpuRow, values: Sequence[float | None], mean: float | None, lines: int
    ) -> list[str]:
        console = self._console
        highest = _scale(row)
        at_mean = (
            None if mean is None else max(math.ceil(mean / highest * lines - _ROUNDING) - 1, 0)
        )
        drawn = []
        for number, blocks in enumerate(graph(console, values, highest, lines)):
            text = blocks
            from_below = lines - 1 - number
            label = show(highest, "W") if number == 0 else "0 W" if from_below == 0 else ""
            if from_below == at_mean:
                text = blocks.replace(" ", "╌" if console.unicode else "-")
                label = label or "mean"
            color = power_color(highest * (from_below + 0.5) / lines, row.gpu.power_limit)
            drawn.append(f"{pad(label, _AXIS, right=True)} {console.style(text, color)}")
        return drawn

    def _process_lines(self, table: Sequence[str], height: int) -> list[str]:
        count = len(table) - 1
        if height < 2:
            self._processes.window(0, 0)
            self._in_processes = False
            return []
        visible = self._processes.window(count, height - 1)
        hidden = f"  {self._processes.range(count)}" if height - 1 < count else ""
        marks = [
            _MARK if self._in_processes and at == self._processes.selected else _NO_MARK
            for at in range(visible.start, visible.stop)
        ]
        rows = [mark + line for mark, line in zip(marks, table[1:][visible], strict=True)]
        return [_NO_MARK + table[0] + self._console.style(hidden, "dim"), *rows]


def _scale(row: GpuRow) -> float:
    """Return the watts at the upper edge of a graph."""
    highest = row.history.highest if row.history is not None else None
    return max(row.gpu.power_limit or 0.0, highest or 0.0, 1.0)


@dataclass
class _List:
    """A list of which a part is visible, with one selected line."""

    selected: int = 0
    height: int = 0
    _offset: int = 0
    _count: int = 0

    def press(self, key: str) -> bool:
        """Move the selection; return whether this key does."""
        steps = {
            Key.UP: -1,
            Key.DOWN: 1,
            Key.PAGE_UP: -max(self.height, 1),
            Key.PAGE_DOWN: max(self.height, 1),
            Key.HOME: -self._count,
            Key.END: self._count,
            "k": -1,
            "j": 1,
        }
        if key not in steps:
            return False
        self.selected = min(max(self.selected + steps[key], 0), max(self._count - 1, 0))
        return True

    def window(self, count: int, height: int) -> slice:
        """Return the visible part: the selected line is in it, and it moves no more than needed."""
        self._count, self.height = count, min(height, count)
        self.selected = min(self.selected, max(count - 1, 0))
        lowest = max(self.selected - self.height + 1, 0)
        self._offset = min(max(self._offset, lowest), self.selected, max(count - self.height, 0))
        return slice(self._offset, self._offset + self.height)

    def range(self, count: int) -> str:
        """Return which lines are visible, in words."""
        if not self.height:
            return f"0 of {count}"
        return f"{self._offset + 1}-{self._offset + self.height} of {count}"


class _Room(NamedTuple):
    """Lines for the table of GPUs and that of processes, and which other parts are shown."""

    gpus: int
    processes: int
    parts: tuple[str, ...]


def _shared_out(body: int, gpus: int, parts: dict[str, int], processes: int) -> _Room:
    """Share out the lines of a screen.

    Args:
        body: Lines to share out.
        gpus: Number of GPUs.
        parts: Lines of parts that are shown as a whole or not at all, the most important first.
        processes: Lines of the table of processes.
    """
    body = max(body, 0)
    wanted = gpus + 1 if gpus else 0
    for_gpus = min(wanted, max((body + 1) // 2, min(body, 2)))
    left = body - for_gpus
    shown = []
    for_processes = 0
    fewest = min(processes, 1 + _FEWEST_PROCESSES)
    for name, lines in (("nodes", parts["nodes"]), ("processes", fewest), *parts.items()):
        if not lines or lines + 1 > left or name in shown:
            continue
        left -= lines + 1
        shown.append(name)
        if name == "processes":
            for_processes = lines
    more = min(wanted - for_gpus, left)
    for_gpus, left = for_gpus + more, left - more
    if for_processes:
        for_processes += min(processes - for_processes, left)
    return _Room(for_gpus, for_processes, tuple(name for name in parts if name in shown))

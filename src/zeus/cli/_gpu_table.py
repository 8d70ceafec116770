"""Tables of `zeus top`: GPUs, the host, processes, and totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zeus.cli._gpu_rows import Frame, GpuRow
from zeus.cli._snapshot import CpuReading
from zeus.cli._terminal import MISSING, Console, clip, number_ranges, pad, plural, sections, width
from zeus.monitor._measurement import show_joules, show_seconds

THIS_NODE = "local"
"""Name of this machine, beside others."""

_GIB = 2**30
_HIGH, _HIGHER = 0.75, 0.95  # fractions of a limit from which power is yellow, and red
_GAP = 2  # columns between two cells
_LONGEST_NODE = 20  # characters of a node's name
_LONGEST_HOLDERS = 16
_SHORTEST_HISTORY, _LONGEST_HISTORY = 10, 60


def show(value: float | None, unit: str, digits: int = 0) -> str:
    """Format a value with its unit, or as unknown."""
    return MISSING if value is None else f"{value:.{digits}f} {unit}"


def power_color(power: float | None, limit: float | None) -> str:
    """Return the color of a power under a limit."""
    if power is None or not limit:
        return "green"
    share = power / limit
    return "red" if share >= _HIGHER else "yellow" if share >= _HIGH else "green"


def totals(frame: Frame) -> str:
    """Return number, power and energy of all GPUs."""
    powers = [row.gpu.power for row in frame.rows]
    known = [power for power in powers if power is not None]
    count = len(powers)
    parts = [plural(count, "GPU") if count else "no GPU"]
    if known:
        parts.append(f"{sum(known):.0f} W")
    if known and len(known) < count:
        parts[-1] += f" without {count - len(known)} unreadable"
    energies = [row.gpu.energy for row in frame.rows if row.gpu.energy is not None]
    if energies:
        parts.append(f"{show_joules(sum(energies))} in {show_seconds(round(frame.elapsed, 1))}")
    return " · ".join(parts)


def tables(console: Console, frame: Frame, columns: int | None) -> list[str]:
    """Return all tables in full; `columns` limits the width of that of GPUs."""
    lines = sections(
        [
            gpu_table(console, frame.rows, columns, named=bool(frame.nodes)),
            node_lines(console, frame),
            host_table(console, frame),
            process_table(console, frame.rows),
        ]
    )
    return lines or ["No device can be monitored; `zeus env` shows why."]


# --- GPUs ---------------------------------------------------------------------------------------


class _Column(NamedTuple):
    name: str
    heading: str
    right: bool
    cell: Callable[[Console, GpuRow], str]


def _power(_: Console, row: GpuRow) -> str:
    return show(row.gpu.power, "W") + (" avg" if row.gpu.power_is_average else "")


def _power_bar(console: Console, row: GpuRow) -> str:
    gpu = row.gpu
    if gpu.power is None or not gpu.power_limit:
        return ""
    bar = console.bar(gpu.power / gpu.power_limit, 10)
    return console.style(bar, power_color(gpu.power, gpu.power_limit))


def _load_bar(console: Console, row: GpuRow) -> str:
    return "" if row.gpu.utilization is None else console.bar(row.gpu.utilization, 6)


def _load(_: Console, row: GpuRow) -> str:
    return MISSING if row.gpu.utilization is None else f"{row.gpu.utilization:.0%}"


def _memory(_: Console, row: GpuRow) -> str:
    memory = row.gpu.memory
    if memory is None:
        return MISSING
    return f"{memory.used / _GIB:.1f}/{memory.total / _GIB:.0f} GiB"


def _clock(_: Console, row: GpuRow) -> str:
    return MISSING if row.gpu.clocks is None else f"{row.gpu.clocks.graphics} MHz"


def _energy(_: Console, row: GpuRow) -> str:
    return MISSING if row.gpu.energy is None else show_joules(row.gpu.energy)


def _holders(_: Console, row: GpuRow) -> str:
    users = ", ".join(dict.fromkeys(holder.user or MISSING for holder in row.holders))
    return clip(users, _LONGEST_HOLDERS)


_COLUMNS = (
    _Column("node", "node", False, lambda _, row: clip(row.node or THIS_NODE, _LONGEST_NODE)),
    _Column("index", "GPU", True, lambda _, row: f"{row.gpu.index}"),
    _Column("name", "name", False, lambda _, row: row.gpu.name),
    _Column("power", "power", True, _power),
    _Column("power bar", "", False, _power_bar),
    _Column("limit", "limit", True, lambda _, row: show(row.gpu.power_limit, "W")),
    _Column("load", "load", True, _load),
    _Column("load bar", "", False, _load_bar),
    _Column("temperature", "temp", True, lambda _, row: show(row.gpu.temperature, "°C")),
    _Column("memory", "memory", True, _memory),
    _Column("clock", "clock", True, _clock),
    _Column("energy", "energy", True, _energy),
    _Column("holders", "held by", False, _holders),
)
_NAMES = ("node", "index", "name")
# Columns to drop on narrow terminals, in this order.
_DISPENSABLE = (
    "load bar", "clock", "memory", "power bar", "name", "history", "holders", "temperature",
    "energy",
)  # fmt: skip


def gpu_table(
    console: Console,
    rows: Sequence[GpuRow],
    columns: int | None,
    *,
    named: bool = False,
    history: Callable[[GpuRow, int], str] | None = None,
    history_heading: str = "",
) -> list[str]:
    """Return a heading and one line per GPU, without columns for which there is no room.

    Args:
        console: Where it will be shown.
        rows: The GPUs.
        columns: Width of the terminal; `None` if unlimited.
        named: Whether nodes are named.
        history: Draws the history of a GPU in a number of columns.
        history_heading: Heading of that.
    """
    if not rows:
        return []
    absent = set() if named else {"node"}
    absent |= {"energy"} if all(row.gpu.energy is None for row in rows) else set()
    absent |= set() if any(row.holders for row in rows) else {"holders"}
    laid_out = [_Cells(console, column, rows) for column in _COLUMNS if column.name not in absent]
    drawn = history is not None
    for name in ("", *_DISPENSABLE):
        laid_out = [cells for cells in laid_out if cells.column.name != name]
        drawn = drawn and name != "history"
        used = sum(cells.width + _GAP for cells in laid_out) - _GAP
        room = _SHORTEST_HISTORY + _GAP if drawn else 0
        if columns is None or used + room <= columns:
            break
    length = 0
    if drawn and history is not None:
        length = _LONGEST_HISTORY if columns is None else columns - used - _GAP
        length = min(max(length, _SHORTEST_HISTORY), _LONGEST_HISTORY)
    lines = [_heading(console, laid_out, history_heading if length else "")]
    for at, row in enumerate(rows):
        if row.gpu.problem is not None:
            names = [cells.padded(at + 1) for cells in laid_out if cells.column.name in _NAMES]
            cells = [*names, console.plain(console.style(row.gpu.problem, "red"))]
        else:
            cells = [cells.padded(at + 1) for cells in laid_out]
            if length and history is not None:
                cells.append(history(row, length))
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines


class _Cells:
    """The cells of one column; the first is the heading."""

    def __init__(self, console: Console, column: _Column, rows: Sequence[GpuRow]) -> None:
        self.column = column
        self._cells = [column.heading]
        for row in rows:
            # An error replaces readings, and leaves only names.
            shown = row.gpu.problem is None or column.name in _NAMES
            self._cells.append(console.plain(column.cell(console, row)) if shown else "")
        self.width = max(map(width, self._cells))

    def padded(self, at: int) -> str:
        return pad(self._cells[at], self.width, self.column.right)


def _heading(console: Console, laid_out: Sequence[_Cells], last: str) -> str:
    cells = [*(cells.padded(0) for cells in laid_out), *([last] if last else [])]
    return console.style((" " * _GAP).join(cells).rstrip(), "bold")


# --- other nodes, the host, processes -------------------------------------------------------------


def node_lines(console: Console, frame: Frame) -> list[str]:
    """Return one line per node that does not respond."""
    failed = {name: why for name, why in (frame.nodes or {}).items() if why is not None}
    return [
        f"{console.style(name, 'bold')}  {console.style(why, 'red')}"
        for name, why in failed.items()
    ]


def host_table(console: Console, frame: Frame) -> list[str]:
    """Return the power of CPUs and of the system on a chip."""
    lines: list[str] = []
    if frame.cpus:
        heading = ["CPU", "name", "power", "DRAM", "energy"]
        rows = [heading, *(_cpu_row(cpu) for _, cpu in frame.cpus)]
        right = [0, 2, 3, 4]
        if frame.nodes:
            names = ["node", *(clip(node or THIS_NODE, _LONGEST_NODE) for node, _ in frame.cpus)]
            rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
            right = [1, 3, 4, 5]
        lines += console.table(rows, right=right, heading=True)
    if frame.soc is not None:
        soc = frame.soc
        text = soc.problem or ", ".join(f"{part} {w:.1f} W" for part, w in soc.powers.items())
        lines.append(f"{console.style('SoC', 'bold')}  {soc.name}: {text or MISSING}")
    return lines


def _cpu_row(cpu: CpuReading) -> list[str]:
    if cpu.problem is not None:
        return [f"{cpu.index}", cpu.name, cpu.problem]
    energies = [energy for energy in (cpu.energy, cpu.dram_energy) if energy is not None]
    return [
        f"{cpu.index}",
        cpu.name,
        show(cpu.power, "W", 1),
        show(cpu.dram_power, "W", 1),
        show_joules(sum(energies)) if energies else MISSING,
    ]


def process_table(console: Console, rows: Sequence[GpuRow]) -> list[str]:
    """Return one line per process, with all GPUs that it uses."""
    used: dict[int, list[int]] = {}
    memory: dict[int, int | None] = {}
    known = {}
    for row in sorted(rows, key=lambda row: row.gpu.index):
        for process in row.gpu.processes:
            known[process.pid] = process
            used.setdefault(process.pid, []).append(row.gpu.index)
            so_far = memory.get(process.pid, 0)
            unknown = so_far is None or process.memory is None
            memory[process.pid] = None if unknown else (so_far or 0) + (process.memory or 0)
    if not known:
        return []
    lines = [("PID", "user", "GPU", "memory", "process")]
    for pid, process in known.items():
        size = memory[pid]
        lines.append(
            (
                f"{pid}",
                process.user or MISSING,
                number_ranges(used[pid]),
                show(None if size is None else size / _GIB, "GiB", 1),
                clip(process.name or MISSING, 40),
            )
        )
    return console.table(lines, right=(0, 3), heading=True)

"""`zeus top`: live power, energy and utilization of every GPU.

With `--json`, one object per line and interval: `time` (ISO 8601, UTC), `elapsed` (seconds), and

- `gpus`: `index`, `name`, `key`, `power`, `power_is_average`, `energy` (since the start),
  `energy_is_integrated`, `power_limit`, `utilization` (0 to 1), `temperature`, `memory_used`,
  `memory_total`, `graphics_clock`, `memory_clock`, `graphics_clock_lock` ([lowest, highest]),
  `processes` (`pid`, `name`, `user`, `memory`) and `problem`;
- `cpus`: `index`, `name`, `power`, `energy`, `dram_power`, `dram_energy`, `problem`;
- `soc`: `name`, `powers` by part, `problem`; or null.

Watts, joules, bytes, MHz and degrees Celsius; null is unknown.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from zeus import __version__
from zeus.cli._parser import add_gpus_option, number
from zeus.cli._screen import Screen, Terminated
from zeus.cli._snapshot import CpuReading, GpuReading, NodeReader, Snapshot
from zeus.cli._terminal import MISSING, Console, clip, number_ranges, plural, sections, width
from zeus.device import current_node
from zeus.monitor._measurement import show_joules, show_seconds

_SHORTEST_INTERVAL = 0.1
_TIMEOUT = 0.25  # seconds to wait for a GPU in the live view; drivers answer in milliseconds
_TIMEOUT_ONCE = 10.0  # seconds; a driver call that hangs is abandoned after three
_BETWEEN_SNAPSHOTS = 0.2  # seconds, for the power of devices that only count energy
_GIB = 2**30
_HIGH, _HIGHER = 0.75, 0.95  # fractions from which a bar is yellow, and red


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Watch power, energy since the start, limits, clocks, temperature, utilization, memory and "
        "processes of every GPU, and the power of CPUs and DRAM. Press q to quit. Without a "
        "terminal, one plain table is printed per interval."
    )
    parser.epilog = """\
examples:
  zeus top
  zeus top --once
  zeus top --json --interval 0.5 --gpus 0,1 > power.jsonl"""
    parser.add_argument("--once", action="store_true", help="print one plain table and exit")
    parser.add_argument(
        "--interval",
        type=number(_SHORTEST_INTERVAL, unit="seconds"),
        default=1.0,
        metavar="S",
        help=f"seconds between samples, at least {_SHORTEST_INTERVAL} (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per sample")
    add_gpus_option(parser, "show")


def run(arguments: argparse.Namespace) -> int:
    """Show the live view, plain tables or JSON, as the output allows."""
    reader = NodeReader(current_node(), arguments.gpus)
    console = Console(sys.stdout)
    show: Callable[[Snapshot], list[str]] = _json_line if arguments.json else _Plain(console)
    if arguments.once:
        console.print(*show(_settled(reader)))
        return 0
    if arguments.json or not console.can_be_steered:
        _print_forever(console, reader, arguments.interval, show)
    return _show_live(console, reader, arguments.interval)


def _settled(reader: NodeReader) -> Snapshot:
    """Take one snapshot with the power of all devices."""
    if reader.needs_two_snapshots:
        reader.snapshot(0)
        time.sleep(_BETWEEN_SNAPSHOTS)
    return reader.snapshot(_TIMEOUT_ONCE)


class _Interval:
    """Keeps a fixed interval, regardless of how long the work in between takes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def left(self) -> float:
        return self._next - time.monotonic()

    def advance(self) -> None:
        self._next = max(self._next + self._seconds, time.monotonic())


def _print_forever(
    console: Console, reader: NodeReader, seconds: float, show: Callable[[Snapshot], list[str]]
) -> None:
    interval = _Interval(seconds)
    while True:
        console.print(*show(reader.snapshot(min(seconds, _TIMEOUT))))
        time.sleep(max(interval.left(), 0.0))
        interval.advance()


def _show_live(console: Console, reader: NodeReader, seconds: float) -> int:
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    try:
        with Screen(console, keyboard) as screen:
            interval = _Interval(seconds)
            snapshot = reader.snapshot(_TIMEOUT)
            while True:
                screen.draw(_view(console, snapshot))
                if "q" in screen.wait(interval.left()).lower():
                    return 0
                if interval.left() <= 0:
                    interval.advance()
                    snapshot = reader.snapshot(min(seconds, _TIMEOUT))
    except KeyboardInterrupt:
        return 0  # like q
    except Terminated as end:
        return 128 + end.number


# --- JSON ---------------------------------------------------------------------------------------


def _json_line(snapshot: Snapshot) -> list[str]:
    record = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(),
        "elapsed": snapshot.elapsed,
        "gpus": [_gpu_record(gpu) for gpu in snapshot.gpus],
        "cpus": [asdict(cpu) for cpu in snapshot.cpus],
        "soc": asdict(snapshot.soc) if snapshot.soc is not None else None,
    }
    return [json.dumps(record)]


def _gpu_record(gpu: GpuReading) -> dict[str, Any]:
    record = asdict(gpu)
    memory, clocks, lock = gpu.memory, gpu.clocks, gpu.graphics_clock_lock
    del record["memory"], record["clocks"]
    return record | {
        "memory_used": memory.used if memory else None,
        "memory_total": memory.total if memory else None,
        "graphics_clock": clocks.graphics if clocks else None,
        "memory_clock": clocks.memory if clocks else None,
        "graphics_clock_lock": [lock.minimum, lock.maximum] if lock else None,
    }


# --- text ---------------------------------------------------------------------------------------


class _Plain:
    """Full tables for a file or a pipe, each with a timestamp."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._first = True

    def __call__(self, snapshot: Snapshot) -> list[str]:
        now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        # Lines are limited to the width of a terminal, but not in files.
        columns = self._console.size()[0] if self._console.interactive else None
        lines = [f"{now}  {_totals(snapshot)}", *_tables(self._console, snapshot, columns)]
        separator = [] if self._first else [""]
        self._first = False
        return separator + lines


def _view(console: Console, snapshot: Snapshot) -> list[str]:
    """Return what fits on the screen: GPUs, then CPUs, then processes."""
    columns, height = console.size()
    title = console.style(f"Zeus {__version__}", "bold")
    head = [f"{title}  {_totals(snapshot)}  {console.style('q quits', 'dim')}", ""]
    lines = [*head, *_tables(console, snapshot, columns)]
    if len(lines) > height:
        more = len(lines) - height + 1
        lines = [*lines[: height - 1], console.style(f"{more} more lines", "dim")]
    return lines


def _totals(snapshot: Snapshot) -> str:
    powers = [gpu.power for gpu in snapshot.gpus]
    known = [power for power in powers if power is not None]
    count = len(powers)
    parts = [plural(count, "GPU") if count else "no GPU"]
    if known:
        parts.append(f"{sum(known):.0f} W")
    if known and len(known) < count:
        parts[-1] += f" without {count - len(known)} unreadable"
    energies = [gpu.energy for gpu in snapshot.gpus if gpu.energy is not None]
    if energies:
        parts.append(f"{show_joules(sum(energies))} in {show_seconds(round(snapshot.elapsed, 1))}")
    return " · ".join(parts)


def _tables(console: Console, snapshot: Snapshot, columns: int | None) -> list[str]:
    lines = sections(
        [
            _gpu_table(console, snapshot.gpus, columns),
            _host_table(console, snapshot),
            _process_table(console, snapshot.gpus),
        ]
    )
    return lines or ["No device can be monitored; `zeus env` shows why."]


class _Column(NamedTuple):
    name: str
    heading: str
    right: bool
    cell: Callable[[Console, GpuReading], str]


def _show(value: float | None, unit: str, digits: int = 0) -> str:
    return MISSING if value is None else f"{value:.{digits}f} {unit}"


def _power(_: Console, gpu: GpuReading) -> str:
    return _show(gpu.power, "W") + (" avg" if gpu.power_is_average else "")


def _power_bar(console: Console, gpu: GpuReading) -> str:
    if gpu.power is None or not gpu.power_limit:
        return ""
    share = gpu.power / gpu.power_limit
    color = "red" if share >= _HIGHER else "yellow" if share >= _HIGH else "green"
    return console.style(console.bar(share, 10), color)


def _load_bar(console: Console, gpu: GpuReading) -> str:
    return "" if gpu.utilization is None else console.bar(gpu.utilization, 6)


def _load(_: Console, gpu: GpuReading) -> str:
    return MISSING if gpu.utilization is None else f"{gpu.utilization:.0%}"


def _memory(_: Console, gpu: GpuReading) -> str:
    if gpu.memory is None:
        return MISSING
    return f"{gpu.memory.used / _GIB:.1f}/{gpu.memory.total / _GIB:.0f} GiB"


def _clock(_: Console, gpu: GpuReading) -> str:
    return MISSING if gpu.clocks is None else f"{gpu.clocks.graphics} MHz"


def _energy(_: Console, gpu: GpuReading) -> str:
    return MISSING if gpu.energy is None else show_joules(gpu.energy)


_COLUMNS = (
    _Column("index", "GPU", True, lambda _, gpu: f"{gpu.index}"),
    _Column("name", "name", False, lambda _, gpu: gpu.name),
    _Column("power", "power", True, _power),
    _Column("power bar", "", False, _power_bar),
    _Column("limit", "limit", True, lambda _, gpu: _show(gpu.power_limit, "W")),
    _Column("load", "load", True, _load),
    _Column("load bar", "", False, _load_bar),
    _Column("temperature", "temp", True, lambda _, gpu: _show(gpu.temperature, "°C")),
    _Column("memory", "memory", True, _memory),
    _Column("clock", "clock", True, _clock),
    _Column("energy", "energy", True, _energy),
)
# Columns to drop on narrow terminals, in this order.
_DISPENSABLE = ("load bar", "clock", "memory", "power bar", "name", "temperature", "energy")


def _gpu_table(console: Console, gpus: Sequence[GpuReading], columns: int | None) -> list[str]:
    if not gpus:
        return []
    dropped = {"energy"} if all(gpu.energy is None for gpu in gpus) else set()
    for name in ("", *_DISPENSABLE):
        dropped.add(name)
        chosen = [column for column in _COLUMNS if column.name not in dropped]
        lines, needed = _laid_out(console, gpus, chosen)
        if columns is None or needed <= columns:
            break
    return lines


def _laid_out(
    console: Console, gpus: Sequence[GpuReading], columns: Sequence[_Column]
) -> tuple[list[str], int]:
    """Return the lines of the table, and the width of rows that must not be cut (errors may)."""
    rows = [[column.heading for column in columns]]
    for gpu in gpus:
        if gpu.problem is None:
            rows.append([column.cell(console, gpu) for column in columns])
        else:
            names = [column.cell(console, gpu) for column in columns[:2] if column.name != "power"]
            rows.append([*names, console.style(gpu.problem, "red")])
    right = [at for at, column in enumerate(columns) if column.right]
    # An error replaces the readings: left-aligned, whatever the column.
    lines = console.table(rows, right, heading=True)
    fixed = [line for line, row in zip(lines, rows, strict=True) if len(row) == len(columns)]
    return lines, max(width(line) for line in fixed)


def _host_table(console: Console, snapshot: Snapshot) -> list[str]:
    lines: list[str] = []
    if snapshot.cpus:
        heading = ("CPU", "name", "power", "DRAM", "energy")
        rows = [heading, *map(_cpu_row, snapshot.cpus)]
        lines += console.table(rows, right=(0, 2, 3, 4), heading=True)
    if snapshot.soc is not None:
        soc = snapshot.soc
        text = soc.problem or ", ".join(f"{part} {w:.1f} W" for part, w in soc.powers.items())
        lines.append(f"{console.style('SoC', 'bold')}  {soc.name}: {text or MISSING}")
    return lines


def _cpu_row(cpu: CpuReading) -> Sequence[str]:
    if cpu.problem is not None:
        return [f"{cpu.index}", cpu.name, cpu.problem]
    energies = [energy for energy in (cpu.energy, cpu.dram_energy) if energy is not None]
    return [
        f"{cpu.index}",
        cpu.name,
        _show(cpu.power, "W", 1),
        _show(cpu.dram_power, "W", 1),
        show_joules(sum(energies)) if energies else MISSING,
    ]


def _process_table(console: Console, gpus: Sequence[GpuReading]) -> list[str]:
    """Return one row per process, with all GPUs that it uses."""
    used: dict[int, list[int]] = {}
    memory: dict[int, int | None] = {}
    known = {}
    for gpu in gpus:
        for process in gpu.processes:
            known[process.pid] = process
            used.setdefault(process.pid, []).append(gpu.index)
            so_far = memory.get(process.pid, 0)
            unknown = so_far is None or process.memory is None
            memory[process.pid] = None if unknown else (so_far or 0) + (process.memory or 0)
    if not known:
        return []
    rows = [("PID", "user", "GPU", "memory", "process")]
    for pid, process in known.items():
        size = memory[pid]
        rows.append(
            (
                f"{pid}",
                process.user or MISSING,
                number_ranges(used[pid]),
                _show(None if size is None else size / _GIB, "GiB", 1),
                clip(process.name or MISSING, 40),
            )
        )
    return console.table(rows, right=(0, 3), heading=True)

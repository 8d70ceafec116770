"""`zeus top`: live power, energy and utilization of every GPU.

With `--json`, one object per line and interval: `time` (ISO 8601, UTC), `elapsed` (seconds), and

- `gpus`: `index`, `name`, `key`, `power`, `power_is_average`, `energy` (since the start),
  `energy_is_integrated`, `power_limit`, `utilization` (0 to 1), `temperature`, `memory_used`,
  `memory_total`, `graphics_clock`, `memory_clock`, `graphics_clock_lock` ([lowest, highest]),
  `processes` (`pid`, `name`, `user`, `memory`) and `problem`;
- `cpus`: `index`, `name`, `power`, `energy`, `dram_power`, `dram_energy`, `problem`;
- `soc`: `name`, `powers` by part, `problem`; or null.

Watts, joules, bytes, MHz and degrees Celsius; null is unknown. With `--node` there is also `nodes`,
a list with `node` (host and port), `gpus`, `cpus` and `problem` of each.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from zeus.cli._agent_leases import AgentLeases
from zeus.cli._gpu_rows import SORTS, Frame, GpuRow, frame_of, sorted_rows
from zeus.cli._gpu_table import tables, totals
from zeus.cli._live_view import LiveView
from zeus.cli._parser import add_gpus_option, number
from zeus.cli._power_history import NodePower
from zeus.cli._remote_node import RemoteNode, RemoteReading, node_address
from zeus.cli._screen import Screen, Terminated
from zeus.cli._snapshot import CpuReading, GpuReading, NodeReader, Snapshot
from zeus.cli._summary import Peaks, summary
from zeus.cli._terminal import Console
from zeus.device import Node, current_node

_SHORTEST_INTERVAL = 0.1
_TIMEOUT = 0.25  # seconds to wait for a GPU in the live view; drivers answer in milliseconds
_TIMEOUT_ONCE = 10.0  # seconds; a driver call that hangs is abandoned after three
_BETWEEN_SNAPSHOTS = 0.2  # seconds, for the power of devices that only count energy


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Watch power, energy since the start, limits, clocks, temperature, utilization, memory and "
        "processes of every GPU, with graphs of its power, and the power of CPUs and DRAM; also of "
        "other nodes, where `zeus export` runs. Keys are shown in the last line; at the end energy "
        "and power are summed up. Without a terminal, one plain table is printed per interval."
    )
    parser.epilog = """\
examples:
  zeus top
  zeus top --sort power --node http://node7:9842 --node http://node8:9842
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
    parser.add_argument(
        "--sort",
        choices=list(SORTS),
        default="index",
        help="order of the GPUs, the largest first (default: index)",
    )
    parser.add_argument(
        "--node",
        dest="nodes",
        type=node_address,
        action="append",
        default=[],
        metavar="URL",
        help="show another node as well, by the address at which its `zeus export` serves "
        "metrics; repeatable",
    )
    add_gpus_option(parser, "show")


def run(arguments: argparse.Namespace) -> int:
    """Show the live view, plain tables or JSON, as the output allows."""
    node = current_node()
    reader = NodeReader(node, arguments.gpus)
    nodes = _distinct(arguments.nodes, arguments.interval)
    console = Console(sys.stdout)
    live = not arguments.once and not arguments.json and console.can_be_steered
    if live:
        watch = _Watch(node, reader, nodes)
        return _show_live(console, watch, arguments.interval, arguments.sort)
    plain = _Plain(console, arguments.sort)

    def lines(snapshot: Snapshot) -> list[str]:
        readings = {each.name: each.latest() for each in nodes}
        if arguments.json:
            return _json_line(snapshot, readings if nodes else None)
        return plain(_joined(frame_of(snapshot), readings))

    for each in nodes:
        each.wait(_TIMEOUT_ONCE)
    if arguments.once:
        console.print(*lines(_settled(reader)))
        return 0
    _print_forever(console, reader, arguments.interval, lines)
    return 0


def _distinct(addresses: Sequence[Any], interval: float) -> list[RemoteNode]:
    """Return the nodes, each once."""
    return [RemoteNode(address, interval) for address in dict.fromkeys(addresses)]


def _joined(frame: Frame, readings: dict[str, RemoteReading]) -> Frame:
    """Return a frame of this machine with other nodes beside it."""
    rows, cpus = list(frame.rows), list(frame.cpus)
    for name, reading in readings.items():
        rows += reading.rows
        cpus += [(name, cpu) for cpu in reading.cpus]
    nodes = {name: reading.problem for name, reading in readings.items()}
    return replace(frame, rows=tuple(rows), cpus=tuple(cpus), nodes=nodes)


class _Watch:
    """All that the live view shows: readings, power over time, holders and other nodes."""

    def __init__(self, node: Node, reader: NodeReader, nodes: Sequence[RemoteNode]) -> None:
        self._clock = node.clock
        self._reader = reader
        self._nodes = nodes
        self._power = NodePower(node, reader.gpu_indices)
        self._leases = AgentLeases(node.agent)

    def frame(self, timeout: float) -> Frame:
        """Return what is known now, waiting at most `timeout` seconds for slow GPUs."""
        snapshot = self._reader.snapshot(timeout)
        self._power.update()
        frame = replace(
            frame_of(snapshot),
            rows=tuple(self._row(gpu, snapshot.elapsed) for gpu in snapshot.gpus),
            now=self._clock.now(),
        )
        return _joined(frame, {each.name: each.latest() for each in self._nodes})

    def _row(self, gpu: GpuReading, elapsed: float) -> GpuRow:
        history = self._power.of(gpu.index)
        if gpu.energy_is_integrated:  # the monitor samples more often than this view
            gpu = replace(gpu, energy=history.energy() or gpu.energy)
        return GpuRow(gpu, "", history, self._leases.of(gpu.key), elapsed)


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


def _show_live(console: Console, watch: _Watch, seconds: float, sort: str) -> int:
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    view, peaks = LiveView(console, sort), Peaks()
    code = 0
    with _held_back_warnings():
        try:
            with Screen(console, keyboard) as screen:
                _redraw_until_quit(screen, view, peaks, watch, seconds)
        except KeyboardInterrupt:
            pass  # like q
        except Terminated as end:
            code = 128 + end.number
    with contextlib.suppress(OSError):  # the terminal may be closed
        frame = watch.frame(_TIMEOUT)
        peaks.add(frame)
        console.print(*summary(console, frame, peaks))
    return code


def _redraw_until_quit(
    screen: Screen, view: LiveView, peaks: Peaks, watch: _Watch, seconds: float
) -> None:
    interval = _Interval(seconds)
    frame = watch.frame(_TIMEOUT)
    while True:
        peaks.add(frame)
        screen.draw(view.lines(frame))
        for key in screen.wait(interval.left()):
            if key.lower() == "q":
                return
            view.press(key)
        if interval.left() <= 0:
            interval.advance()
            frame = watch.frame(min(seconds, _TIMEOUT))


@contextlib.contextmanager
def _held_back_warnings() -> Iterator[None]:
    """Keep warnings of the library from the screen; what they are about is shown in rows."""
    import logging  # noqa: PLC0415  (only here)

    logger = logging.getLogger("zeus")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- JSON ---------------------------------------------------------------------------------------


def _json_line(snapshot: Snapshot, nodes: dict[str, RemoteReading] | None) -> list[str]:
    record: dict[str, Any] = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(),
        "elapsed": snapshot.elapsed,
        **_devices(snapshot.gpus, snapshot.cpus),
        "soc": asdict(snapshot.soc) if snapshot.soc is not None else None,
    }
    if nodes is not None:
        record["nodes"] = [
            {
                "node": name,
                **_devices([row.gpu for row in reading.rows], reading.cpus),
                "problem": reading.problem,
            }
            for name, reading in nodes.items()
        ]
    return [json.dumps(record)]


def _devices(gpus: Sequence[GpuReading], cpus: Sequence[CpuReading]) -> dict[str, Any]:
    return {
        "gpus": [_gpu_record(gpu) for gpu in gpus],
        "cpus": [asdict(cpu) for cpu in cpus],
    }


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


# --- plain tables -------------------------------------------------------------------------------


class _Plain:
    """Full tables for a file or a pipe, each with a timestamp."""

    def __init__(self, console: Console, sort: str) -> None:
        self._console = console
        self._sort = sort
        self._first = True

    def __call__(self, frame: Frame) -> list[str]:
        now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        # Lines are limited to the width of a terminal, but not in files.
        columns = self._console.size()[0] if self._console.interactive else None
        frame = replace(frame, rows=tuple(sorted_rows(frame.rows, self._sort)))
        lines = [f"{now}  {totals(frame)}", *tables(self._console, frame, columns)]
        separator = [] if self._first else [""]
        self._first = False
        return separator + lines

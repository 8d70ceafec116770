"""`zeus export`: publish energy, power and settings of all devices as metrics."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from zeus import __version__
from zeus.cli import print_message
from zeus.cli._parser import LOOPBACK, UsageError, add_listen_option, number
from zeus.cli._terminal import Console
from zeus.device import current_node
from zeus.errors import TelemetryError
from zeus.telemetry._collection import MetricCollector, Telemetry
from zeus.telemetry._http import MetricsServer
from zeus.telemetry._machine import MachineTelemetry
from zeus.telemetry._text_file import TextFile, checked_path
from zeus.telemetry._text_format import TextFormat

DEFAULT_PORT = 9842
_DEFAULT_PERIOD = 15.0  # seconds, as often as Prometheus scrapes by default
_SHORTEST_PERIOD = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Publish energy, power, limits, clocks, temperature, utilization and memory of every GPU, "
        "energy and power of CPUs, DRAM and systems on a chip, energy by job and user, who holds "
        "which setting, and what training processes publish, as metrics. By default Prometheus can "
        f"scrape them from this machine at http://{LOOPBACK}:{DEFAULT_PORT}/metrics. Devices "
        "are read when they are scraped. What is unknown is absent. Ends on SIGTERM or Ctrl-C."
    )
    parser.epilog = """\
examples:
  zeus export
  zeus export --listen 0.0.0.0:9842
  zeus export --text-file /var/lib/prometheus/node-exporter/zeus.prom --every 15
  zeus export --once                 print the metrics and exit
  zeus export --dashboard > zeus-node.json

Metrics are readable for everybody who can reach the address."""
    add_listen_option(parser, DEFAULT_PORT, only_if=", unless --text-file is given")
    parser.add_argument(
        "--text-file",
        type=Path,
        metavar="FILE",
        help="write the metrics to FILE, which ends in .prom, for the node exporter's textfile "
        "collector",
    )
    parser.add_argument(
        "--every",
        type=number(_SHORTEST_PERIOD, unit="seconds"),
        metavar="S",
        help=f"time between writes of the text file (default: {_DEFAULT_PERIOD:g})",
    )
    parser.add_argument(
        "--once", action="store_true", help="print the metrics, or write the text file, and exit"
    )
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="end with the process that has the other end of its standard input, however that ends",
    )
    parser.add_argument(
        "--dashboard", action="store_true", help="print a Grafana dashboard as JSON and exit"
    )


def run(arguments: argparse.Namespace) -> int:
    """Publish until SIGTERM or Ctrl-C."""
    if arguments.dashboard:
        sys.stdout.write(dashboard())
        return 0
    if arguments.every is not None and arguments.text_file is None:
        raise UsageError("--every is the time between writes of --text-file, which is not given")
    if arguments.once and (arguments.listen or arguments.every):
        raise UsageError("--once publishes a single time, so it takes no --listen and no --every")
    path = None if arguments.text_file is None else _checked(arguments.text_file)
    telemetry: MetricCollector
    if arguments.once:
        telemetry = Telemetry(current_node(), continuous=False, version=__version__)
    else:
        telemetry = MachineTelemetry(__version__)
    try:
        if arguments.once:
            _publish_once(telemetry, path)
        else:
            _publish(arguments, telemetry, path)
    finally:
        telemetry.close()
    return 0


def _checked(path: Path) -> Path:
    try:
        return checked_path(path)
    except TelemetryError as error:
        raise UsageError(str(error)) from None


def dashboard() -> str:
    """Return the Grafana dashboard of a node, as JSON."""
    folder = files("zeus.telemetry") / "dashboards"
    return (folder / "zeus-node.json").read_text(encoding="utf-8")


def _publish_once(telemetry: MetricCollector, path: Path | None) -> None:
    if path is None:
        sys.stdout.write(TextFormat().text(telemetry.collect()))
    else:
        TextFile(path, telemetry).write()


def _publish(arguments: argparse.Namespace, telemetry: MetricCollector, path: Path | None) -> None:
    console = Console(sys.stdout)
    with _ended(arguments.until_stdin_ends) as end, contextlib.ExitStack() as stack:
        if arguments.listen is not None or path is None:
            host, port = arguments.listen or (LOOPBACK, DEFAULT_PORT)
            server = MetricsServer(host, port, telemetry)
            stack.callback(server.server_close)
            threading.Thread(
                target=server.serve_forever, name="zeus-export", args=(3600.0,), daemon=True
            ).start()
            console.print(f"zeus: metrics at {server.url}")
        if path is None:
            sys.stdout.flush()
            end.wait()
            return
        period = arguments.every or _DEFAULT_PERIOD
        console.print(f"zeus: metrics in {path} every {period:g} s")
        sys.stdout.flush()
        file = TextFile(path, telemetry)
        stack.callback(file.remove)
        _write_until(end, file, period)


def _write_until(end: threading.Event, file: TextFile, period: float) -> None:
    trouble = ""
    while True:
        try:
            file.write()
            trouble = ""
        except OSError as error:  # a full disk, for instance: it may pass
            if str(error) != trouble:
                trouble = str(error)
                print_message(f"the text file is not written: {trouble}", "warning")
        if end.wait(period):
            return


@contextlib.contextmanager
def _ended(until_stdin_ends: bool) -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set, and the end of standard input if it is to."""
    end = threading.Event()

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        end.set()

    if until_stdin_ends:
        threading.Thread(target=wait, name="zeus-stdin", daemon=True).start()
    before = {
        each: signal.signal(each, lambda *_: end.set()) for each in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield end
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

"""`python -m zeus.monitor energy|power`: measures or watches GPUs until it is interrupted."""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Callable, Mapping

from zeus._bridges._modules import warn_once
from zeus.errors import ZeusError
from zeus.monitor import PowerMonitor, ZeusMonitor

_LONG = 3600.0  # seconds to sleep at a time


def energy(gpu_indices: list[int] | None = None) -> None:
    """Measure until interrupted, then print the measurement.

    Args:
        gpu_indices: GPUs to measure; all by default.
    """
    with ZeusMonitor(gpu_indices, sync_execution_with=None) as monitor:
        monitor.begin_window("zeus.monitor.energy")
        _until_interrupted(f"measuring GPUs {monitor.gpu_indices}", _LONG, lambda: None)
        measurement = monitor.end_window("zeus.monitor.energy")
        monitor.settle()
        print("Total energy (J):", measurement)


def power(gpu_indices: list[int] | None = None, update_period: float = 1.0) -> None:
    """Print the power of GPUs until interrupted, then their energy.

    Args:
        gpu_indices: GPUs to watch; all by default.
        update_period: Seconds between two lines.
    """
    with PowerMonitor(gpu_indices, update_period) as monitor:
        start = time.monotonic()

        def show() -> None:
            watts = monitor.get_power()
            if watts is not None:
                print(datetime.datetime.now(), _by_name(watts), flush=True)

        _until_interrupted(f"watching GPUs {monitor.gpu_indices}", update_period, show)
        end = time.monotonic()
        print("\nTotal time (s):", end - start)
        joules = monitor.get_energy(start, end)
        print("Total energy (J):", "not measured" if joules is None else _by_name(joules))


def _until_interrupted(what: str, period: float, action: Callable[[], None]) -> None:
    try:
        print(f"zeus: {what} until Ctrl-C", file=sys.stderr, flush=True)
        while True:
            time.sleep(period)
            action()
    except KeyboardInterrupt:
        pass


def _by_name(values: Mapping[int, float]) -> dict[str, float]:
    return {f"GPU{index}": value for index, value in values.items()}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def main() -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m zeus.monitor")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("energy", "measure GPUs"), ("power", "watch the power of GPUs")):
        command = commands.add_parser(name, help=f"{text} until Ctrl-C")
        command.add_argument(
            "--gpu-indices", nargs="+", type=int, metavar="N", help="GPUs (default: all)"
        )
    command.add_argument(
        "--update-period", type=_seconds, default=1.0, metavar="S", help="seconds (default: 1)"
    )
    options = vars(parser.parse_args())
    name = options.pop("command")
    now = "`zeus measure -- COMMAND`" if name == "energy" else "`zeus top`"
    warn_once(f"`python -m zeus.monitor {name}`", now, stacklevel=2)
    try:
        (energy if name == "energy" else power)(**options)
    except ZeusError as error:
        print(f"zeus: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before it began, or a second time
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
